"""Figures for `/metrics` that no single module owns: what the engine and the machine have in hand right now.

Read when they are asked for, so keeping them costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import CollectorRegistry

from wingbeat.engine import Controller
from wingbeat.server.asgi import Application


class Figures:
    """A collector over one server."""

    def __init__(self, controller: Controller, application: Application) -> None:
        self._controller = controller
        self._application = application

    def collect(self) -> Iterable[Metric]:
        phases = Counter(
            next((c.reason for c in action.status.conditions if c.type == "Progressing"), "New")
            for action in self._controller.live_actions()
        )
        actions = GaugeMetricFamily("wingbeat_actions_live", "Actions that are not finished.", labels=["state"])
        for phase, count in phases.items():
            actions.add_metric([phase], count)
        yield actions
        yield GaugeMetricFamily(
            "wingbeat_engine_queue_depth", "Actions that wait for a reconcile.", value=self._controller.queue_depth
        )
        yield CounterMetricFamily(
            "wingbeat_reconciles", "Looks at an action since the start.", value=self._controller.reconciles
        )
        yield GaugeMetricFamily(
            "wingbeat_requests_in_flight", "Calls and streams being served.", value=self._application.in_flight
        )


def publish(controller: Controller, application: Application, registry: CollectorRegistry) -> None:
    """Have `registry` serve the figures of this server."""
    registry.register(Figures(controller, application))
