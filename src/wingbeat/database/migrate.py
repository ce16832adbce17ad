"""Migrations: numbered SQL files, forward only, each applied once, in one transaction with the note that it was.

A file is `NNNN_name.sql` in `migrations/`, in the dialect that SQLite and PostgreSQL share. Statements end with a
semicolon; comments are whole lines that start with `--`; no semicolon inside a literal. A number that this version
does not know means a newer Wingbeat wrote the database.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from wingbeat.database.errors import NewerDatabase
from wingbeat.database.protocol import Connection

FOLDER = Path(__file__).parent / "migrations"
_NAME = re.compile(r"(\d{4})_(\w+)\.sql")

_LEDGER = (
    "CREATE TABLE IF NOT EXISTS schema_migrations "
    "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)"
)


class Migration(msgspec.Struct, frozen=True):
    number: int
    name: str
    statements: tuple[str, ...]


def load(folder: Path = FOLDER) -> list[Migration]:
    """All migrations of `folder`, by number. Raises ValueError for two of the same number."""
    found: dict[int, Migration] = {}
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        number = int(match[1])
        if number in found:
            raise ValueError(f"two migrations have the number {number}: {found[number].name} and {match[2]}")
        found[number] = Migration(number, match[2], split(path.read_text()))
    return [found[number] for number in sorted(found)]


def split(script: str) -> tuple[str, ...]:
    lines = (line for line in script.splitlines() if not line.lstrip().startswith("--"))
    return tuple(s for part in "\n".join(lines).split(";") if (s := part.strip()))


def migrate(
    c: Connection,
    migrations: list[Migration],
    *,
    where: str,
    before: Callable[[int], None] = lambda number: None,
    translate: Callable[[str], str] = lambda sql: sql,
    transaction: Callable[[], AbstractContextManager[object]],
) -> list[int]:
    """Bring the database to the newest version; returns the numbers applied. `before(number)` is called once before
    a database that already holds something is changed. Raises NewerDatabase."""
    with transaction():
        c.execute(translate(_LEDGER))
    done = {int(row[0]) for row in c.query("SELECT number FROM schema_migrations")}
    unknown = sorted(done - {m.number for m in migrations})
    if unknown:
        raise NewerDatabase(
            f"the database {where} was written by a newer version of Wingbeat (it has migration {unknown[-1]}, this "
            f"version knows up to {migrations[-1].number if migrations else 0}). Nothing was changed. Upgrade "
            "Wingbeat, or start with another data folder"
        )
    missing = [m for m in migrations if m.number not in done]
    if done and missing:
        before(missing[0].number)
    for migration in missing:
        with transaction():
            if c.query("SELECT 1 FROM schema_migrations WHERE number = ?", (migration.number,)):
                continue  # another process was faster
            for statement in migration.statements:
                c.execute(translate(statement))
            c.execute(
                "INSERT INTO schema_migrations (number, name, applied_at) VALUES (?, ?, ?)",
                (migration.number, migration.name, time.time_ns() // 1000),
            )
    return [m.number for m in missing]
