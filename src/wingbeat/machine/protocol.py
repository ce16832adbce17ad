"""What plugins and apps know of this computer: launch a process tree once, look at it, end it.

A launch is named by a token, unique for (action, attempt, generation). Whatever happens to this server, a token is
never started twice: `launch` of a known token does nothing, and `observe` answers from durable facts.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from typing import Protocol

import msgspec

from wingbeat.resources import ActionId


class ProcessState(enum.StrEnum):
    UNKNOWN = "unknown"
    """Never launched, or forgotten."""
    WAITING = "waiting"
    """Accepted, waits for its share of the machine; `reason` says for what."""
    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"
    """It was started and is gone, and nobody saw how (the zygote died too, or the machine restarted)."""


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All that a launch needs; written to disk before anything is started."""

    token: str
    """Letters, digits, `-`, `_`, `.`; safe as a file name; at most 120 characters."""
    action: ActionId
    attempt: int
    interpreter: str
    """The environment's Python; it has the SDK installed."""
    argv: tuple[str, ...]
    """The task's own argument list. `a0 ...` runs in a fork of the zygote (or a spawned interpreter); anything else
    is executed as a command found on the environment's PATH."""
    env: dict[str, str]
    """The whole environment of the process, except what the machine itself adds (its marker, PATH of the
    environment, HOME)."""
    cpus: float = 1.0
    memory: int = 0
    """Bytes charged to the budget."""
    gpus: int = 0
    memory_limit: int = 0
    """Bytes; 0 is no limit. Passing it ends the whole tree, as out of memory."""
    depth: int = 0
    """Nesting depth of the action (root 0)."""
    log_path: str
    log_limit: int = 64 * 1024 * 1024
    secret_env: dict[str, str] = {}
    """Added to the environment of the process, never written to disk."""


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    state: ProcessState
    reason: str = ""
    pid: int = 0
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    exit_code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    killed: str = ""
    """Why *we* ended it (`abort`, `timeout`, ...); empty when we did not."""
    disk_full: bool = False
    """There was no room left on the disk when it ended."""
    max_rss: int = 0
    """Bytes."""
    cpu_seconds: float = 0.0


class Machine(Protocol):
    async def start(self) -> None:
        """Take up what an earlier server left running; afterwards `observe` is right about every token."""

    async def stop(self, *, keep: bool) -> None:
        """Let go of everything; with `keep` children and zygotes live on for the next server, else all are ended."""

    async def tokens(self) -> list[str]:
        """Every launch that anything is kept of, whoever asked for it."""

    async def launch(self, spec: LaunchSpec) -> None:
        """Accept a process. Returns once the spec is durable; the start itself waits for the budget.
        Raises LaunchError where it can never start (no such interpreter, over the machine's size), and OSError where
        it cannot start now (the disk is full)."""

    async def observe(self, token: str) -> ProcessStatus: ...

    async def kill(self, token: str, *, why: str, grace: float = 5.0) -> None:
        """End the whole tree: SIGTERM, `grace` seconds, SIGKILL; also what forked away. Returns when all is gone.
        Also takes a waiting one out of the queue. Unknown tokens are fine."""

    async def forget(self, token: str, *, keep_work: bool = False) -> None:
        """Remove what is kept of an ended process (its working folder, unless `keep_work`)."""

    def set_waiting(self, action: ActionId, waiting: bool) -> None:
        """Say that the process of `action` waits for its children (or no longer does): its CPU charge drops."""

    def on_change(self, callback: Callable[[ActionId], None]) -> None:
        """Call `callback(action)` on the event loop whenever the state of one of its processes changes."""


class LaunchError(Exception):
    """A launch that can never work. `code` and `message` are for the user who wrote the task."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
