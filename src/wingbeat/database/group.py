"""Group commit: one thread writes, takes every job that waits, and commits them together.

Order of things, which everything above relies on:

1. A group begins by taking the store-wide write lock and reading the revision counter. Revisions are therefore given
   in commit order, also with other processes on the same database.
2. Each job runs in a savepoint. A job that raises undoes only itself; its notifications are dropped.
3. One commit. Only then are the futures resolved, on the event loop, and the notifications dispatched, in order.
4. Where the counter moved between two groups, someone else has written: topic `RESYNC` is dispatched first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from wingbeat.crashpoints import crash_point
from wingbeat.database.protocol import Connection, DatabaseUnavailable

T = TypeVar("T")
log = logging.getLogger(__name__)

RESYNC = "resync"
"""Topic: other processes have committed, and what they notified of may not have been seen. The key is "" ."""

GROUP_LIMIT = 256
"""Jobs of one commit. Bounds how long the first of a group waits for the others."""


class Session(ABC):
    """One connection, used by one thread at a time. Also the `Connection` that jobs get."""

    def __init__(self) -> None:
        self.revision = 0
        self.notifications: list[tuple[str, Any]] = []

    def next_revision(self) -> int:
        self.revision += 1
        return self.revision

    def notify(self, topic: str, key: Any) -> None:
        self.notifications.append((topic, key))

    @abstractmethod
    def query(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def execute(self, sql: str, params: Sequence[Any] = ()) -> int: ...

    @abstractmethod
    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None: ...

    @abstractmethod
    def begin_write(self) -> None:
        """Start a transaction that holds the write lock, and set `revision` to the counter's value."""

    @abstractmethod
    def begin_read(self) -> None: ...

    @abstractmethod
    def savepoint(self) -> None: ...

    @abstractmethod
    def release(self) -> None: ...

    @abstractmethod
    def rollback_to(self) -> None: ...

    @abstractmethod
    def commit(self) -> None:
        """Make the transaction durable; a writing one saves the counter first."""

    @abstractmethod
    def rollback(self) -> None: ...

    @property
    @abstractmethod
    def in_transaction(self) -> bool:
        """False once the database has given the transaction up by itself (disk full, connection lost)."""

    @abstractmethod
    def explain(self, error: BaseException) -> Exception | None:
        """`error` in words for people if it is the database's own and no fault of the job's SQL; else None."""

    @abstractmethod
    def close(self) -> None: ...


class _Job:
    __slots__ = ("error", "function", "future", "result")

    def __init__(self, function: Callable[[Connection], Any], future: asyncio.Future[Any]) -> None:
        self.function = function
        self.future = future
        self.result: Any = None
        self.error: BaseException | None = None


