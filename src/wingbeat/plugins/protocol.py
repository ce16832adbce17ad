"""The plugin protocol: idempotent, non-blocking, and told apart by what each call may do.

The engine persists the state a plugin returns *before* it calls the plugin again. That is how intent comes before
effect: a plugin first returns the name of what it is about to launch (with `again=True`), and launches it in the next
call, when that name is durable. After a crash it looks for the thing by that name and never makes a second one.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Protocol

import msgspec

from wingbeat.execution import TaskExecutionContext
from wingbeat.resources import ErrorInfo, PluginPhase, Reason


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin says after one look: the phase, and what the engine should keep and do."""

    phase: PluginPhase
    version: int = 0
    """Distinguishes reports of the same phase (a changed reason, more logs)."""
    reason: str = ""
    error: ErrorInfo | None = None
    occurred_at: dt.datetime | None = None
    """When the phase was reached, if the plugin knows better than the engine's clock."""
    state: dict[str, Any] | None = None
    """The new state, or None to keep the old one."""
    again: bool = False
    """Call again at once, as soon as this is persisted."""
    check_after: float | None = None
    """Call again after so many seconds even if nothing happens; None trusts the plugin's own wake-ups."""
    reasons: tuple[Reason, ...] = ()
    output_uri: str = ""
    report_uri: str = ""
    logs_available: bool = False


class Plugin(Protocol):
    id: str
    task_types: tuple[str, ...]
    """Task types this plugin serves by default; `*` serves whatever no other plugin does."""
    state_version: int

    async def handle(self, context: TaskExecutionContext) -> Transition:
        """Look, do at most one idempotent thing, say how it stands. An exception is a system failure, except
        PermanentPluginError, which ends the action at once."""

    async def abort(self, context: TaskExecutionContext) -> None:
        """End what runs for this attempt. Returns when it is gone. Idempotent."""

    async def finalize(self, context: TaskExecutionContext) -> None:
        """Free what the attempt holds; called at the end of every attempt. Idempotent."""


class PermanentPluginError(Exception):
    """A failure that no retry can mend (a bad task specification). `code` reaches the client."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
