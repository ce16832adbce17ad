"""What the rules need to know of a task template, read once and kept as plain values."""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from typing import Any

import msgspec
from flyteidl2.core import tasks_pb2
from google.protobuf.message import DecodeError

from wingbeat.resources import TaskAction


class InvalidTemplate(ValueError):
    """The task template cannot be read, or says nothing that could run."""


class TaskFacts(msgspec.Struct, frozen=True, kw_only=True):
    max_attempts: int = 1
    backoff_base: float = 0.0
    """Seconds before the first retry; 0: retry at once."""
    backoff_factor: float = 1.0
    backoff_cap: float = 0.0
    """Seconds; 0: no cap."""
    max_runtime: float = 0.0
    """Seconds an attempt may run; 0: no limit."""
    queued_timeout: float = 0.0
    deadline: float = 0.0
    """Seconds over all attempts; 0: no limit."""
    discoverable: bool = False
    cache_max_age: float = 0.0

    def retry_delay(self, failed_attempts: int) -> dt.timedelta:
        """How long to wait after `failed_attempts` failed ones: base * factor^(n-1), capped."""
        if self.backoff_base <= 0:
            return dt.timedelta(0)
        try:
            seconds = self.backoff_base * max(self.backoff_factor, 0.0) ** max(failed_attempts - 1, 0)
        except OverflowError:
            seconds = float("inf")
        if self.backoff_cap > 0:
            seconds = min(seconds, self.backoff_cap)
        return dt.timedelta(seconds=min(seconds, 30 * 86400))


def _seconds(duration: Any) -> float:
    return float(duration.seconds) + float(duration.nanos) / 1e9


@lru_cache(maxsize=512)
def parse_template(data: bytes) -> Any:
    """The `core.TaskTemplate` in `data`; shared, not to be changed. Raises InvalidTemplate."""
    template = tasks_pb2.TaskTemplate()
    try:
        template.ParseFromString(data)
    except DecodeError as error:
        raise InvalidTemplate(f"the task template cannot be decoded: {error}") from error
    return template


@lru_cache(maxsize=512)
def task_facts(data: bytes) -> TaskFacts:
    """The facts of a serialized template. Raises InvalidTemplate."""
    metadata = parse_template(data).metadata
    backoff = metadata.retries.backoff
    return TaskFacts(
        max_attempts=metadata.retries.retries + 1,
        backoff_base=_seconds(backoff.base),
        backoff_factor=float(backoff.factor) or 1.0,
        backoff_cap=_seconds(backoff.cap),
        max_runtime=_seconds(metadata.timeout),
        queued_timeout=_seconds(metadata.timeouts.queued_timeout),
        deadline=_seconds(metadata.timeouts.deadline),
        discoverable=metadata.discoverable,
        cache_max_age=_seconds(metadata.cache_max_age),
    )


def validation_problem(action: TaskAction) -> str:
    """What is wrong with the spec of a task action, in one sentence; empty when nothing is (engine.md 1.5)."""
    spec = action.spec
    required = {
        "runName": spec.run_name,
        "project": spec.project,
        "domain": spec.domain,
        "actionName": spec.action_name,
        "taskType": spec.task_type,
        "taskTemplate": spec.task_template,
        "inputUri": spec.input_uri,
        "runOutputBase": spec.run_output_base,
    }
    missing = [name for name, value in required.items() if not value]
    if missing:
        return f"the action's spec lacks {', '.join(missing)}"
    try:
        parse_template(spec.task_template)
    except InvalidTemplate as error:
        return str(error)
    return ""
