"""Stores to test: SQLite files, and databases of a PostgreSQL server that the tests start for themselves."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from wingbeat.database import Database, open_database
from wingbeat.stores import SqlStore

OpenDatabase = Callable[[], Awaitable[Database]]
OpenStore = Callable[..., Awaitable[SqlStore]]


def _binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if not found:
        if os.environ.get("WINGBEAT_SKIP_POSTGRESQL"):
            pytest.skip("no PostgreSQL, and WINGBEAT_SKIP_POSTGRESQL is set")
        pytest.fail(
            "PostgreSQL's server is not installed (/usr/lib/postgresql/*/bin): apt-get install postgresql, or set "
            "WINGBEAT_SKIP_POSTGRESQL=1 to go without"
        )
    return found[-1].parent


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """A URL up to the name of the database. The server refuses to run as root, so root starts it as `postgres`."""
    binaries = _binaries()
    # Not under pytest's own folder, which other users may not enter.
    folder = Path(tempfile.mkdtemp(prefix="wingbeat-pg-"))
    as_user: dict[str, Any] = {}
    user = pwd.getpwuid(os.getuid()).pw_name
    if os.getuid() == 0:
        account = pwd.getpwnam("postgres")
        os.chown(folder, account.pw_uid, account.pw_gid)
        as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        user = "postgres"
    data = folder / "data"
    server: subprocess.Popen[bytes] | None = None
    try:
        subprocess.run(
            [binaries / "initdb", "-D", data, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-U", user, "--no-sync"],
            check=True,
            capture_output=True,
            cwd=folder,
            **as_user,
        )
        options = {"listen_addresses": "", "unix_socket_directories": str(folder), "fsync": "off"}
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        log = (folder / "log").open("wb")
        server = subprocess.Popen(
            [binaries / "postgres", "-D", data, *arguments], cwd=folder, stdout=log, stderr=log, **as_user
        )
        subprocess.run(
            ["sh", "-c", f"until {binaries}/pg_isready -q -h {folder}; do sleep 0.05; done"], check=True, timeout=30
        )
        yield f"postgresql://{user}@/{{name}}?host={folder}"
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)
            server.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


_numbers = itertools.count(1)


def _new_postgresql_database(server: str) -> str:
    import psycopg

    name = f"test{next(_numbers)}"
    with psycopg.connect(server.format(name="postgres"), autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
    return server.format(name=name)


@pytest.fixture
def postgresql_url(postgresql_server: str) -> str:
    """An empty database of its own."""
    return _new_postgresql_database(postgresql_server)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "wingbeat.db")
    return _new_postgresql_database(request.getfixturevalue("postgresql_server"))


@pytest.fixture
async def open_db(location: str) -> AsyncIterator[OpenDatabase]:
    """Opens the database; twice is two instances, as two servers would have."""
    async with AsyncExitStack() as stack:

        async def open() -> Database:
            db = await open_database(location, poll_seconds=0.05)
            stack.push_async_callback(db.close)
            return db

        yield open


@pytest.fixture
async def db(open_db: OpenDatabase) -> Database:
    return await open_db()


@pytest.fixture
async def open_store(open_db: OpenDatabase) -> OpenStore:
    async def open(db: Database | None = None, **options: Any) -> SqlStore:
        return SqlStore(db or await open_db(), **options)

    return open


@pytest.fixture
async def store(db: Database) -> SqlStore:
    return SqlStore(db, bookmark_seconds=0.2)
