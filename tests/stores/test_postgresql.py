"""PostgreSQL's own side: lost connections, notifications that travel, two servers that start at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from wingbeat.database import Connection, DatabaseUnavailable, open_database
from wingbeat.database.postgresql import PAYLOAD_LIMIT, PostgresqlDatabase, _payloads, translate_query, translate_schema
from wingbeat.resources import ActionId, RunId

INSERT = "INSERT INTO blobs (digest, data) VALUES (?, ?)"


@pytest.fixture
async def open_two(postgresql_url: str) -> AsyncIterator[list[PostgresqlDatabase]]:
    url = postgresql_url
    async with AsyncExitStack() as stack:
        dbs: list[PostgresqlDatabase] = []
        for db in await asyncio.gather(open_database(url), open_database(url)):
            assert isinstance(db, PostgresqlDatabase)
            stack.push_async_callback(db.close)
            dbs.append(db)
        async with asyncio.timeout(10):
            for db in dbs:
                await db.listening.wait()
        yield dbs


@pytest.mark.postgresql
async def test_two_servers_may_start_on_an_empty_database_at_once(open_two: list[PostgresqlDatabase]) -> None:
    counts = [await db.read(lambda c: c.query("SELECT COUNT(*) FROM schema_migrations")) for db in open_two]
    assert counts[0] == counts[1] != [(0,)]


@pytest.mark.postgresql
async def test_notifications_reach_other_processes_with_their_keys(open_two: list[PostgresqlDatabase]) -> None:
    one, two = open_two
    keys: list[Any] = [
        ActionId("o", "p", "d", 'r"1', "a'0"),
        RunId("o", "p", "d", "r"),
        "text ü",
        7,
        None,
        b"\x00\xff",
        ("a", RunId("o", "p", "d", "r")),
    ]
    here: list[Any] = []
    there: list[Any] = []
    done = asyncio.Event()
    one.subscribe("t", here.append)
    two.subscribe("t", lambda key: (there.append(key), done.set() if len(there) == len(keys) else None))

    def job(c: Connection) -> None:
        for key in keys:
            c.notify("t", key)
        c.notify("t", object)  # stays

    await one.write(job)
    async with asyncio.timeout(10):
        await done.wait()
    assert there == keys
    assert here == [*keys, object]


@pytest.mark.postgresql
async def test_a_thousand_notifications_of_one_commit_all_arrive(open_two: list[PostgresqlDatabase]) -> None:
    one, two = open_two
    seen: set[ActionId] = set()
    done = asyncio.Event()
    wanted = {ActionId("org", "project", "domain", "run", f"action{n}") for n in range(1000)}

    def see(id: ActionId) -> None:
        seen.add(id)
        if seen == wanted:
            done.set()

    two.subscribe("records", see)

    def job(c: Connection) -> None:
        for id in wanted:
            c.notify("records", id)

    await one.write(job)
    async with asyncio.timeout(10):
        await done.wait()


@pytest.mark.postgresql
async def test_after_a_lost_connection_reading_writing_and_listening_go_on(
    open_two: list[PostgresqlDatabase], postgresql_server: str
) -> None:
    import psycopg

    one, two = open_two
    await one.write(lambda c: c.execute(INSERT, ("before", b"")))
    await one.read(lambda c: c.query("SELECT 1"))
    with psycopg.connect(postgresql_server.format(name="postgres"), autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'test%'")
    await one.write(lambda c: c.execute(INSERT, ("after", b"")))
    rows = await one.read(lambda c: c.query("SELECT digest FROM blobs ORDER BY digest"))
    assert rows == [("after",), ("before",)]

    heard = asyncio.Event()
    two.subscribe("t", lambda key: heard.set())
    async with asyncio.timeout(20):
        while not heard.is_set():
            await two.listening.wait()
            await one.write(lambda c: c.notify("t", "x"))
            await asyncio.sleep(0.02)


@pytest.mark.postgresql
async def test_a_connection_lost_amid_a_group_fails_it_and_not_the_next(open_two: list[PostgresqlDatabase]) -> None:
    one, _ = open_two

    def suicide(c: Connection) -> None:
        c.execute(INSERT, ("lost", b""))
        c.query("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(DatabaseUnavailable, match="PostgreSQL"):
        await one.write(suicide)
    await one.write(lambda c: c.execute(INSERT, ("kept", b"")))
    assert await one.read(lambda c: c.query("SELECT digest FROM blobs")) == [("kept",)]


async def test_a_server_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailable, match="cannot be reached") as error:
        await open_database(f"postgresql://me:secret@/db?host={tmp_path}")
    assert "secret" not in str(error.value)


def test_the_shared_dialect_is_translated() -> None:
    assert (
        translate_query("SELECT instr(a, ?) FROM b WHERE c LIKE '%'") == "SELECT strpos(a, %s) FROM b WHERE c LIKE '%%'"
    )
    assert (
        translate_schema("CREATE TABLE a (b BLOB, c TEXT NOT NULL) WITHOUT ROWID")
        == 'CREATE TABLE a (b BYTEA, c TEXT COLLATE "C" NOT NULL)'
    )


def test_payloads_stay_below_the_servers_limit() -> None:
    notifications: list[tuple[str, Any]] = [("t", "ü" * 300 + str(n)) for n in range(100)]
    notifications.append(("t", "x" * 10_000))
    payloads = _payloads("origin", notifications)
    assert len(payloads) > 1
    assert max(len(p.encode()) for p in payloads) < PAYLOAD_LIMIT + 100
    assert len(_payloads("origin", [])) == 1
