"""One launch as this server sees it, and what is derived from it: its claim, its environment, its status."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import os
import pwd
from pathlib import Path
from typing import Literal

import msgspec

from wingbeat.machine.budget import Claim, size
from wingbeat.machine.facts import Exit, Facts
from wingbeat.machine.processes import DATA_VARIABLE, TOKEN_VARIABLE
from wingbeat.machine.protocol import LaunchSpec, ProcessState, ProcessStatus
from wingbeat.machine.zygotes import Zygote


class Launch(msgspec.Struct, kw_only=True):
    """What this server knows of one launch; all that must outlive it is in `facts`."""

    spec: LaunchSpec
    facts: Facts
    state: ProcessState
    reason: str = ""
    note: str = ""
    """Something to say about it whatever its state (fewer CPUs than asked for)."""
    pid: int = 0
    start: int = 0
    started_at: dt.datetime | None = None
    exit: Exit | None = None
    killed: str = ""
    out_of_memory: bool = False
    disk_full: bool = False
    ending: bool = False
    """We have begun to end it."""
    finishing: bool = False
    """Its end is known and is being tidied up."""
    over_budget: bool = False
    limited: Literal["", "cgroup", "watchdog"] = ""
    zygote: Zygote | None = None
    answered: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """The zygote has said whether it started it."""
    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


def claim_of(spec: LaunchSpec) -> Claim:
    """What it asks of the budget."""
    return Claim(
        token=spec.token,
        name=f"{spec.action.run}/{spec.action.action}",
        run=str(spec.action.run_id),
        cpus=spec.cpus,
        memory=spec.memory,
        gpus=spec.gpus,
        depth=spec.depth,
    )


def environment(launch: Launch, marker: str) -> dict[str, str]:
    """All variables of its process: those of the task, its secrets, and what the machine adds."""
    spec = launch.spec
    env = {**spec.env, **spec.secret_env}
    env["PATH"] = os.pathsep.join([str(Path(spec.interpreter).parent), env.get("PATH") or os.defpath])
    if not env.get("HOME"):
        env["HOME"] = str(launch.facts.folder / "work")
        with contextlib.suppress(KeyError):
            env["HOME"] = pwd.getpwuid(os.getuid()).pw_dir
    env.setdefault("PYTHONUNBUFFERED", "1")
    env[TOKEN_VARIABLE] = spec.token
    env[DATA_VARIABLE] = marker
    return env


def out_of_memory(spec: LaunchSpec) -> str:
    """For its log."""
    return f"killed: out of memory (limit {size(spec.memory_limit)})"


def status_of(launch: Launch, reason: str) -> ProcessStatus:
    ended = launch.exit
    return ProcessStatus(
        state=launch.state,
        reason=reason,
        pid=launch.pid,
        started_at=launch.started_at,
        ended_at=dt.datetime.fromtimestamp(ended.ended_at, dt.UTC) if ended else None,
        exit_code=ended.code if ended else None,
        signal=ended.signal if ended else None,
        out_of_memory=launch.out_of_memory,
        killed=launch.killed,
        disk_full=launch.disk_full,
        max_rss=ended.max_rss if ended else 0,
        cpu_seconds=ended.cpu_seconds if ended else 0.0,
    )
