"""Storage in a real S3 server on loopback, with signatures: the storage itself, and the `flyte` CLI end to end.

The server is versitygw: one in PATH or in `.tools/`, else one that was built with Go and is kept in
`~/.cache/wingbeat-tests`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import pathlib
import re
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from wingbeat.storage import DataServer, ObjectMissing, OutsideStorage, Storage, StorageUnusable, open_storage
from wingbeat.storage.objects import MARKER

pytestmark = pytest.mark.s3

HERE = pathlib.Path(__file__).parent
BIN = pathlib.Path(sys.executable).parent
SERVER = "versitygw"
MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
KEPT = pathlib.Path.home() / ".cache" / "wingbeat-tests"
BUCKET = "shelf"
SUCCEEDED = "SUCCEEDED"
CACHE_HIT, CACHE_POPULATED = 2, 3


def find_server() -> str:
    """The path of the S3 server; skips where none can be had."""
    tools = HERE.parents[1] / ".tools"
    if found := shutil.which(SERVER, path=os.pathsep.join([os.environ["PATH"], str(tools), str(KEPT)])):
        return found
    if not shutil.which("go"):
        pytest.skip(f"no S3 server: there is no {SERVER} in PATH, {tools} or {KEPT}, and no `go` to build it with")
    KEPT.mkdir(parents=True, exist_ok=True)
    built = subprocess.run(
        ["go", "install", MODULE], env={**os.environ, "GOBIN": str(KEPT)}, capture_output=True, text=True
    )
    if built.returncode:
        pytest.skip(f"no S3 server: {MODULE} cannot be built: {' '.join(built.stderr.split())[-300:]}")
    return str(KEPT / SERVER)


class S3:
    """A running server with one bucket. `variables` are what a user sets."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root / "s3"
        (self.root / BUCKET).mkdir(parents=True)
        self.access_key, self.secret_key = "KEYOFTESTS", secrets.token_hex(16)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.variables = {
            "FLYTE_AWS_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "FLYTE_AWS_ACCESS_KEY_ID": self.access_key,
            "FLYTE_AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
        }
        self._log = (root / "s3.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, binary: str) -> None:
        self._process = subprocess.Popen(
            [binary, "--quiet", "--port", f"127.0.0.1:{self.port}", "posix", str(self.root)],
            env={"PATH": os.environ["PATH"], "ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key},
            stdout=self._log,
            stderr=self._log,
        )
        end = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self._process.poll() is None and time.monotonic() < end, "the S3 server did not start"
                threading.Event().wait(0.05)

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait()
        self._log.close()

    def keys(self, prefix: str) -> list[str]:
        """The keys of all objects below `prefix`."""
        bucket = self.root / BUCKET
        return sorted(str(f.relative_to(bucket)) for f in (bucket / prefix).rglob("*") if f.is_file())


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    binary = find_server()
    it = S3(tmp_path_factory.mktemp("s3"))
    it.start(binary)
    yield it
    it.stop()


def set_variables(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if "AWS_" in n]:
        monkeypatch.delenv(name)
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def storage(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """Set up as a user does: by the variables of the SDK."""
    set_variables(s3, monkeypatch)
    return open_storage(f"s3://{BUCKET}/unit/{secrets.token_hex(4)}")


# -- the storage -----------------------------------------------------------------------------------------------------


async def test_objects_are_put_read_copied_listed_and_deleted(storage: Storage) -> None:
    uri, twin = storage.join("runs", "r1/a0", "inputs.pb"), storage.join("runs", "r2/inputs.pb")
    await storage.put(uri, b"first")
    await storage.put(uri, b"second")
    await storage.copy(uri, twin)
    assert await storage.get(twin) == b"second"
    assert (await storage.head(uri)).size == 6
    assert await storage.list(storage.join("runs")) == [uri, twin]
    assert await storage.list(storage.join("ru")) == []
    assert await storage.delete_prefix(storage.join("runs")) == 2
    with pytest.raises(ObjectMissing, match="r1/a0"):
        await storage.get(uri)


@pytest.mark.parametrize("name", ["a b.txt", "grüße.txt", "100%.txt", "%41.txt", "a+b&c=d;e@f.txt", "#1?.txt", "日本"])
async def test_names_that_need_escapes_in_urls_are_kept_as_they_are(storage: Storage, name: str) -> None:
    uri = storage.join("uploads", name)
    await storage.put(uri, name.encode())
    assert await storage.get(uri) == name.encode()
    assert await storage.list(storage.join("uploads")) == [uri]


async def test_the_variables_of_the_cloud_do_as_well_as_those_of_the_sdk(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_variables(s3, monkeypatch)
    for name in s3.variables:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3.port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    await open_storage(f"s3://{BUCKET}/unit/cloud").check()
    assert s3.keys("unit/cloud") == [f"unit/cloud/{MARKER}"]


@pytest.mark.parametrize(
    ("variable", "value", "uri", "words"),
    [
        ("FLYTE_AWS_SECRET_ACCESS_KEY", "wrong", f"s3://{BUCKET}/x", "SignatureDoesNotMatch"),
        ("FLYTE_AWS_ACCESS_KEY_ID", "nobody", f"s3://{BUCKET}/x", "access key ID"),
        ("AWS_REGION", "us-east-1", "s3://no-such-bucket/x", "NoSuchBucket"),
        ("FLYTE_AWS_ENDPOINT", "http://127.0.0.1:9", f"s3://{BUCKET}/x", "cannot be used: .*127.0.0.1:9"),
    ],
)
async def test_a_set_up_that_cannot_work_is_said_at_the_start(
    s3: S3, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, uri: str, words: str
) -> None:
    set_variables(s3, monkeypatch)
    monkeypatch.setenv(variable, value)
    with pytest.raises(StorageUnusable, match=words) as error:
        await open_storage(uri).check()
    assert uri in str(error.value)
    assert s3.secret_key not in str(error.value)


async def test_nothing_beside_the_prefix_is_read_or_written(storage: Storage) -> None:
    for uri in (f"s3://{BUCKET}/elsewhere", f"{storage.base_uri}x/y", f"{storage.base_uri}/../y", "s3://other/x"):
        with pytest.raises(OutsideStorage):
            await storage.put(uri, b"x")


async def test_signed_urls_upload_and_download_parts_of_large_objects(storage: Storage, tmp_path: pathlib.Path) -> None:
    import httpx

    data = secrets.token_bytes(11 << 20)  # more than one part of an upload
    uri = storage.join("uploads", "large file.bin")
    server = DataServer(tmp_path / "transfer", storage.base_uri)
    await server.start()
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            up = server.signer.upload_url(uri, b"", dt.timedelta(minutes=1))
            assert (await client.put(up, content=data)).status_code == 200
            assert (await client.put(up, content=data)).status_code == 200
            assert (await client.put(up, content=b"other")).status_code == 409
            down = server.signer.download_url(uri, dt.timedelta(minutes=1))
            assert (await client.get(down)).content == data
            ranged = await client.get(down, headers={"Range": f"bytes={9 << 20}-{(9 << 20) + 4}"})
            assert (ranged.status_code, ranged.content) == (206, data[9 << 20 : (9 << 20) + 5])
    finally:
        await server.stop()
    assert await storage.get(uri) == data


# -- the CLI ---------------------------------------------------------------------------------------------------------


class Wingbeat:
    """A started server and the `flyte` CLI, both with the same variables."""

    def __init__(self, root: pathlib.Path, s3: S3, prefix: str) -> None:
        self.data, self.home, self.prefix = root / "data", root / "home", prefix
        self.home.mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = str(probe.getsockname()[1])
        self.env = {
            **{k: v for k, v in os.environ.items() if k in ("LANG", "TMPDIR", "PYTHONDONTWRITEBYTECODE")},
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "DO_NOT_TRACK": "1",
            "COLUMNS": "200",
            "TERM": "dumb",
            "NO_COLOR": "1",
            **s3.variables,
        }

    def run(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=self.env,
            timeout=110,
            cwd=HERE / "programs",
            stdin=subprocess.DEVNULL,
        )
        if check:
            log = self.data / "server.log"
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}\n{log.exists() and log.read_text()}"
        return done.stdout + done.stderr

    def up(self, *options: str) -> str:
        where = ("--data-dir", str(self.data), "--port", self.port)
        return self.run("wingbeat", "up", "--detach", *where, "--storage", f"s3://{BUCKET}/{self.prefix}", *options)

    def stop(self) -> None:
        self.run("wingbeat", "stop", "--data-dir", str(self.data), check=False)

    def flyte(self, *args: str, check: bool = True) -> str:
        return self.run("flyte", "--config", str(self.data / "flyte.yaml"), *args, check=check)

    def submit(self, *args: str) -> str:
        text = self.flyte("run", *args)
        found = re.search(r"/runs/([a-z0-9-]+)", re.sub(r"[\s│]+", "", text))
        assert found, text
        return found.group(1)

    def read(self, run: str) -> dict:
        """What a client that starts now, with the same variables, reads of a run once it has ended."""
        text = self.run(sys.executable, "open_outputs.py", str(self.data / "flyte.yaml"), run)
        return json.loads(text.splitlines()[-1])


@pytest.fixture
def wingbeat(s3: S3, tmp_path: pathlib.Path) -> Iterator[Callable[..., Wingbeat]]:
    started: list[Wingbeat] = []

    def start(*options: str) -> Wingbeat:
        it = Wingbeat(tmp_path, s3, f"data/{secrets.token_hex(4)}")
        started.append(it)
        it.up(*options)
        return it

    yield start
    for it in started:
        it.stop()


@pytest.fixture
def letter(tmp_path: pathlib.Path) -> tuple[str, str]:
    (tmp_path / "letter here.txt").write_text("dear reader")
    (tmp_path / "large.bin").write_bytes(bytes(12 << 20))
    return str(tmp_path / "letter here.txt"), str(tmp_path / "large.bin")


@pytest.mark.slow
def test_a_workflow_runs_on_s3_and_its_outputs_open_in_a_client(
    s3: S3, wingbeat: Callable[..., Wingbeat], letter: tuple[str, str], tmp_path: pathlib.Path
) -> None:
    server = wingbeat()
    given = ("--letter", letter[0], "--large", letter[1])
    run = server.submit("parcels.py", "main", *given)
    first = server.read(run)
    assert first["outputs"] == [
        "wrapped: dear reader",
        {"0.txt": "dear", "1.txt": "reader"},
        [0, 1, 2, 3],
        6 + 6,
        12 << 20,
    ], first
    assert "<h1>dear reader</h1>" in first["report"]
    assert first["actions"]["wrap"]["attempts"] == 2
    assert {a["phase"] for a in first["actions"].values()} == {SUCCEEDED}
    assert first["actions"]["weigh"]["cache"] == CACHE_POPULATED
    # Of an action without data frames: for those the CLI looks for nothing that could read them.
    io = re.sub(r"[\s│]+", "", server.flyte("get", "io", run, first["actions"]["sort"]["id"]))
    assert f"s3://{BUCKET}/{server.prefix}/uploads/" in io and f"s3://{BUCKET}/{server.prefix}/raw/" in io

    # The code comes back, and runs again as a deployed task of another server on the same data folder.
    server.flyte("get", "code", run, "--dest", str(tmp_path / "code"))
    (found,) = (tmp_path / "code").rglob("parcels.py")
    assert found.read_text() == (HERE / "programs" / "parcels.py").read_text()
    server.flyte("deploy", "parcels.py", "env")
    server.stop()
    server.up()
    second = server.read(server.submit("deployed-task", "parcels.post", "--letter", letter[0]))
    assert second["outputs"] == [{"0.txt": "dear", "1.txt": "reader"}, 6 + 6], second
    assert second["actions"]["weigh"]["cache"] == CACHE_HIT
    assert server.read(run)["outputs"] == first["outputs"]

    # Everything is below the prefix, and nothing but the server's own files is on the disk.
    assert all(key.startswith(f"{server.prefix}/") for key in s3.keys("data"))
    assert any(key.endswith("/outputs.pb") for key in s3.keys(server.prefix))
    assert not [*server.data.rglob("*.pb")] and not (server.data / "storage").exists()


def test_keys_reach_tasks_and_are_written_nowhere(s3: S3, wingbeat: Callable[..., Wingbeat]) -> None:
    server = wingbeat()
    seen = server.read(server.submit("parcels.py", "seen"))["outputs"][0]
    assert seen == {
        **s3.variables,
        "AWS_ENDPOINT_URL_S3": s3.variables["FLYTE_AWS_ENDPOINT"],
        "AWS_ACCESS_KEY_ID": s3.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.secret_key,
    }
    for file in server.data.rglob("*"):
        if file.is_file() and s3.secret_key.encode() in file.read_bytes():
            pytest.fail(f"the key is in {file}")


def test_a_folder_needs_no_keys_so_its_tasks_get_none(s3: S3, wingbeat: Callable[..., Wingbeat], tmp_path) -> None:
    server = wingbeat("--storage", str(tmp_path / "folder"))
    assert server.read(server.submit("parcels.py", "seen"))["outputs"] == [{}]


def test_a_server_whose_keys_are_wrong_does_not_start_and_says_why(s3: S3, tmp_path: pathlib.Path) -> None:
    server = Wingbeat(tmp_path, s3, "wrong")
    server.env["FLYTE_AWS_SECRET_ACCESS_KEY"] = "wrong"
    where = ("--data-dir", str(server.data), "--port", server.port, "--storage", f"s3://{BUCKET}/wrong")
    for detach in ("--foreground", "--detach"):
        text = server.run("wingbeat", "up", detach, *where, check=False)
        assert "SignatureDoesNotMatch" in text and f"s3://{BUCKET}/wrong" in text, text
        assert "Traceback" not in text
        assert "FLYTE_AWS_ENDPOINT" in text and "wingbeat doctor" in text
    doctor = re.sub(r"\s+", " ", server.run("wingbeat", "doctor", *where, check=False))
    assert "SignatureDoesNotMatch" in doctor
