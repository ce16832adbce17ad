"""Who watches gets the latest state of each record, never a gap and never a queue without bound.

One feed reads every changed record once, however many watch it. A subscription keeps only the newest state of each
record that it has not handed out yet, so a slow reader costs the records it watches and no more. Subscribe before
reading the snapshot; what the snapshot has already is told by revisions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from prometheus_client import Gauge

from wingbeat.database import (
    RECORDS_TOPIC,
    RESYNC,
    Database,
    DatabaseUnavailable,
    RecordQuery,
    get_record,
    list_records,
)
from wingbeat.resources import ActionId, ActionRecord, RunId

log = logging.getLogger(__name__)

Predicate = Callable[[ActionRecord], bool]
WATCHERS = Gauge("wingbeat_watchers", "Open watches of runs and actions.")
BATCH = 500
"""Records read at once."""
REMEMBERED = 200_000
"""Records of one subscription whose revision is remembered."""
RETRY_SECONDS = 1.0


class Subscription:
    """The newest state, by identity, of what changed since it was last taken. Close it, or use `with`."""

    def __init__(self, feed: Feed, run: RunId | None, wants: Predicate) -> None:
        self.run = run
        self.wants = wants
        self.on_record: Callable[[ActionRecord], None] | None = None
        self._feed = feed
        self._latest: dict[ActionId, ActionRecord] = {}
        self._seen: dict[ActionId, int] = {}
        self._arrived = asyncio.Event()

    def offer(self, record: ActionRecord) -> None:
        """Take `record` in, unless this state of it, or a newer one, was there before."""
        if record.revision <= self._seen.get(record.id, -1):
            return
        if len(self._seen) >= REMEMBERED:
            self._seen.clear()  # The worst that comes of it is that a state is told twice.
        self._seen[record.id] = record.revision
        if self.on_record is not None:
            self.on_record(record)
        self._latest[record.id] = record
        self._arrived.set()

    async def take(self, timeout: float) -> list[ActionRecord]:
        """What has changed, waiting for at most `timeout` seconds; empty when nothing did."""
        if not self._latest:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), timeout)
            except TimeoutError:
                return []
        taken = list(self._latest.values())
        self._latest.clear()
        return taken

    def close(self) -> None:
        self._feed.unsubscribe(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Feed:
    """One for a server. `start` and `close` on the event loop."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._by_run: dict[RunId, set[Subscription]] = {}
        self._everywhere: set[Subscription] = set()
        self._changed: dict[ActionId, None] = {}
        self._resync = False
        self._task: asyncio.Task[None] | None = None
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        WATCHERS.set_function(lambda: self.watchers)
        self._ends = [
            self._db.subscribe(RECORDS_TOPIC, self._on_change),
            self._db.subscribe(RESYNC, self._on_resync),
        ]

    async def close(self) -> None:
        for end in self._ends:
            end()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def children(self, parent: ActionId) -> Subscription:
        """Direct children of `parent`."""
        return self.of_run(parent.run_id, lambda record: record.parent == parent.action)

    def action(self, id: ActionId) -> Subscription:
        return self.of_run(id.run_id, lambda record: record.id == id)

    def of_run(self, run: RunId, wants: Predicate = lambda record: True) -> Subscription:
        """Actions of one run."""
        subscription = Subscription(self, run, wants)
        self._by_run.setdefault(run, set()).add(subscription)
        return subscription

    def everywhere(self, wants: Predicate) -> Subscription:
        subscription = Subscription(self, None, wants)
        self._everywhere.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        self._everywhere.discard(subscription)
        if subscription.run is not None:
            rest = self._by_run.get(subscription.run, set())
            rest.discard(subscription)
            if not rest:
                self._by_run.pop(subscription.run, None)

    @property
    def watchers(self) -> int:
        return len(self._everywhere) + sum(map(len, self._by_run.values()))

    def _on_change(self, id: ActionId) -> None:
        if self._everywhere or id.run_id in self._by_run:
            self._changed[id] = None
            self._wake()

    def _on_resync(self, _: object) -> None:
        self._resync = True
        self._wake()

    def _wake(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._distribute())

    async def _distribute(self) -> None:
        while self._changed or self._resync:
            resync, self._resync = self._resync, False
            ids = list(self._changed)[:BATCH]
            for id in ids:
                del self._changed[id]
            try:
                if resync:
                    self._hand_out(await self._read_all())
                self._hand_out(await self._read(ids))
            except DatabaseUnavailable as error:
                log.warning("watchers wait for the database: %s", error)
                self._resync |= resync
                self._changed.update(dict.fromkeys(ids))
                await asyncio.sleep(RETRY_SECONDS)
            except Exception:
                # A watcher that could not be told must not silence all others.
                log.exception("could not read changed records")
                await self._one_by_one(ids)

    async def _one_by_one(self, ids: list[ActionId]) -> None:
        """One of these cannot be read; the others can."""
        for id in ids:
            try:
                self._hand_out(await self._read([id]))
            except DatabaseUnavailable:
                self._changed[id] = None
            except Exception:
                log.exception("could not read the record of %s", id)

    async def _read(self, ids: list[ActionId]) -> list[ActionRecord]:
        if not ids:
            return []
        found = await self._db.read(lambda c: [get_record(c, id) for id in ids])
        return [record for record in found if record is not None]

    async def _read_all(self) -> list[ActionRecord]:
        """Everything that is watched, after changes by others that nobody told of."""
        runs = list(self._by_run)
        queries = [
            RecordQuery(org=r.org, project=r.project, domain=r.domain, run=r.run, order_by=(), limit=0) for r in runs
        ]
        if self._everywhere:
            queries.append(RecordQuery(parent="", limit=1000))
        return await self._db.read(lambda c: [record for query in queries for record in list_records(c, query)])

    def _hand_out(self, records: Iterable[ActionRecord]) -> None:
        for record in records:
            for subscription in [*self._by_run.get(record.id.run_id, ()), *self._everywhere]:
                if subscription.wants(record):
                    subscription.offer(record)
