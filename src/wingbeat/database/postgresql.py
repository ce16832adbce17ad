"""PostgreSQL, through psycopg 3: for several servers on one database.

Differences from SQLite, all of them here: parameters and types are translated; the row of the revision counter is the
write lock, so commits come in the order of their revisions; what is notified goes out by NOTIFY in the same
transaction, and a thread listens for what other processes committed. Keys that travel are text, numbers, bytes, None,
`ActionId`, `RunId` and tuples of them; other keys (objects of this process) stay here, and the others get RESYNC.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from wingbeat.database.group import RESYNC, GroupDatabase, Session
from wingbeat.database.migrate import load, migrate
from wingbeat.database.protocol import DatabaseUnavailable
from wingbeat.resources import ActionId, RunId

log = logging.getLogger(__name__)

CHANNEL = "wingbeat"
PAYLOAD_LIMIT = 7500
"""Bytes of one NOTIFY; PostgreSQL allows just under 8,000."""
_MIGRATION_LOCK = 0x77696E67
_WAKE = "wake"
"""Topic that nobody subscribes to: makes the listening thread look up."""
CONNECT_SECONDS = 10


# --- dialect

_INSTR = re.compile(r"\binstr\(", re.IGNORECASE)


@functools.lru_cache(maxsize=2048)
def translate_query(sql: str) -> str:
    return _INSTR.sub("strpos(", sql.replace("%", "%%").replace("?", "%s"))


def translate_schema(sql: str) -> str:
    """Bytes are BYTEA; text compares by its bytes, as in SQLite, whatever the database's locale."""
    sql = re.sub(r"\bBLOB\b", "BYTEA", sql)
    sql = re.sub(r"\bTEXT\b", 'TEXT COLLATE "C"', sql)
    return re.sub(r"\)\s*WITHOUT ROWID\b", ")", sql)


# --- keys on the wire


def _encode_key(key: Any) -> Any:
    """JSON for `key`; raises TypeError for what does not travel."""
    if key is None or isinstance(key, str | int):
        return key
    if isinstance(key, ActionId):
        return {"a": [key.org, key.project, key.domain, key.run, key.action]}
    if isinstance(key, RunId):
        return {"r": [key.org, key.project, key.domain, key.run]}
    if isinstance(key, tuple):
        return {"t": [_encode_key(part) for part in key]}
    if isinstance(key, bytes):
        return {"b": key.hex()}
    raise TypeError(f"a key of type {type(key).__name__} stays in its process")