class GroupDatabase:
    """The `Database` protocol over sessions. Belongs to the event loop that opened it."""

    def __init__(
        self,
        connect: Callable[[], Session],
        *,
        readers: int = 2,
        poll_seconds: float = 1.0,
        group_limit: int = GROUP_LIMIT,
    ) -> None:
        self._connect = connect
        self._limit = group_limit
        self._poll_seconds = poll_seconds
        self._loop = asyncio.get_running_loop()
        self._subscribers: dict[str, list[Callable[[Any], None]]] = {}
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closed = False
        self._local = threading.local()
        self._read_sessions: list[Session] = []
        self._reader_pool = ThreadPoolExecutor(readers, thread_name_prefix="wingbeat-read")
        self._session = connect()
        self._committed = self._read_revision(self._session)
        self._dispatched = self._committed
        self._thread = threading.Thread(target=self._run, name="wingbeat-write", daemon=True)
        self._thread.start()

    # --- for everyone

    @property
    def revision(self) -> int:
        return self._dispatched

    async def write(self, job: Callable[[Connection], T]) -> T:
        if self._closed:
            raise DatabaseUnavailable("the database is closed: the server is stopping")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Job(job, future))
        return await future

    async def read(self, job: Callable[[Connection], T]) -> T:
        if self._closed:
            raise DatabaseUnavailable("the database is closed: the server is stopping")
        return await self._loop.run_in_executor(self._reader_pool, self._read, job)

    def subscribe(self, topic: str, callback: Callable[[Any], None]) -> Callable[[], None]:
        # Lists are replaced, never changed, so that a callback may subscribe or end a subscription.
        self._subscribers[topic] = [*self._subscribers.get(topic, ()), callback]

        def end() -> None:
            self._subscribers[topic] = [c for c in self._subscribers.get(topic, ()) if c is not callback]

        return end

    async def close(self) -> None:
        """Finish what was asked for, then close. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._reader_pool.shutdown)
        for session in (*self._read_sessions, self._session):
            with contextlib.suppress(Exception):
                session.close()
        # What the last group scheduled on the loop runs before the caller goes on.
        await asyncio.sleep(0)

    def dispatch(self, notifications: Sequence[tuple[str, Any]]) -> None:
        """Call the subscribers; on the event loop only. One that raises does not harm the others."""
        for topic, key in notifications:
            for callback in self._subscribers.get(topic, ()):
                try:
                    callback(key)
                except Exception:
                    log.exception("a subscriber of %r failed on %r", topic, key)

    # --- readers' threads

    def _read(self, job: Callable[[Connection], T]) -> T:
        session: Session | None = getattr(self._local, "session", None)
        try:
            if session is None:
                session = self._local.session = self._connect()
                self._read_sessions.append(session)
            session.begin_read()
            try:
                return job(session)
            finally:
                session.rollback()
        except Exception as error:
            explained = session.explain(error) if session is not None else None
            if explained is not None:
                raise explained from error
            raise

    # --- the writer's thread

    @staticmethod
    def _read_revision(session: Session) -> int:
        return int(session.query("SELECT value FROM revision WHERE id = 1")[0][0])

    def _run(self) -> None:
        while True:
            try:
                job = self._queue.get(timeout=self._poll_seconds)
            except queue.Empty:
                self._look_elsewhere()
                continue
            if job is None or self._write_group(job):
                break
        # Closed, but something may have been queued in between.
        while True:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return
            if job is not None:
                job.error = DatabaseUnavailable("the database is closed: the server is stopping")
                self._post([job], [], self._committed)

    def _look_elsewhere(self) -> None:
        try:
            revision = self._read_revision(self._session)
        except Exception as error:
            log.debug("could not look for changes of other processes: %s", error)
            with contextlib.suppress(Exception):
                self._session.rollback()
            return
        if revision != self._committed:
            self._committed = revision
            self._post([], [(RESYNC, "")], revision)

    def _write_group(self, first: _Job) -> bool:
        """Run a group that starts with `first`; True if the writer shall stop after it."""
        session = self._session
        session.notifications = []
        jobs: list[_Job] = []
        stop = False
        failure: Exception | None = None
        job: _Job | None = first
        base = self._committed
        try:
            session.begin_write()
            base = session.revision
        except Exception as error:
            failure = self._failure(error)
            jobs.append(first)
            job = None
        while job is not None:
            jobs.append(job)
            failure = self._run_job(session, job)
            if failure is not None or len(jobs) >= self._limit:
                break
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            stop = job is None
        if failure is None:
            try:
                crash_point("commit.before")
                session.commit()
                crash_point("commit.after")
            except Exception as error:
                failure = self._failure(error)
        if failure is not None:
            with contextlib.suppress(Exception):
                session.rollback()
            for each in jobs:
                if each.error is None:
                    each.error = failure
            self._post(jobs, [], self._committed)
            return stop
        notifications = session.notifications
        if base != self._committed:
            notifications = [(RESYNC, ""), *notifications]
        self._committed = session.revision
        self._post(jobs, notifications, session.revision)
        return stop

    def _run_job(self, session: Session, job: _Job) -> Exception | None:
        """Run one job in its savepoint; what makes the whole group fail is returned."""
        if job.future.cancelled():
            return None
        mark = len(session.notifications)
        try:
            session.savepoint()
            job.result = job.function(session)
            session.release()
        except BaseException as error:
            job.error = session.explain(error) or error
            try:
                if not session.in_transaction:
                    return self._failure(error)
                del session.notifications[mark:]
                session.rollback_to()
            except Exception as second:
                return self._failure(second)
        return None

    def _failure(self, error: BaseException) -> Exception:
        explained = self._session.explain(error)
        if explained is None:
            explained = DatabaseUnavailable(f"the database refused the commit: {error}")
        explained.__cause__ = error
        return explained

    def _post(self, jobs: Sequence[_Job], notifications: Sequence[tuple[str, Any]], revision: int) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._finish, jobs, notifications, revision)

    def _finish(self, jobs: Sequence[_Job], notifications: Sequence[tuple[str, Any]], revision: int) -> None:
        for job in jobs:
            if job.future.done():
                continue
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.result)
        self._dispatched = revision
        self.dispatch(notifications)
