"""Opening a database: choose the kind, migrate, start its threads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

from wingbeat.database.group import GroupDatabase
from wingbeat.database.migrate import FOLDER, load, migrate
from wingbeat.database.protocol import DatabaseUnavailable
from wingbeat.database.sqlite import SqliteSession, back_up


async def open_database(
    location: str | Path, *, migrations: Path = FOLDER, readers: int = 2, poll_seconds: float = 1.0
) -> GroupDatabase:
    """The database at `location`: `postgresql://...`, `sqlite:///path`, or the path of an SQLite file (made if it is
    not there, with its folder). Belongs to the running event loop. Raises DatabaseUnavailable, NewerDatabase,
    CorruptDatabase; nothing is changed then."""
    text = str(location)
    if text.startswith(("postgresql://", "postgres://")):
        from wingbeat.database.postgresql import open_postgresql

        return await open_postgresql(text, migrations=migrations, readers=readers)
    path = Path(text.removeprefix("sqlite://") if text.startswith("sqlite:///") else text)
    await asyncio.to_thread(_prepare_sqlite, path, migrations)
    return GroupDatabase(lambda: SqliteSession(path), readers=readers, poll_seconds=poll_seconds)


def _prepare_sqlite(path: Path, migrations: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnavailable(f"the folder {path.parent} of the database cannot be made: {error}") from error
    session = SqliteSession(path)

    @contextlib.contextmanager
    def transaction() -> Iterator[None]:
        session.execute("BEGIN IMMEDIATE")
        try:
            yield
            session.execute("COMMIT")
        except BaseException:
            session.rollback()
            raise

    def before(number: int) -> None:
        back_up(session, path.with_name(f"{path.name}.before-{number:04d}"))

    try:
        migrate(session, load(migrations), where=str(path), before=before, transaction=transaction)
    except Exception as error:
        explained = session.explain(error)
        if explained is not None:
            raise explained from error
        raise
    finally:
        session.close()
