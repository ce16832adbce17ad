"""One server, the real `flyte` command, and what users read when something is wrong, kept in `expected/`.

With GOLDEN_UPDATE=1 the files are written; read the difference before it is committed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from connectrpc.errors import ConnectError
from flyteidl2.common.identifier_pb2 import ActionIdentifier, RunIdentifier
from flyteidl2.common.phase_pb2 import ActionPhase
from flyteidl2.workflow.run_service_connect import RunServiceClientSync
from flyteidl2.workflow.run_service_pb2 import WatchActionDetailsRequest

HERE = pathlib.Path(__file__).parent
PROGRAMS = HERE / "programs"
EXPECTED = HERE / "expected"
BIN = pathlib.Path(sys.executable).parent
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_BOX = re.compile("[─-╿]")
_PROGRESS = re.compile(r"^ *([>✓i⚠] .*| *(Exception|Error) *)\n", re.MULTILINE)


@dataclasses.dataclass
class Result:
    code: int
    text: str


class Server:
    """A Wingbeat that was started with its own command, and the flyte command pointed at it."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.data, self.home = root / "data", root / "home"
        self.home.mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        kept = {
            k: v
            for k, v in os.environ.items()
            if k in ("PATH", "LANG", "TMPDIR", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
        }
        self.env = {
            **kept,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "WINGBEAT_DATA_DIR": str(self.data),
            "DO_NOT_TRACK": "1",
            "COLUMNS": "2000",
            "TERM": "xterm",
            "NO_COLOR": "1",
        }
        self._flyte: subprocess.Popen[str] | None = None

    def wingbeat(self, *arguments: str, check: bool = True) -> None:
        subprocess.run(["wingbeat", *arguments], env=self.env, check=check, capture_output=True, timeout=60)

    def up(self) -> None:
        self.wingbeat("up", "--detach", "--port", str(self.port), "--log-format", "json")

    def interrupt(self) -> None:
        """Ctrl-C."""
        os.kill(int(json.loads((self.data / "server.json").read_text())["pid"]), signal.SIGINT)

    def stop(self) -> None:
        self.wingbeat("stop", check=False)
        if self._flyte:
            assert self._flyte.stdin
            self._flyte.stdin.close()
            self._flyte.wait(10)

    def flyte(self, *arguments: str) -> Result:
        if self._flyte is None:
            self._flyte = subprocess.Popen(
                [sys.executable, str(HERE / "flyte_process.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=self.env,
                cwd=PROGRAMS,
            )
        assert self._flyte.stdin and self._flyte.stdout
        output = self.root / "output"
        ask = {
            "args": ["--config", str(self.data / "flyte.yaml"), *arguments],
            "cwd": str(PROGRAMS),
            "output": str(output),
        }
        self._flyte.stdin.write(json.dumps(ask) + "\n")
        self._flyte.stdin.flush()
        code = int(self._flyte.stdout.readline())
        return Result(code, _ANSI.sub("", output.read_text()))

    def rows(self) -> Counter[str]:
        """How many rows each table of the database has."""
        with contextlib.closing(sqlite3.connect(f"file:{self.data}/wingbeat.db?mode=ro", uri=True)) as connection:
            names = [r[0] for r in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return Counter({name: connection.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in names})

    def files(self) -> set[str]:
        """All that is stored."""
        folder = self.data / "storage"
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

    def phase_at_the_end(self, run: str) -> str:
        """Wait until a run has ended."""
        request = WatchActionDetailsRequest(action_id=action_id(run))
        with RunServiceClientSync(self.url) as runs:
            for message in runs.watch_action_details(request):
                if message.details.status.HasField("end_time"):
                    return str(ActionPhase.Name(message.details.status.phase))
        raise AssertionError("the stream ended before the run")

    def until_running(self, run: str) -> None:
        request = WatchActionDetailsRequest(action_id=action_id(run))
        with RunServiceClientSync(self.url) as runs:
            for message in runs.watch_action_details(request):
                if message.details.status.phase == ActionPhase.ACTION_PHASE_RUNNING:
                    return

    def until_draining(self) -> None:
        log = self.data / "server.log"
        end = time.monotonic() + 10
        while "draining" not in log.read_text():
            assert time.monotonic() < end
            threading.Event().wait(0.05)

    @contextlib.contextmanager
    def unchanged(self, *except_for: str) -> Iterator[None]:
        """Fails when the block leaves a row or a stored file, other than those with one of these in their path."""
        rows, files = self.rows(), self.files()
        yield
        assert self.rows() == rows
        now = self.files()
        assert [f for f in sorted(now - files) if not any(part in f for part in except_for)] == []
        assert files <= now

    def clean(self, text: str) -> str:
        """Without frames and tales of progress, and with names for what differs from run to run."""
        text = _PROGRESS.sub("", _BOX.sub("", text))
        for place, name in (
            (self.data, "<data>"),
            (self.home, "<home>"),
            (self.root, "<tmp>"),
            (PROGRAMS, "<programs>"),
            (BIN, "<bin>"),
        ):
            text = text.replace(str(place), name)
        text = text.replace(str(self.port), "<port>")
        for pattern, name in (
            (r"\br[bcdfghjklmnpqrstvwxz2456789]{19}\b", "<run>"),
            (r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
            (r"\b[0-9a-f]{64}\b", "<sha256>"),
            (r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", "<md5>"),
            (r"/tmp/tmp\w+", "<tmp>"),
            (r"\b[a-z2-7]{26}\b", "<digest>"),
            (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?", "<time>"),
            (rf"flyte=={re.escape(sdk_version())}", "flyte==<sdk>"),
            (rf"(flyte |-v){re.escape(sdk_version())}", r"\1<sdk>"),
            (rf"Python {sys.version_info[0]}\.{sys.version_info[1]}\b", "Python <python>"),
            (r"flyte:[0-9a-f]{20,}", "flyte:<hash>"),
            (r"(in JSON|in protobuf|not gzip|not a tar archive) \((?:[^()]|\([^()]*\))*\)", r"\1 (<detail>)"),
            (r" +", " "),
            (r" ?\n[ \n]*", "\n"),
        ):
            text = re.sub(pattern, name, text)
        return "\n".join(line.strip() for line in text.strip().splitlines()) + "\n"


def run_id(name: str) -> RunIdentifier:
    return RunIdentifier(project="default", domain="development", name=name)


def action_id(run: str, name: str = "a0") -> ActionIdentifier:
    return ActionIdentifier(run=run_id(run), name=name)


def sdk_version() -> str:
    import importlib.metadata

    return importlib.metadata.version("flyte")


Golden = Callable[[str, "Result | ConnectError | str"], str]


def golden_of(server: Server) -> Golden:
    def check(name: str, found: Result | ConnectError | str) -> str:
        if isinstance(found, Result):
            text = f"exit code {found.code}\n{server.clean(found.text)}"
        elif isinstance(found, ConnectError):
            text = f"{found.code.value}\n{server.clean(found.message)}"
        else:
            text = server.clean(found)
        path = EXPECTED / f"{name}.txt"
        if os.environ.get("GOLDEN_UPDATE"):
            path.write_text(text)
        assert path.exists(), f"{path} is not there; this is what it would hold:\n{text}"
        assert text == path.read_text()
        return text

    return check


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on which a run has ended already, so that client and server know the programs."""
    it = Server(tmp_path_factory.mktemp("golden"))
    try:
        it.up()
        first = it.flyte("run", "--name", "taken", "mistakes.py", "main", "--n", "3", "--words", '["a"]')
        assert first.code == 0, first.text
        assert it.phase_at_the_end("taken") == "ACTION_PHASE_SUCCEEDED"
        yield it
    finally:
        it.stop()


@pytest.fixture
def golden(server: Server) -> Golden:
    return golden_of(server)


@pytest.fixture
def make_golden() -> Callable[[Server], Golden]:
    """For servers of a test's own."""
    return golden_of


@pytest.fixture
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Server]]:
    started: list[Server] = []

    def start() -> Server:
        started.append(Server(tmp_path_factory.mktemp("own")))
        started[-1].up()
        return started[-1]

    yield start
    for it in started:
        it.stop()