def _decode_key(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "a":
        return ActionId(*content)
    if kind == "r":
        return RunId(*content)
    if kind == "t":
        return tuple(_decode_key(part) for part in content)
    return bytes.fromhex(content)


def _payloads(origin: str, notifications: Sequence[tuple[str, Any]]) -> list[str]:
    """The texts to NOTIFY. Always at least one: everyone learns that something was committed."""
    items: dict[str, None] = {}
    for topic, key in notifications:
        with suppress(TypeError):
            items[msgspec.json.encode([topic, _encode_key(key)]).decode()] = None
    result: list[str] = []
    part: list[str] = []
    size = 0
    for item in items:
        if len(item.encode()) > PAYLOAD_LIMIT:
            continue  # RESYNC stands for it
        if part and size + len(item.encode()) > PAYLOAD_LIMIT:
            result.append(f'["{origin}",[{",".join(part)}]]')
            part, size = [], 0
        part.append(item)
        size += len(item.encode()) + 1
    result.append(f'["{origin}",[{",".join(part)}]]')
    return result


# --- sessions


class PostgresqlSession(Session):
    def __init__(self, url: str, origin: str) -> None:
        super().__init__()
        self._url = url
        self._origin = origin
        self._saved = 0
        self._writing = False
        self._connect()

    def _connect(self) -> None:
        try:
            self._db = psycopg.connect(
                self._url, autocommit=True, connect_timeout=CONNECT_SECONDS, application_name="wingbeat"
            )
        except psycopg.Error as error:
            raise self.explain(error) or error from error
        self._cursor = self._db.cursor()

    def query(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._cursor.execute(translate_query(sql), params).fetchall()
        return rows

    def execute(self, sql: str, params: Sequence[Any] = ()) -> int:
        return int(self._cursor.execute(translate_query(sql), params).rowcount)

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._cursor.executemany(translate_query(sql), rows)

    def begin_write(self) -> None:
        self._begin("BEGIN")
        self._writing = True
        # The lock on this row is held until the commit: revisions come in commit order.
        self._saved = self.revision = self.query("SELECT value FROM revision WHERE id = 1 FOR UPDATE")[0][0]

    def begin_read(self) -> None:
        self._begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def _begin(self, statement: str) -> None:
        try:
            if not self._db.closed:
                self._cursor.execute(statement)
                return
        except psycopg.OperationalError:
            # The server was restarted, perhaps. Nothing was begun, so a new connection is as good.
            self.close()
        self._connect()
        self._cursor.execute(statement)

    def savepoint(self) -> None:
        self._cursor.execute("SAVEPOINT job")

    def release(self) -> None:
        self._cursor.execute("RELEASE SAVEPOINT job")

    def rollback_to(self) -> None:
        self._cursor.execute("ROLLBACK TO SAVEPOINT job")
        self._cursor.execute("RELEASE SAVEPOINT job")

    def commit(self) -> None:
        if self._writing:
            if self.revision != self._saved:
                self.execute("UPDATE revision SET value = ? WHERE id = 1", (self.revision,))
            if self.notifications or self.revision != self._saved:
                for payload in _payloads(self._origin, self.notifications):
                    self.execute("SELECT pg_notify(?, ?)", (CHANNEL, payload))
        self._cursor.execute("COMMIT")
        self._writing = False

    def rollback(self) -> None:
        self._writing = False
        if self.in_transaction:
            self._cursor.execute("ROLLBACK")

    @property
    def in_transaction(self) -> bool:
        return not self._db.closed and self._db.info.transaction_status in (
            psycopg.pq.TransactionStatus.INTRANS,
            psycopg.pq.TransactionStatus.INERROR,
        )

    def explain(self, error: BaseException) -> Exception | None:
        if not isinstance(error, psycopg.Error):
            return None
        state = error.sqlstate or ""
        text = str(error).strip()
        if state.startswith("53"):
            return DatabaseUnavailable(f"PostgreSQL is out of disk, memory or connections: {text}")
        if state.startswith(("08", "57", "58")) or (isinstance(error, psycopg.OperationalError) and not state):
            return DatabaseUnavailable(
                f"PostgreSQL cannot be reached, or ended the connection: {text}. Check that it runs and that the "
                "database URL is right"
            )
        if state.startswith(("28", "3D")):
            return DatabaseUnavailable(f"PostgreSQL refused the connection: {text}. Check user, password and database")
        if state.startswith("XX"):
            return DatabaseUnavailable(f"PostgreSQL reports damage or a fault of its own: {text}")
        return None

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._db.close()


# --- the database


class PostgresqlDatabase(GroupDatabase):
    def __init__(self, url: str, *, readers: int = 2, poll_seconds: float = 5.0) -> None:
        self._url = url
        self._origin = uuid.uuid4().hex
        self._stopping = threading.Event()
        self.listening = asyncio.Event()
        """Set while notifications of other processes come by LISTEN; else there is the poll alone."""
        super().__init__(lambda: PostgresqlSession(url, self._origin), readers=readers, poll_seconds=poll_seconds)
        self._listener = threading.Thread(target=self._listen, name="wingbeat-listen", daemon=True)
        self._listener.start()

    async def close(self) -> None:
        self._stopping.set()
        with suppress(DatabaseUnavailable):
            await self.write(lambda c: c.notify(_WAKE, ""))
        await super().close()
        await asyncio.to_thread(self._listener.join)

    def _listen(self) -> None:
        wait = 0.1
        while not self._stopping.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=CONNECT_SECONDS) as db:
                    db.execute(f"LISTEN {CHANNEL}")
                    wait = 0.1
                    # What was committed before LISTEN took effect was not heard.
                    self._call(self._heard, [(RESYNC, "")])
                    self._call(self.listening.set)
                    while not self._stopping.is_set():
                        for notice in db.notifies(timeout=0.5, stop_after=100):
                            self._take(notice.payload)
                            if self._stopping.is_set():
                                break
            except psycopg.Error as error:
                log.warning("not listening to PostgreSQL at the moment: %s", error)
            self._call(self.listening.clear)
            if self._stopping.wait(wait):
                return
            wait = min(wait * 2, 5.0)

    def _take(self, payload: str) -> None:
        origin, items = msgspec.json.decode(payload)
        if origin != self._origin:
            self._call(self._heard, [(RESYNC, ""), *((topic, _decode_key(key)) for topic, key in items)])

    def _heard(self, notifications: Sequence[tuple[str, Any]]) -> None:
        self.dispatch(notifications)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *arguments)


async def open_postgresql(url: str, *, migrations: Path, readers: int = 2) -> PostgresqlDatabase:
    """Migrate, one process at a time, and open. Back up PostgreSQL by its own means before upgrades."""
    await asyncio.to_thread(_prepare, url, migrations)
    return PostgresqlDatabase(url, readers=readers)


def _prepare(url: str, folder: Path) -> None:
    session = PostgresqlSession(url, "")

    @contextmanager
    def transaction() -> Iterator[None]:
        session.execute("BEGIN")
        try:
            session.execute(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
            yield
            session.execute("COMMIT")
        except BaseException:
            session.rollback()
            raise

    try:
        migrate(
            session, load(folder), where=_without_password(url), translate=translate_schema, transaction=transaction
        )
    except psycopg.Error as error:
        raise session.explain(error) or error from error
    finally:
        session.close()


def _without_password(url: str) -> str:
    return re.sub(r"(//[^:/@]*):[^@]*@", r"\1@", url)
