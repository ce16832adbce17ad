"""Watches: every watcher catches up from the database, then is fed from what this process commits.

A watcher is *stale* at first, and whenever another process has committed: it then reads what changed since the last
revision it handed out. Commits of this process come as `Change`s; those that a catch-up has covered are dropped. What
waits for a slow consumer coalesces to the newest state of each object.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from wingbeat.database import RESYNC, Connection, Database
from wingbeat.stores.protocol import Expired, Selector, WatchEvent, WatchType
from wingbeat.stores.selection import EVERYTHING, matches, matches_labels
from wingbeat.stores.sql.objects import TOPIC, Change, Objects
from wingbeat.stores.sql.reading import changes_since

BOOKMARK_SECONDS = 10.0
PENDING_LIMIT = 200_000
"""Events that may wait for one consumer; beyond that it must list again."""


class _Watcher:
    def __init__(self, selector: Selector, since: int) -> None:
        self.selector = selector
        self.last = since
        self.stale = True
        self.pending: dict[object, WatchEvent] = {}
        self.wake = asyncio.Event()

    def offer(self, change: Change) -> None:
        if change.revision <= self.last:
            return
        event = _seen(self.selector, change)
        if event is None:
            return
        pending = self.pending
        waiting = pending.pop(change.id, None)
        if event.type is WatchType.DELETED:
            # Never coalesced with what follows: the next object of this name is another one.
            pending[change.id, change.revision] = event
        else:
            if waiting is not None and waiting.type is WatchType.ADDED:
                event = WatchEvent(WatchType.ADDED, event.id, event.object, event.resource_version)
            pending[change.id] = event
        self.wake.set()

    def covered(self, revision: int) -> None:
        """A catch-up has told of everything up to `revision`."""
        for name in [n for n, event in self.pending.items() if int(event.resource_version) <= revision]:
            del self.pending[name]


def _seen(selector: Selector, change: Change) -> WatchEvent | None:
    """The change as a watcher with this selector sees it: objects come and go as they begin or cease to match."""
    action = change.row.object
    type = change.type
    if selector is not EVERYTHING:
        was = change.previous_labels is not None and matches_labels(selector, change.previous_labels)
        now = type is not WatchType.DELETED and matches_labels(selector, action.metadata.labels)
        if not (was or now) or not matches(_without_labels(selector), action):
            return None
        type = WatchType.DELETED if not now else WatchType.MODIFIED if was else WatchType.ADDED
    return WatchEvent(type, change.id, action, str(change.revision))


def _without_labels(selector: Selector) -> Selector:
    if not selector.labels and not selector.has_labels:
        return selector
    return Selector(run=selector.run, parent=selector.parent, owner_uid=selector.owner_uid)


class Watches:
    """All watchers of one store. Lives on the event loop."""

    def __init__(self, db: Database, objects: Objects, *, bookmark_seconds: float = BOOKMARK_SECONDS) -> None:
        self._db = db
        self._objects = objects
        self._bookmark_seconds = bookmark_seconds
        self._watchers: set[_Watcher] = set()
        self._ends: list[Callable[[], None]] = [
            db.subscribe(TOPIC, self._changed),
            db.subscribe(RESYNC, self._resync),
        ]

    @property
    def count(self) -> int:
        return len(self._watchers)

    def close(self) -> None:
        for end in self._ends:
            end()

    def _changed(self, change: Change) -> None:
        self._objects.remember(change)
        for watcher in self._watchers:
            watcher.offer(change)

    def _resync(self, _: object) -> None:
        for watcher in self._watchers:
            watcher.stale = True
            watcher.wake.set()

    async def watch(self, since: int, selector: Selector) -> AsyncGenerator[WatchEvent, None]:
        watcher = _Watcher(selector, since)
        self._watchers.add(watcher)
        try:
            while True:
                if watcher.stale:
                    watcher.stale = False
                    events, revision = await self._catch_up(watcher)
                    watcher.covered(revision)
                    for event in events:
                        watcher.last = int(event.resource_version)
                        yield event
                    watcher.last = max(watcher.last, revision)
                elif watcher.pending:
                    if len(watcher.pending) > PENDING_LIMIT:
                        raise Expired("too many changes wait for this watch: list again")
                    event = watcher.pending.pop(next(iter(watcher.pending)))
                    watcher.last = int(event.resource_version)
                    yield event
                elif not await self._wait(watcher):
                    watcher.last = max(watcher.last, self._db.revision)
                    yield WatchEvent(WatchType.BOOKMARK, None, None, str(watcher.last))
        finally:
            self._watchers.discard(watcher)

    async def _catch_up(self, watcher: _Watcher) -> tuple[list[WatchEvent], int]:
        selector, since = watcher.selector, watcher.last

        def job(c: Connection) -> tuple[list[WatchEvent], int]:
            return changes_since(c, self._objects.rows, selector, since)

        return await self._db.read(job)

    async def _wait(self, watcher: _Watcher) -> bool:
        """Until there is something to do (True), or a bookmark is due (False)."""
        watcher.wake.clear()
        try:
            async with asyncio.timeout(self._bookmark_seconds):
                await watcher.wake.wait()
        except TimeoutError:
            return watcher.stale or bool(watcher.pending)
        return True
