"""One writer, many jobs, one commit: what each job may rely on. Runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from wingbeat.database import RESYNC, Connection, Database
from wingbeat.database.group import GroupDatabase

INSERT = "INSERT INTO blobs (digest, data) VALUES (?, ?)"


def insert(name: str) -> Any:
    def job(c: Connection) -> str:
        c.execute(INSERT, (name, b"x"))
        c.notify("inserted", name)
        return name

    return job


async def names(db: Database) -> list[str]:
    return [row[0] for row in await db.read(lambda c: c.query("SELECT digest FROM blobs ORDER BY digest"))]


async def test_a_job_that_fails_undoes_only_itself(db: Database) -> None:
    def failing(c: Connection) -> None:
        c.execute(INSERT, ("failed", b""))
        c.notify("inserted", "failed")
        raise KeyError("mine")

    told: list[str] = []
    db.subscribe("inserted", told.append)
    results = await asyncio.gather(
        db.write(insert("a")), db.write(failing), db.write(insert("b")), return_exceptions=True
    )
    assert [results[0], results[2]] == ["a", "b"]
    assert isinstance(results[1], KeyError)
    assert await names(db) == ["a", "b"]
    assert told == ["a", "b"]


async def test_a_job_with_wrong_sql_fails_alone_and_the_next_ones_go_on(db: Database) -> None:
    results = await asyncio.gather(
        db.write(insert("a")),
        db.write(lambda c: c.execute("INSERT INTO nowhere VALUES (1)")),
        db.write(insert("a")),
        db.write(insert("b")),
        return_exceptions=True,
    )
    assert [isinstance(r, Exception) for r in results] == [False, True, True, False]
    assert await names(db) == ["a", "b"]


async def test_a_write_that_returned_is_seen_by_every_later_read(db: Database) -> None:
    for n in range(20):
        await db.write(insert(f"{n:02}"))
        assert f"{n:02}" in await names(db)


async def test_jobs_that_wait_together_share_a_commit_and_all_are_done(db: Database) -> None:
    release = threading.Event()
    first = asyncio.ensure_future(db.write(lambda c: release.wait(10)))
    rest = [asyncio.ensure_future(db.write(insert(f"{n:03}"))) for n in range(300)]
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(first, *rest)
    assert len(await names(db)) == 300


async def test_subscribers_are_told_after_the_commit_in_order_and_until_they_leave(db: Database) -> None:
    told: list[str] = []
    seen: list[bool] = []

    def see(name: str) -> None:
        told.append(name)
        seen.append(db.revision >= 0)

    def broken(name: str) -> None:
        raise RuntimeError("a subscriber's own fault")

    db.subscribe("inserted", broken)
    end = db.subscribe("inserted", see)
    await asyncio.gather(*(db.write(insert(f"{n}")) for n in range(5)))
    assert told == ["0", "1", "2", "3", "4"]
    end()
    await db.write(insert("9"))
    assert len(told) == 5


async def test_a_cancelled_caller_harms_nobody(db: Database) -> None:
    release = threading.Event()
    first = asyncio.ensure_future(db.write(lambda c: release.wait(10)))
    cancelled = asyncio.ensure_future(db.write(insert("cancelled")))
    kept = asyncio.ensure_future(db.write(insert("kept")))
    await asyncio.sleep(0)
    cancelled.cancel()
    release.set()
    await asyncio.gather(first, kept)
    assert "kept" in await names(db)


async def test_revisions_are_committed_in_their_order_whoever_writes(open_db: Any) -> None:
    """A reader never sees a revision appear behind one that it has seen, though two instances write at once."""
    dbs: list[GroupDatabase] = [await open_db(), await open_db()]

    async def write(db: Database, name: str) -> None:
        def job(c: Connection) -> None:
            c.execute(INSERT, (f"{c.next_revision():08}", name.encode()))

        for _ in range(15):
            await asyncio.gather(*(db.write(job) for _ in range(4)))

    async def read() -> None:
        seen: list[str] = []
        while len(seen) < 2 * 15 * 4:
            now = await names(dbs[1])
            assert now[: len(seen)] == seen
            seen = now
            await asyncio.sleep(0)

    async with asyncio.timeout(30):
        await asyncio.gather(write(dbs[0], "one"), write(dbs[1], "two"), read())
    assert len(set(await names(dbs[0]))) == 120


async def test_commits_of_another_instance_are_noticed(open_db: Any) -> None:
    one, two = await open_db(), await open_db()
    noticed = asyncio.Event()
    one.subscribe(RESYNC, lambda _: noticed.set())
    await asyncio.sleep(0)
    noticed.clear()
    await two.write(lambda c: c.next_revision())
    async with asyncio.timeout(10):
        await noticed.wait()


async def test_a_closed_database_says_so(db: Database) -> None:
    from wingbeat.database import DatabaseUnavailable

    await db.close()
    await db.close()
    with pytest.raises(DatabaseUnavailable, match="closed"):
        await db.write(insert("late"))
    with pytest.raises(DatabaseUnavailable, match="closed"):
        await db.read(lambda c: c.query("SELECT 1"))


async def test_what_was_asked_for_before_closing_is_still_done(open_db: Any) -> None:
    one = await open_db()
    writes = [asyncio.ensure_future(one.write(insert(f"{n:02}"))) for n in range(50)]
    await asyncio.sleep(0)
    await one.close()
    assert len(await asyncio.gather(*writes)) == 50
    assert len(await names(await open_db())) == 50
