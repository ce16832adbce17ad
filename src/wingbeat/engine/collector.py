"""Garbage collection: finished runs leave the engine after a while; their records stay.

A run is collected as a whole, and only when its root is finished: a parent that is retried replays its finished
children, so nothing is collected under a live parent. Deletion goes through the same finalizer as an abort; a
finished action emits nothing on its way out.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable

import structlog

from wingbeat.resources import ActionId, RunId, TaskAction
from wingbeat.stores import Conflict, Informer, NotFound, Store, Unavailable

log = structlog.get_logger("wingbeat.collector")

INTERVAL = 60.0
PER_SWEEP = 2000
"""Deletions of one sweep at most, so that new work is not delayed by much."""


def finished_at(action: TaskAction) -> dt.datetime | None:
    """When a terminal action reached its end; None while it is live."""
    if not action.terminal:
        return None
    times = [c.last_transition_time for c in action.status.conditions if c.status == "True"]
    return max((t for t in times if t is not None), default=None)


def expired(actions: list[TaskAction], *, ttl: dt.timedelta, now: dt.datetime) -> list[ActionId]:
    """The actions to collect: all of a run, once every one of them has been finished for `ttl`. Children first."""
    runs: dict[RunId, list[TaskAction]] = {}
    for action in actions:
        runs.setdefault(action.id.run_id, []).append(action)
    result: list[ActionId] = []
    for members in runs.values():
        ends = [finished_at(action) for action in members]
        if all(end is not None and now - end >= ttl for end in ends):
            deepest_first = sorted(members, key=lambda a: (a.parent_id is None, a.metadata.creation_timestamp))
            result.extend(a.id for a in deepest_first if not a.deleting)
    return result


class Collector:
    """Sweeps a watch cache now and then."""

    def __init__(
        self, store: Store, informer: Informer, *, ttl: dt.timedelta, clock: Callable[[], dt.datetime]
    ) -> None:
        self._store = store
        self._informer = informer
        self._ttl = ttl
        self._clock = clock

    async def run(self) -> None:
        """Sweep at once and then every minute, until cancelled."""
        while True:
            try:
                count = await self.sweep()
                if count:
                    log.info("collected finished actions", count=count)
            except Unavailable as error:
                log.warning("nothing collected, the store is away", error=str(error))
            await asyncio.sleep(INTERVAL)

    async def sweep(self) -> int:
        """Ask for the deletion of what has expired; returns how many."""
        chosen = expired(list(self._informer.items()), ttl=self._ttl, now=self._clock())[:PER_SWEEP]
        for id in chosen:
            try:
                await self._store.delete(id)
            except (NotFound, Conflict):
                continue
        return len(chosen)
