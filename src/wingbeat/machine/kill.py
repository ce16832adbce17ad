"""Ending whole process trees, many at once: one look at the processes serves all that are being ended."""

from __future__ import annotations

import asyncio
import signal
import time

import msgspec

from wingbeat.machine.processes import Process, ProcessTable, Root, send

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.2
PATIENCE = 50
"""Failed looks in a row after which whoever waits is told."""


class _Ending(msgspec.Struct, kw_only=True):
    root: Root
    deadline: float
    """Monotonic seconds; from then on SIGKILL."""
    done: asyncio.Future[None]
    told: set[tuple[int, int]] = msgspec.field(default_factory=set)
    """Who had SIGTERM, by pid and start."""
    found: bool = False
    empty: int = 0


class Killer:
    """Ends trees: SIGTERM to every process, after the grace SIGKILL, again and again until a look finds none."""

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._endings: list[_Ending] = []
        self._task: asyncio.Task[None] | None = None

    async def end(self, root: Root, *, grace: float) -> None:
        """End the tree and return when nothing of it is left. `grace` is in seconds; 0 means SIGKILL at once."""
        ending = _Ending(root=root, deadline=time.monotonic() + grace, done=asyncio.get_running_loop().create_future())
        self._endings.append(ending)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="machine-killer")
        await asyncio.shield(ending.done)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        failures = 0
        while self._endings:
            current = list(self._endings)
            try:
                ended = await asyncio.to_thread(self._round, current)
            except Exception as error:
                # Processes cannot be looked at now (too many open files?). To give up would leave them running.
                failures += 1
                if failures < PATIENCE:
                    await asyncio.sleep(LONGEST_PAUSE)
                    continue
                self._endings.clear()
                for ending in current:
                    if not ending.done.done():
                        ending.done.set_exception(error)
                continue
            failures = 0
            for ending in ended:
                self._endings.remove(ending)
                if not ending.done.done():
                    ending.done.set_result(None)
            if self._endings:
                await asyncio.sleep(pause)
                pause = FIRST_PAUSE if ended else min(pause * 1.5, LONGEST_PAUSE)

    def _round(self, endings: list[_Ending]) -> list[_Ending]:
        table = ProcessTable.read(self._marker)
        now = time.monotonic()
        ended = []
        for ending in endings:
            tree = table.tree(ending.root)
            if tree:
                ending.found, ending.empty = True, 0
                for process in tree:
                    self._signal(ending, process, now)
                continue
            # One look can miss a process that forks just then and ends. Where anything was found, look twice.
            ending.empty += 1
            if ending.empty >= 2 or not ending.found:
                ended.append(ending)
        return ended

    @staticmethod
    def _signal(ending: _Ending, process: Process, now: float) -> None:
        if now >= ending.deadline:
            send(process, signal.SIGKILL)
        elif (process.pid, process.start) not in ending.told:
            ending.told.add((process.pid, process.start))
            send(process, signal.SIGTERM)
