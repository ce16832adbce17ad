"""SQLite: WAL, fully synchronous, one file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wingbeat.database.errors import CorruptDatabase
from wingbeat.database.group import Session
from wingbeat.database.protocol import DatabaseUnavailable

BUSY_SECONDS = 30.0
"""How long a writer waits for the write lock of another process."""

_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_AWAY = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space, then try again",
    sqlite3.SQLITE_IOERR: "the disk failed to read or write; look at the system's log",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; look at its folder and permissions",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only; make both writable",
    sqlite3.SQLITE_PERM: "the file may not be accessed; look at its permissions",
    sqlite3.SQLITE_BUSY: "another process holds it for too long; is a second server running on this folder?",
    sqlite3.SQLITE_LOCKED: "another process holds it for too long; is a second server running on this folder?",
    sqlite3.SQLITE_NOMEM: "there is not enough memory",
    sqlite3.SQLITE_PROTOCOL: "its locks do not work; is it on a network file system?",
    sqlite3.SQLITE_NOLFS: "the file system cannot hold large files",
}


class SqliteSession(Session):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._saved = 0
        self._writing = False
        try:
            self._db = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=512
            )
            for pragma in (
                "journal_mode = WAL",
                "synchronous = FULL",
                "foreign_keys = ON",
                "cache_size = -16384",
                "temp_store = MEMORY",
                "journal_size_limit = 67108864",
            ):
                self._db.execute("PRAGMA " + pragma).fetchall()
        except sqlite3.Error as error:
            raise self.explain(error) or error from error
        self._cursor = self._db.cursor()

    @property
    def raw(self) -> sqlite3.Connection:
        return self._db

    def query(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._cursor.execute(sql, params).fetchall()

    def execute(self, sql: str, params: Sequence[Any] = ()) -> int:
        return self._cursor.execute(sql, params).rowcount

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._cursor.executemany(sql, rows)

    def begin_write(self) -> None:
        self._cursor.execute("BEGIN IMMEDIATE")
        self._writing = True
        self._saved = self.revision = self.query("SELECT value FROM revision WHERE id = 1")[0][0]

    def begin_read(self) -> None:
        self._cursor.execute("BEGIN")

    def savepoint(self) -> None:
        self._cursor.execute("SAVEPOINT job")

    def release(self) -> None:
        self._cursor.execute("RELEASE job")

    def rollback_to(self) -> None:
        self._cursor.execute("ROLLBACK TO job")
        self._cursor.execute("RELEASE job")

    def commit(self) -> None:
        if self._writing and self.revision != self._saved:
            self._cursor.execute("UPDATE revision SET value = ? WHERE id = 1", (self.revision,))
        self._cursor.execute("COMMIT")
        self._writing = False

    def rollback(self) -> None:
        self._writing = False
        if self._db.in_transaction:
            self._cursor.execute("ROLLBACK")

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def explain(self, error: BaseException) -> Exception | None:
        if not isinstance(error, sqlite3.Error):
            return None
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:
            return None
        if code & 0xFF in _CORRUPT:
            return CorruptDatabase(
                f"the database {self._path} is damaged or is not a database ({error}). Stop the server, move the file "
                f"away and start again; copies made before upgrades lie beside it as {self._path.name}.before-*"
            )
        advice = _AWAY.get(code & 0xFF)
        if advice is None:
            return None
        return DatabaseUnavailable(f"the database {self._path} cannot be used: {advice} ({error})")

    def close(self) -> None:
        self._db.close()


def back_up(session: SqliteSession, target: Path) -> None:
    """A consistent copy of the whole database at `target`, complete or not there at all."""
    partial = target.with_name(target.name + ".part")
    partial.unlink(missing_ok=True)
    copy = sqlite3.connect(partial)
    try:
        session.raw.backup(copy)
    finally:
        copy.close()
    partial.replace(target)
