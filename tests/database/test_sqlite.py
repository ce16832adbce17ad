"""SQLite's own side: durability, damage, full disks, upgrades."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sqlite3
import sys
from pathlib import Path

import pytest

from wingbeat.database import CorruptDatabase, DatabaseUnavailable, NewerDatabase, open_database
from wingbeat.database.migrate import FOLDER, load

INSERT = "INSERT INTO blobs (digest, data) VALUES (?, ?)"

WRITER = """
import asyncio, sys
from wingbeat.database import open_database

async def main():
    db = await open_database(sys.argv[1])
    async def one(n):
        await db.write(lambda c: c.execute("INSERT INTO blobs (digest, data) VALUES (?, ?)", (str(n), b"x" * 500)))
        print(n, flush=True)
    for start in range(0, 1_000_000, 20):
        await asyncio.gather(*(one(n) for n in range(start, start + 20)))

asyncio.run(main())
"""


async def test_every_acknowledged_write_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "db"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    acknowledged = {(await child.stdout.readline()).decode().strip() for _ in range(300)}
    child.send_signal(signal.SIGKILL)
    rest = (await child.stdout.read()).decode().split("\n")[:-1]
    acknowledged |= set(rest)
    await child.wait()
    db = await open_database(path)
    found = {row[0] for row in await db.read(lambda c: c.query("SELECT digest FROM blobs"))}
    await db.close()
    assert len(acknowledged) >= 300
    assert acknowledged <= found


async def test_a_full_disk_fails_the_group_in_words_and_writing_goes_on_when_there_is_space(tmp_path: Path) -> None:
    db = await open_database(tmp_path / "db")
    await db.write(lambda c: c.execute(INSERT, ("before", b"")))
    pages = (await db.write(lambda c: c.query("PRAGMA page_count")))[0][0]
    # SQLite itself refuses to grow the file, with the error of a full disk.
    await db.write(lambda c: c.query(f"PRAGMA max_page_count = {pages + 2}"))
    results = await asyncio.gather(
        db.write(lambda c: c.execute(INSERT, ("small", b""))),
        db.write(lambda c: c.execute(INSERT, ("large", b"x" * 1_000_000))),
        return_exceptions=True,
    )
    assert isinstance(results[1], DatabaseUnavailable)
    assert "disk is full" in str(results[1])
    await db.write(lambda c: c.query("PRAGMA max_page_count = 1000000"))
    await db.write(lambda c: c.execute(INSERT, ("after", b"")))
    names = {row[0] for row in await db.read(lambda c: c.query("SELECT digest FROM blobs"))}
    assert names - {"small"} == {"before", "after"}
    assert ("small" in names) == (not isinstance(results[0], Exception))
    await db.close()


async def test_a_file_that_is_no_database_is_said_to_be_damaged_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "db"
    path.write_bytes(b"this is a letter, not a database. " * 200)
    before = path.read_bytes()
    with pytest.raises(CorruptDatabase, match=r"db is damaged or is not a database .*before-"):
        await open_database(path)
    assert path.read_bytes() == before


async def test_a_damaged_page_is_reported_where_it_is_met(tmp_path: Path) -> None:
    path = tmp_path / "db"
    db = await open_database(path)
    await db.write(lambda c: c.executemany(INSERT, [(str(n), b"x" * 3000) for n in range(200)]))
    await db.close()
    content = bytearray(path.read_bytes())
    half = len(content) // 2 // 4096 * 4096
    content[half:] = b"\xff" * (len(content) - half)
    path.write_bytes(content)
    with pytest.raises(CorruptDatabase, match="damaged"):
        db = await open_database(path)
        try:
            await db.read(lambda c: c.query("SELECT digest, length(data), data FROM blobs"))
        finally:
            await db.close()


async def test_a_newer_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "db"
    await (await open_database(path)).close()
    with sqlite3.connect(path) as raw:
        raw.execute("INSERT INTO schema_migrations VALUES (9999, 'future', 0)")
    raw.close()
    with pytest.raises(NewerDatabase, match=r"newer version of Wingbeat .*9999.*Upgrade Wingbeat"):
        await open_database(path)
    assert not list(tmp_path.glob("*.before-*"))


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseUnavailable, match="file"):
        await open_database(tmp_path / "file" / "db")


async def test_an_upgrade_copies_the_database_first_and_keeps_its_rows(tmp_path: Path) -> None:
    older = tmp_path / "migrations"
    older.mkdir()
    shutil.copy(FOLDER / "0001_actions.sql", older)
    path = tmp_path / "db"
    db = await open_database(path, migrations=older)
    await db.write(lambda c: c.execute(INSERT, ("kept", b"x")))
    await db.close()
    (older / "0002_more.sql").write_text("-- More.\nCREATE TABLE more (id INTEGER PRIMARY KEY);\n")

    db = await open_database(path, migrations=older)
    assert await db.read(lambda c: c.query("SELECT digest FROM blobs")) == [("kept",)]
    assert await db.read(lambda c: c.query("SELECT COUNT(*) FROM more")) == [(0,)]
    await db.close()
    with sqlite3.connect(tmp_path / "db.before-0002") as copy:
        assert copy.execute("SELECT digest FROM blobs").fetchall() == [("kept",)]
        assert copy.execute("SELECT name FROM sqlite_master WHERE name = 'more'").fetchall() == []
    copy.close()


async def test_a_migration_that_fails_leaves_nothing_of_itself(tmp_path: Path) -> None:
    folder = tmp_path / "migrations"
    folder.mkdir()
    shutil.copy(FOLDER / "0001_actions.sql", folder)
    bad = folder / "0002_bad.sql"
    bad.write_text("CREATE TABLE half (id INTEGER PRIMARY KEY); INSERT INTO nowhere VALUES (1);")
    with pytest.raises(sqlite3.OperationalError):
        await open_database(tmp_path / "db", migrations=folder)
    bad.write_text("CREATE TABLE half (id INTEGER PRIMARY KEY);")
    db = await open_database(tmp_path / "db", migrations=folder)
    assert await db.read(lambda c: c.query("SELECT number FROM schema_migrations ORDER BY number")) == [(1,), (2,)]
    await db.close()


def test_migrations_have_numbers_of_their_own() -> None:
    migrations = load()
    assert migrations[0].number == 1
    assert len({m.number for m in migrations}) == len(migrations)
    assert len(list(FOLDER.glob("*.sql"))) == len(migrations)


def test_two_migrations_of_one_number_are_refused(tmp_path: Path) -> None:
    (tmp_path / "0001_a.sql").write_text("")
    (tmp_path / "0001_b.sql").write_text("")
    with pytest.raises(ValueError, match="number 1"):
        load(tmp_path)
