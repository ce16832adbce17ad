"""Reconciling TaskActions: the rules (pure) and the shell that carries them out."""

from wingbeat.engine.collector import Collector
from wingbeat.engine.controller import Catalog, CatalogAnswer, Controller, utc_now
from wingbeat.engine.decide import Policy
from wingbeat.engine.draft import Decision
from wingbeat.engine.facts import TaskFacts, parse_template, task_facts
from wingbeat.engine.state import EngineState, read_state

__all__ = [
    "Catalog",
    "CatalogAnswer",
    "Collector",
    "Controller",
    "Decision",
    "EngineState",
    "Policy",
    "TaskFacts",
    "parse_template",
    "read_state",
    "task_facts",
    "utc_now",
]
