"""What a plugin sees of one attempt: the task, where its inputs and outputs are, its own state."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from wingbeat.execution.paths import AttemptPaths
from wingbeat.resources import ActionId, TaskAction


class TaskExecutionContext(msgspec.Struct, kw_only=True):
    """Everything about one attempt of one action. `state` is what the plugin last returned, or None at the start of
    an attempt; `generation` grows with every launch of the action, retries and system failures alike."""

    action: TaskAction
    template: Any
    """The parsed `flyteidl2.core.TaskTemplate`."""
    attempt: int
    generation: int
    max_attempts: int
    input_uri: str
    """The full path of `inputs.pb`."""
    paths: AttemptPaths
    run_start_time: dt.datetime
    environment: dict[str, str]
    """Variables of the contract and of the run; the plugin adds what is its own."""
    state: dict[str, Any] | None = None
    now: dt.datetime

    @property
    def id(self) -> ActionId:
        return self.action.id

    @property
    def depth(self) -> int:
        from wingbeat.resources.taskaction import ANNOTATION_DEPTH

        return int(self.action.metadata.annotations.get(ANNOTATION_DEPTH, "0"))
