"""The data process with real sockets: who may move which bytes, and that it always comes back."""

import asyncio
import base64
import datetime as dt
import hashlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from wingbeat.storage import DataServer, FolderStorage, Signer
from wingbeat.storage.signing import BadToken

HOUR = dt.timedelta(hours=1)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[DataServer]:
    server = DataServer(tmp_path / "data", str(tmp_path / "blobs"))
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def storage(tmp_path: Path) -> FolderStorage:
    return FolderStorage(tmp_path / "blobs")


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        yield client


def md5(data: bytes) -> bytes:
    return hashlib.md5(data).digest()


def md5_header(data: bytes) -> dict[str, str]:
    return {"Content-MD5": base64.b64encode(md5(data)).decode()}


async def test_what_is_uploaded_is_stored_and_downloads_the_same(
    server: DataServer, storage: FolderStorage, client: httpx.AsyncClient
) -> None:
    data = os.urandom(3_000_001)
    uri = storage.join("uploads", "fast.tar.gz")
    answer = await client.put(server.signer.upload_url(uri, md5(data), HOUR), content=data, headers=md5_header(data))
    assert (answer.status_code, answer.content) == (200, b"")
    assert await storage.get(uri) == data
    answer = await client.get(server.signer.download_url(uri, HOUR))
    assert (answer.status_code, answer.content) == (200, data)


async def test_an_empty_file_can_be_uploaded_and_downloaded(
    server: DataServer, storage: FolderStorage, client: httpx.AsyncClient
) -> None:
    uri = storage.join("empty")
    assert (await client.put(server.signer.upload_url(uri, md5(b""), HOUR), content=b"")).status_code == 200
    answer = await client.get(server.signer.download_url(uri, HOUR))
    assert (answer.status_code, answer.content) == (200, b"")


async def test_uploading_the_same_again_is_fine_and_other_content_never_replaces_it(
    server: DataServer, storage: FolderStorage, client: httpx.AsyncClient
) -> None:
    uri = storage.join("a")
    url = server.signer.upload_url(uri, b"", HOUR)
    assert (await client.put(url, content=b"one")).status_code == 200
    assert (await client.put(url, content=b"one")).status_code == 200
    answer = await client.put(url, content=b"two")
    assert answer.status_code == 409
    assert "other content" in answer.text
    assert await storage.get(uri) == b"one"


async def test_content_that_is_not_what_was_announced_is_not_stored(
    server: DataServer, storage: FolderStorage, client: httpx.AsyncClient
) -> None:
    url = server.signer.upload_url(storage.join("a"), md5(b"good"), HOUR)
    answer = await client.put(url, content=b"evil")
    assert (answer.status_code, "changed while it was uploaded" in answer.text) == (400, True)
    answer = await client.put(url, content=b"evil", headers=md5_header(b"evil"))
    assert (answer.status_code, "Content-MD5" in answer.text) == (403, True)
    assert await storage.list(storage.base_uri) == []
    assert list(storage.incoming.iterdir()) == []


async def test_a_larger_body_than_allowed_is_refused_in_words_that_the_client_sees(
    server: DataServer, storage: FolderStorage, client: httpx.AsyncClient
) -> None:
    url = server.signer.upload_url(storage.join("a"), b"", HOUR, limit=1_000_000)
    answer = await client.put(url, content=bytes(20_000_000))
    assert (answer.status_code, "1000000" in answer.text) == (413, True)
    assert await storage.list(storage.base_uri) == []


async def test_expired_tampered_and_misused_urls_are_refused_and_say_so(
    server: DataServer, storage: FolderStorage, client: httpx.AsyncClient
) -> None:
    uri = storage.join("a")
    await storage.put(uri, b"secret")
    good = server.signer.download_url(uri, HOUR)
    foreign = Signer(bytes(32), server.base_url).download_url(uri, HOUR)
    upload = server.signer.upload_url(storage.join("b"), b"", HOUR)
    head, _, tail = good.rpartition(".")
    wrong = {
        server.signer.download_url(uri, dt.timedelta(seconds=-1)): "expired",
        foreign: "not made here",
        f"{head}.{'A' * len(tail)}": "not made here",
        head.replace("/download/", "/download/e30") + "." + tail: "URL",
        good[:-1]: "URL",
        f"{server.base_url}/download/": "URL",
        f"{server.base_url}/download/é": "URL",
        upload.replace("/upload/", "/download/"): "for PUT",
    }
    for url, words in wrong.items():
        answer = await client.get(url)
        assert (answer.status_code, words in answer.text) == (403, True), (url, answer.text)
        assert "secret" not in answer.text
    answer = await client.put(good.replace("/download/", "/upload/"), content=b"x")
    assert (answer.status_code, "for GET" in answer.text) == (403, True)
    assert await storage.get(uri) == b"secret"


