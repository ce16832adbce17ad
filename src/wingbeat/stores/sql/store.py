"""`SqlStore`: the store protocol over a `Database`, SQLite or PostgreSQL alike."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from wingbeat.crashpoints import crash_point
from wingbeat.database import Connection, Database, DatabaseUnavailable, apply_events
from wingbeat.resources import ActionEvent, ActionId, ActionRecord, RunId, TaskAction, TaskActionStatus
from wingbeat.stores.protocol import Expired, ListPage, MetadataPatch, Selector, Unavailable, WatchEvent
from wingbeat.stores.selection import EVERYTHING
from wingbeat.stores.sql import reading
from wingbeat.stores.sql.objects import Objects, _now, encode_for_patch
from wingbeat.stores.sql.watching import BOOKMARK_SECONDS, Watches

T = TypeVar("T")


class SqlStore:
    """TaskActions in SQL. Does not own the database; `close` ends only the store's own subscriptions.

    `objects` is the same as functions of a connection, for those who do more in one transaction.
    """

    def __init__(
        self,
        db: Database,
        *,
        now: Callable[[], dt.datetime] = _now,
        tombstones: int = 200_000,
        cached_objects: int = 4096,
        bookmark_seconds: float = BOOKMARK_SECONDS,
    ) -> None:
        self._db = db
        self.objects = Objects(now=now, tombstones=tombstones, cached_objects=cached_objects)
        self._watches = Watches(db, self.objects, bookmark_seconds=bookmark_seconds)

    def close(self) -> None:
        self._watches.close()

    @property
    def watchers(self) -> int:
        """How many watches are open."""
        return self._watches.count

    async def create(self, action: TaskAction, *, record: ActionRecord | None = None, spec: bytes = b"") -> TaskAction:
        crash_point("create.before-commit")
        created = await self._write(lambda c: self.objects.create(c, action, record, spec))
        crash_point("create.after-commit")
        return created

    async def get(self, id: ActionId) -> TaskAction:
        return await self._read(lambda c: self.objects.get(c, id))

    async def list(self, selector: Selector = EVERYTHING, *, limit: int = 0, continue_token: str = "") -> ListPage:
        return await self._read(lambda c: reading.list_page(c, self.objects.rows, selector, limit, continue_token))

    async def patch(self, id: ActionId, patch: MetadataPatch, *, resource_version: str = "") -> TaskAction:
        return await self._write(lambda c: self.objects.patch(c, id, patch, resource_version))

    async def patch_status(
        self,
        id: ActionId,
        status: TaskActionStatus,
        *,
        resource_version: str,
        events: Sequence[ActionEvent] = (),
        wait_reason: str | None = None,
    ) -> TaskAction:
        encoded, terminal = encode_for_patch(status)
        return await self._write(
            lambda c: self.objects.patch_status(c, id, encoded, terminal, resource_version, events, wait_reason)
        )

    async def apply_events(self, events: Sequence[ActionEvent]) -> None:
        await self._write(lambda c: apply_events(c, events))

    async def delete(
        self, id: ActionId, *, uid: str = "", resource_version: str = "", annotations: dict[str, str] | None = None
    ) -> None:
        await self._write(lambda c: self.objects.delete(c, id, uid, resource_version, annotations))

    async def delete_run(self, run: RunId, *, annotations: dict[str, str] | None = None) -> int:
        return await self._write(lambda c: self.objects.delete_run(c, run, annotations))

    async def watch(self, resource_version: str, selector: Selector = EVERYTHING) -> AsyncIterator[WatchEvent]:
        """From "" or "0": begins with what there is, each as ADDED."""
        try:
            since = int(resource_version or 0)
        except ValueError:
            raise Expired(f"{resource_version!r} is no resource version of this store: list again") from None
        try:
            async with contextlib.aclosing(self._watches.watch(since, selector)) as events:
                async for event in events:
                    yield event
        except DatabaseUnavailable as error:
            raise Unavailable(str(error)) from error

    async def _write(self, job: Callable[[Connection], T]) -> T:
        try:
            return await self._db.write(job)
        except DatabaseUnavailable as error:
            raise Unavailable(str(error)) from error

    async def _read(self, job: Callable[[Connection], T]) -> T:
        try:
            return await self._db.read(job)
        except DatabaseUnavailable as error:
            raise Unavailable(str(error)) from error
