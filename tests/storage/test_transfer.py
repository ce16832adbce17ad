"""Bytes between sockets and storage: constant memory, right digests, nothing half done."""

import asyncio
import datetime as dt
import hashlib
import os
import socket
from pathlib import Path

import httpx
import pytest
from obstore.store import MemoryStore

from wingbeat.storage import DataServer, FolderStorage, ObjectMissing, Storage
from wingbeat.storage.objects import ObjectStorage
from wingbeat.storage.transfer import Interrupted, digest_of, reading, receive, storing


@pytest.fixture(params=["folder", "objects"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return FolderStorage(tmp_path / "blobs")
    return ObjectStorage("s3://bucket/base", MemoryStore())


@pytest.mark.parametrize("size", [0, 1, 512 * 1024, 512 * 1024 + 1, 5_000_000])
def test_what_is_received_is_written_whole_with_its_digest(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    left = memoryview(data)

    def read_into(view: memoryview) -> int:
        nonlocal left
        count = min(len(view), len(left), 70_001)  # never as much as asked for, as sockets do
        view[:count] = left[:count]
        left = left[count:]
        return count

    with (tmp_path / "file").open("wb") as file:
        assert receive(read_into, size, file.fileno()) == hashlib.md5(data).hexdigest()
    assert (tmp_path / "file").read_bytes() == data


def test_a_client_that_goes_away_is_an_interruption(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file, pytest.raises(Interrupted):
        receive(lambda view: 0, 10, file.fileno())


async def test_a_new_object_is_stored_once_and_never_replaced(storage: Storage, tmp_path: Path) -> None:
    uri = storage.join("a", "b")

    def store(data: bytes) -> None:
        with storing(storage, uri, tmp_path / "incoming") as file:
            os.write(file, data)

    await asyncio.to_thread(store, b"first")
    with pytest.raises(FileExistsError):
        await asyncio.to_thread(store, b"second")
    assert await storage.get(uri) == b"first"
    assert await asyncio.to_thread(digest_of, storage, uri) == hashlib.md5(b"first").hexdigest()


async def test_a_block_that_fails_stores_nothing(storage: Storage, tmp_path: Path) -> None:
    def store() -> None:
        with storing(storage, storage.join("a"), tmp_path / "incoming") as file:
            os.write(file, b"half")
            raise Interrupted

    with pytest.raises(Interrupted):
        await asyncio.to_thread(store)
    assert await storage.list(storage.base_uri) == []


async def test_any_part_of_an_object_can_be_read(storage: Storage) -> None:
    await storage.put(storage.join("a"), b"0123456789")

    def read(first: int, count: int) -> bytes:
        with reading(storage, storage.join("a")) as (size, chunks):
            assert size == 10
            return b"".join(chunks(first, count))

    for first, count, expected in ((0, -1, b"0123456789"), (3, 4, b"3456"), (9, 1, b"9"), (10, 0, b"")):
        assert await asyncio.to_thread(read, first, count) == expected
    with pytest.raises(ObjectMissing), reading(storage, storage.join("no")):
        pass


async def test_large_bodies_take_little_memory(tmp_path: Path) -> None:
    size = 300 << 20
    source = tmp_path / "large"
    with source.open("wb") as file:
        file.truncate(size)
    server = DataServer(tmp_path / "data", str(tmp_path / "blobs"))
    await server.start()
    try:
        uri = f"{tmp_path}/blobs/large"
        url = httpx.URL(server.signer.upload_url(uri, b"", dt.timedelta(hours=1)))
        assert (await asyncio.to_thread(_send, url, source)).startswith(b"HTTP/1.1 200")
        count = 0
        async with (
            httpx.AsyncClient(trust_env=False) as client,
            client.stream("GET", server.signer.download_url(uri, dt.timedelta(hours=1))) as answer,
        ):
            async for chunk in answer.aiter_raw():
                count += len(chunk)
        assert count == size
        peak = next(line for line in Path(f"/proc/{server.pid}/status").read_text().splitlines() if "VmHWM" in line)
        assert int(peak.split()[1]) < 100 * 1024, peak
    finally:
        await server.stop()


def _send(url: httpx.URL, source: Path) -> bytes:
    with socket.create_connection((url.host, url.port or 0)) as connection, source.open("rb") as file:
        head = f"PUT {url.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {source.stat().st_size}\r\n\r\n"
        connection.sendall(head.encode())
        connection.sendfile(file)
        return connection.recv(100)
