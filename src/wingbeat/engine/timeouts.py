"""Limits on time: which one has passed, and when the next one will. Pure."""

from __future__ import annotations

import datetime as dt

import msgspec

from wingbeat.engine.facts import TaskFacts
from wingbeat.engine.state import EngineState
from wingbeat.resources import PluginPhase, TaskAction


class Timeout(msgspec.Struct, frozen=True):
    code: str
    message: str
    retryable: bool


def overdue(
    action: TaskAction, state: EngineState, facts: TaskFacts, phase: PluginPhase, now: dt.datetime
) -> Timeout | None:
    def over(since: dt.datetime | None, limit: float) -> bool:
        return limit > 0 and since is not None and (now - since).total_seconds() >= limit

    if over(state.first_queued_at, facts.deadline):
        return Timeout("DEADLINE_EXCEEDED", f"not done {facts.deadline:g} s after it was queued", False)
    if phase is PluginPhase.RUNNING:
        if over(state.started_at, facts.max_runtime):
            message = f"attempt {action.attempt} ran longer than its limit of {facts.max_runtime:g} s"
            return Timeout("MAX_RUNTIME_EXCEEDED", message, True)
    elif state.started_at is None and over(state.queued_at, facts.queued_timeout):
        return Timeout("QUEUED_TIMEOUT_EXCEEDED", f"did not start within {facts.queued_timeout:g} s", False)
    return None


def next_limit(state: EngineState, facts: TaskFacts, phase: PluginPhase) -> dt.datetime | None:
    """When `_overdue` could next say something."""
    moments = []
    if facts.deadline and state.first_queued_at is not None:
        moments.append(state.first_queued_at + dt.timedelta(seconds=facts.deadline))
    if phase is PluginPhase.RUNNING and facts.max_runtime and state.started_at is not None:
        moments.append(state.started_at + dt.timedelta(seconds=facts.max_runtime))
    if phase is not PluginPhase.RUNNING and facts.queued_timeout and state.queued_at is not None:
        moments.append(state.queued_at + dt.timedelta(seconds=facts.queued_timeout))
    return min(moments) if moments else None
