"""The phases of actions (as the wire numbers them) and of plugins (as Flyte's executor numbers them)."""

from __future__ import annotations

import enum


class ActionPhase(enum.IntEnum):
    """`flyteidl2.common.ActionPhase`, number for number."""

    UNSPECIFIED = 0
    QUEUED = 1
    WAITING_FOR_RESOURCES = 2
    INITIALIZING = 3
    RUNNING = 4
    SUCCEEDED = 5
    FAILED = 6
    ABORTED = 7
    TIMED_OUT = 8
    PAUSED = 9
    RECOVERED = 10

    @property
    def terminal(self) -> bool:
        return self in TERMINAL_PHASES


TERMINAL_PHASES = frozenset(
    {ActionPhase.SUCCEEDED, ActionPhase.FAILED, ActionPhase.ABORTED, ActionPhase.TIMED_OUT, ActionPhase.RECOVERED}
)


class PluginPhase(enum.IntEnum):
    """What a plugin says of the work it looks after; numbers and names are those of Flyte's executor."""

    UNDEFINED = 0
    NOT_READY = 1
    WAITING_FOR_RESOURCES = 2
    QUEUED = 3
    INITIALIZING = 4
    RUNNING = 5
    SUCCESS = 6
    RETRYABLE_FAILURE = 7
    PERMANENT_FAILURE = 8
    WAITING_FOR_CACHE = 9
    ABORTED = 10

    @property
    def wire_name(self) -> str:
        """The text kept in `status.pluginPhase`, e.g. `PhaseRunning`."""
        return "Phase" + "".join(part.capitalize() for part in self.name.split("_"))


class CacheStatus(enum.IntEnum):
    """`flyteidl2.core.CatalogCacheStatus`, number for number."""

    DISABLED = 0
    MISS = 1
    HIT = 2
    POPULATED = 3
    LOOKUP_FAILURE = 4
    PUT_FAILURE = 5
    SKIPPED = 6
    EVICTED = 7


class ErrorKind(enum.StrEnum):
    """Who must act on an error: the author of the task, or whoever runs the machine."""

    USER = "USER"
    SYSTEM = "SYSTEM"
    UNKNOWN = ""
