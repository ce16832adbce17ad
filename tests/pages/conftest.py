"""Pages on a real database and storage, behind the real HTTP server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from wingbeat.control.feed import Feed
from wingbeat.database import Database, Records, open_database
from wingbeat.server.asgi import Application
from wingbeat.server.http import HttpServer
from wingbeat.server.pages import run_pages
from wingbeat.storage import FolderStorage

from .made import Maker, MemoryLogs


@dataclass
class Served:
    make: Maker
    http: httpx.AsyncClient
    db: Database
    feed: Feed
    server: HttpServer
    url: str

    async def page(self, path: str, status: int = 200) -> str:
        response = await self.http.get(path, headers={"accept": "text/html"})
        assert response.status_code == status, response.text
        return response.text


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    db = await open_database(tmp_path / "test.db")
    storage = FolderStorage(tmp_path / "data")
    logs = MemoryLogs()
    feed = Feed(db)
    feed.start()
    records = Records(db)
    app = Application(
        [],
        run_pages(records, storage, logs, feed, org="local", endpoint="http://127.0.0.1:8090", heartbeat_seconds=0.3),
    )
    server = HttpServer(app)
    host, port = await server.start()
    url = f"http://{host}:{port}"
    async with httpx.AsyncClient(base_url=url, timeout=20, trust_env=False) as http:
        yield Served(Maker(records, storage, logs), http, db, feed, server, url)
    await server.stop(1)
    await feed.close()
    await db.close()
