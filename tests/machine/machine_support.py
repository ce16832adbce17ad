"""What the machine's tests share."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from wingbeat.machine import BudgetSettings, LaunchSpec, LocalMachine, ProcessState, ProcessStatus, read_log
from wingbeat.machine.processes import NO_TOKEN, Process, ProcessTable
from wingbeat.resources import ActionId

GIB = 1 << 30


def action(name: str = "a0", run: str = "r1") -> ActionId:
    return ActionId("local", "flytesnacks", "development", run, name)


class Folders:
    """A data folder: where launches are kept, where sockets are, and its id."""

    def __init__(self, root: Path, short: Path, marker: str) -> None:
        self.state = root / "state"
        self.runtime = short
        self.logs = root / "logs"
        self.marker = marker

    def machine(self, **settings: Any) -> LocalMachine:
        settings.setdefault("budget", BudgetSettings(cpus=4, memory=4 * GIB, startups=4))
        settings.setdefault("mode", "spawn")
        settings.setdefault("orphan_seconds", 20.0)
        return LocalMachine(self.state, self.runtime, marker=self.marker, **settings)

    @asynccontextmanager
    async def running(self, **settings: Any) -> AsyncIterator[LocalMachine]:
        machine = self.machine(**settings)
        await machine.start()
        try:
            yield machine
        finally:
            await machine.stop(keep=False)

    def spec(self, token: str, *argv: str, **fields: Any) -> LaunchSpec:
        fields.setdefault("action", action(token))
        fields.setdefault("env", {"PATH": os.environ["PATH"]})
        fields.setdefault("log_path", str(self.logs / f"{token}.log"))
        return LaunchSpec(token=token, attempt=1, interpreter=sys.executable, argv=argv, **fields)

    def python(self, token: str, code: str, **fields: Any) -> LaunchSpec:
        return self.spec(token, sys.executable, "-c", code, **fields)

    def log(self, token: str) -> list[tuple[str, str]]:
        return [(line.originator, line.text) for line in read_log(self.logs / f"{token}.log")]

    def output(self, token: str) -> list[str]:
        return [text for originator, text in self.log(token) if originator == "user"]

    def processes(self) -> list[Process]:
        """Every living process of the system that carries the marker of this data folder, zygotes included."""
        return [process for process in ProcessTable.read(self.marker).by_pid.values() if process.token]

    def alive(self) -> set[str]:
        """The launches of which anything is alive."""
        return {process.token for process in self.processes() if not process.token.startswith(NO_TOKEN)}


async def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.01)


async def reached(machine: LocalMachine, token: str, *states: ProcessState, seconds: float = 20.0) -> ProcessStatus:
    deadline = time.monotonic() + seconds
    while True:
        status = await machine.observe(token)
        if status.state in states:
            return status
        assert time.monotonic() < deadline, f"{token} is {status.state} ({status.reason}), not {states}"
        await asyncio.sleep(0.01)


async def ended(machine: LocalMachine, token: str, seconds: float = 30.0) -> ProcessStatus:
    return await reached(machine, token, ProcessState.EXITED, ProcessState.LOST, seconds=seconds)
