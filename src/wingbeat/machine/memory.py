"""Holding launches to their memory limits, by control group or by watching, whichever works here."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from wingbeat.machine import limits, logs
from wingbeat.machine.launches import Launch, out_of_memory
from wingbeat.machine.processes import ProcessTable, Root, memory


class MemoryLimits:
    def __init__(self, mode: limits.LimitsMode, marker: str, logger: Any) -> None:
        self._mode = mode
        self._marker = marker
        self._log = logger
        self._groups: limits.ControlGroups | None = None
        self._busy: set[str] = set()
        """Groups that could not be removed yet: a process counts until it has been reaped."""

    def choose(self) -> None:
        """Find out what works here. Raises LimitsError where what was asked for does not."""
        self._groups = limits.choose(self._mode, self._marker)

    def enter(self, launch: Launch) -> list[str]:
        """Set up the limit, and return the files by which the child enters its control group."""
        limit = launch.spec.memory_limit
        if not limit:
            return []
        if self._groups is not None:
            try:
                folder = self._groups.make(launch.spec.token, limit)
                launch.limited = "cgroup"
                return [str(folder / "cgroup.procs")]
            except OSError as error:
                self._log.warning("cgroup_failed", token=launch.spec.token, error=str(error))
        if self._mode != "off":
            launch.limited = "watchdog"
        return []

    def find_again(self, launch: Launch) -> None:
        """Find what limits a launch that an earlier server started."""
        if launch.limited or not launch.spec.memory_limit:
            return
        if self._groups is not None and self._groups.folder(launch.spec.token).is_dir():
            launch.limited = "cgroup"
        elif self._mode != "off":
            launch.limited = "watchdog"

    def root(self, launch: Launch) -> Root:
        """Where its process tree hangs, its control group included."""
        group = self._groups.folder(launch.spec.token) if self._groups is not None else None
        return Root(
            token=launch.spec.token,
            pid=launch.pid,
            start=launch.start,
            cgroup=str(group) if group is not None and group.is_dir() else "",
        )

    async def look(self, running: list[Launch]) -> list[Launch]:
        """Those that have passed their limits. Raises OSError."""
        if self._groups is None:
            over = []
        else:
            self._busy -= {token for token in self._busy if self._groups.release(token)}
            over = [x for x in running if x.limited == "cgroup" and self._groups.kills(x.spec.token)]
        watched = [launch for launch in running if launch.limited == "watchdog"]
        if watched:
            over += await asyncio.to_thread(self._over, watched)
        return over

    def _over(self, watched: list[Launch]) -> list[Launch]:
        table = ProcessTable.read(self._marker)
        return [x for x in watched if memory(table.tree(self.root(x)), x.spec.memory_limit) > x.spec.memory_limit]

    def leave(self, launch: Launch) -> None:
        """Its tree is gone: see whether the kernel ended it for want of memory, and remove its group."""
        token = launch.spec.token
        if self._groups is None or not self._groups.folder(token).is_dir():
            return
        if self._groups.kills(token) and not launch.killed and not launch.out_of_memory:
            launch.out_of_memory = True
            launch.facts.write_kill("out of memory", out_of_memory=True)
            with contextlib.suppress(OSError):
                logs.append_note(launch.spec.log_path, out_of_memory(launch.spec))
        if not self._groups.release(token):
            self._busy.add(token)

    def sweep(self, keep: set[str]) -> None:
        """Remove groups that an earlier server left."""
        if self._groups is not None:
            self._groups.sweep(keep)

    def close(self) -> None:
        """Remove what is left of ours, when nothing runs any more."""
        if self._groups is not None:
            self._groups.sweep(set())
            self._groups.close()
