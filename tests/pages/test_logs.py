"""Logs from the files of real attempts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from wingbeat.database import Records, open_database
from wingbeat.resources import ActionId, ActionPhase
from wingbeat.server.pages import logs
from wingbeat.server.wiring import LogFolder
from wingbeat.storage import FolderStorage

from .made import Maker, MemoryLogs


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Maker]:
    db = await open_database(tmp_path / "test.db")
    yield Maker(Records(db), FolderStorage(tmp_path / "data"), MemoryLogs())
    await db.close()


async def test_the_server_s_own_log_files_are_read_from_their_end(make: Maker, tmp_path: Path) -> None:
    root: ActionId = await make.root()
    await make.go(root, ActionPhase.SUCCEEDED)
    source = LogFolder(tmp_path / "logs", make.records)
    path = Path(source.path(root, 1))
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{index} {'S' if index == 0 else 'U'} line {index}\n" for index in range(1_000)))
    last = await logs.read_last(source, root, 1, 10)
    assert [line.text for line in last] == [f"line {index}" for index in range(990, 1_000)]
    tail = logs.Tail(source, root, 1, 10)
    followed = []
    while not tail.over or not followed:
        lines, left_out = await tail.take(5)
        assert left_out == 0
        followed.extend(line.text for line in lines)
    await tail.close()
    assert followed == [f"line {index}" for index in range(990, 1_000)]
    whole = b"".join([piece async for piece in logs.raw(source, root, 1)])
    assert whole.startswith(b"line 0\nline 1\n")
    assert whole.endswith(b"line 999\n")


async def test_an_attempt_without_a_log_has_no_lines(make: Maker, tmp_path: Path) -> None:
    root = await make.root()
    await make.go(root, ActionPhase.SUCCEEDED)
    source = LogFolder(tmp_path / "logs", make.records)
    assert await logs.read_last(source, root, 1) == []