async def test_a_url_for_a_place_outside_the_storage_gets_nothing(
    server: DataServer, storage: FolderStorage, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    answer = await client.get(server.signer.download_url("/etc/passwd", HOUR))
    assert (answer.status_code, "outside" in answer.text) == (403, True)
    target = tmp_path / "elsewhere"
    answer = await client.put(server.signer.upload_url(str(target), b"", HOUR), content=b"x")
    assert (answer.status_code, target.exists()) == (403, False)


async def test_web_pages_and_foreign_host_names_are_refused_before_anything_is_read(
    server: DataServer, storage: FolderStorage, client: httpx.AsyncClient
) -> None:
    await storage.put(storage.join("a"), b"secret")
    get, put = (
        server.signer.download_url(storage.join("a"), HOUR),
        server.signer.upload_url(storage.join("b"), b"", HOUR),
    )
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        assert (await client.get(get, headers=headers)).status_code == 403
        assert (await client.put(put, headers=headers, content=b"x")).status_code == 403
    assert (await client.get(get, headers={"Host": f"localhost:{httpx.URL(get).port}"})).status_code == 200
    assert (await client.get(get, headers={"Origin": server.base_url})).status_code == 200
    assert await storage.list(storage.base_uri) == [storage.join("a")]


@pytest.mark.parametrize("headers", [{"Host": "["}, {"Origin": "http://["}, {"Content-MD5": "no digest"}])
async def test_headers_that_are_not_valid_are_answered_as_such(
    server: DataServer, storage: FolderStorage, client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    url = server.signer.upload_url(storage.join("a"), b"", HOUR)
    answer = await client.put(url, content=b"x", headers=headers)
    assert (answer.status_code, next(iter(headers)) in answer.text) == (400, True)
    assert await storage.list(storage.base_uri) == []


@pytest.mark.parametrize("wanted", ["bytes=" + "9" * 5000 + "-", "bytes=0-" + "9" * 5000])
async def test_a_range_that_no_file_has_is_passed_over(
    server: DataServer, storage: FolderStorage, client: httpx.AsyncClient, wanted: str
) -> None:
    uri = storage.join("a")
    await storage.put(uri, b"all of it")
    answer = await client.get(server.signer.download_url(uri, HOUR), headers={"Range": wanted})
    assert (answer.status_code, answer.content) == (200, b"all of it")


async def test_a_data_process_that_is_told_to_end_ends_well(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "wingbeat.storage.server", "--folder", str(tmp_path)),
        *("--storage", str(tmp_path / "blobs")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert (await process.stdout.readline()).strip().isdigit()
    process.terminate()
    _, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")


async def test_what_is_missing_is_not_found(
    server: DataServer, storage: FolderStorage, client: httpx.AsyncClient
) -> None:
    assert (await client.get(server.signer.download_url(storage.join("no"), HOUR))).status_code == 404
    assert (await client.get(f"{server.base_url}/")).status_code == 404
    assert (await client.put(f"{server.base_url}/x", content=b"x")).status_code == 404
    assert (await client.post(f"{server.base_url}/x", content=b"x")).status_code == 501


RANGES = [
    ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
    ("bytes=7-", 206, b"789", "bytes 7-9/10"),
    ("bytes=-2", 206, b"89", "bytes 8-9/10"),
    ("bytes=5-99", 206, b"56789", "bytes 5-9/10"),
    ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
    ("bytes=10-", 416, b"", "bytes */10"),
    ("bytes=4-3", 416, b"", "bytes */10"),
    ("bytes=-", 200, b"0123456789", None),
    ("lines=1-2", 200, b"0123456789", None),
]


@pytest.mark.parametrize(("header", "status", "body", "content_range"), RANGES)
async def test_a_part_of_an_object_can_be_asked_for(
    server: DataServer,
    storage: FolderStorage,
    client: httpx.AsyncClient,
    header: str,
    status: int,
    body: bytes,
    content_range: str | None,
) -> None:
    await storage.put(storage.join("a"), b"0123456789")
    answer = await client.get(server.signer.download_url(storage.join("a"), HOUR), headers={"Range": header})
    assert (answer.status_code, answer.content, answer.headers.get("Content-Range")) == (status, body, content_range)


async def test_what_a_task_wrote_is_served_without_rights_over_other_pages(
    server: DataServer, storage: FolderStorage, client: httpx.AsyncClient
) -> None:
    await storage.put(storage.join("report.html"), b"<script>1</script>")
    answer = await client.get(server.signer.download_url(storage.join("report.html"), HOUR))
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Content-Security-Policy"] == "sandbox allow-scripts"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert not any(name.startswith("access-control") for name in answer.headers)


async def test_an_upload_that_breaks_off_leaves_nothing(server: DataServer, storage: FolderStorage) -> None:
    url = httpx.URL(server.signer.upload_url(storage.join("a"), b"", HOUR))
    _, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(f"PUT {url.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n".encode())
    writer.write(bytes(1000))
    await writer.drain()
    async with asyncio.timeout(10):
        while not list(storage.incoming.iterdir()):
            await asyncio.sleep(0)
    writer.close()
    async with asyncio.timeout(10):
        while list(storage.incoming.iterdir()):
            await asyncio.sleep(0)
    assert await storage.list(storage.base_uri) == []


async def test_a_client_that_asks_first_is_told_to_go_on(server: DataServer, storage: FolderStorage) -> None:
    url = httpx.URL(server.signer.upload_url(storage.join("a"), b"", HOUR))
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(
        f"PUT {url.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n".encode()
    )
    async with asyncio.timeout(10):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ok")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
    writer.close()
    assert await storage.get(storage.join("a")) == b"ok"


@pytest.mark.faults
async def test_a_killed_data_process_is_started_again_on_the_same_port(
    server: DataServer, storage: FolderStorage, client: httpx.AsyncClient
) -> None:
    await storage.put(storage.join("a"), b"x")
    url = server.signer.download_url(storage.join("a"), HOUR)
    first = server.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(20):
        while server.pid in (first, None):
            await asyncio.sleep(0.01)
    assert (await client.get(url)).content == b"x"


async def test_urls_outlive_a_restart_of_the_server(tmp_path: Path, client: httpx.AsyncClient) -> None:
    storage = FolderStorage(tmp_path / "blobs")
    await storage.put(storage.join("a"), b"x")
    first = DataServer(tmp_path / "data", str(tmp_path / "blobs"))
    await first.start()
    url = first.signer.download_url(storage.join("a"), HOUR)
    await first.stop()
    second = DataServer(tmp_path / "data", str(tmp_path / "blobs"))
    await second.start()
    try:
        assert (await client.get(url)).content == b"x"
    finally:
        await second.stop()
    assert second.pid is None


async def test_the_data_process_takes_another_port_when_its_own_is_taken(tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "port").write_text(f"{port}\n")
    server = DataServer(tmp_path / "data", str(tmp_path / "blobs"))
    url = await server.start()
    await server.stop()
    taken.close()
    assert httpx.URL(url).port != port
    assert (tmp_path / "data" / "port").read_text() == f"{httpx.URL(url).port}\n"


@pytest.mark.faults
async def test_the_data_process_ends_when_its_server_is_gone(server: DataServer) -> None:
    assert server._process is not None and server._process.stdin is not None
    server._stopping = True  # nobody is left to start it again
    server._process.stdin.close()
    async with asyncio.timeout(10):
        await server._process.wait()


@pytest.mark.faults
async def test_a_full_disk_is_answered_as_such(small_disk: Path, tmp_path: Path, client: httpx.AsyncClient) -> None:
    server = DataServer(tmp_path / "data", str(small_disk / "blobs"))
    await server.start()
    storage = FolderStorage(small_disk / "blobs")
    try:
        url = server.signer.upload_url(storage.join("a"), b"", HOUR)
        answer = await client.put(url, content=bytes(8 << 20))
        assert (answer.status_code, "disk is full" in answer.text) == (507, True)
        assert (await client.put(url, content=b"fits")).status_code == 200
    finally:
        await server.stop()


def test_the_signing_key_is_private_and_kept(tmp_path: Path) -> None:
    first = Signer.load(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    token = first.download_url("/a", HOUR).removeprefix("/download/")
    assert Signer.load(tmp_path / "key").check(token, "GET").uri == "/a"
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(BadToken, match="damaged"):
        Signer.load(tmp_path / "key")
