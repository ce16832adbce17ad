"""The real client against a real server: `flyte` commands, and what they read back.

Most tests name the run they need with `@pytest.mark.submits(program, task, *args)` and read it through `outcome`.
All such runs are submitted when the first of them is needed, each by its own `flyte run`, and go on side by side.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

HERE = pathlib.Path(__file__).parent
PROGRAMS = HERE / "programs"
BIN = pathlib.Path(sys.executable).parent
SUBMITTERS = 3
EXTRA = tuple(os.environ.get("CONFORMANCE_OPTIONS", "").split())
"""Options for every server that is started: `--mode spawn` runs the whole suite without zygotes."""


@dataclasses.dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    @property
    def flat(self) -> str:
        """All words in one line: tables and boxes break lines where they like."""
        return re.sub(r"[\s│╭╮╰╯─]+", " ", self.text)


class Reader:
    """One long-lived client process that reads things back; see readback.py."""

    def __init__(self, server: Server, *options: str) -> None:
        command = [sys.executable, str(HERE / "readback.py"), str(server.data / "flyte.yaml"), "--serve", *options]
        self._errors = open(server.home / "reader.log", "a")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=server.env,
            cwd=server.home,
        )
        self._numbers = itertools.count()
        self._waiting: dict[int, concurrent.futures.Future[Any]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            try:
                reply = json.loads(line)
                future = self._waiting.pop(reply["id"])
            except (ValueError, KeyError, TypeError):
                continue  # the SDK prints to stdout too
            if "error" in reply:
                future.set_exception(AssertionError("the SDK could not read it back:\n" + reply["error"]))
            else:
                future.set_result(reply["value"])
        for future in list(self._waiting.values()):
            future.set_exception(AssertionError("the reading client ended"))

    def ask(self, op: str, timeout: float = 100, **arguments: Any) -> Any:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = future
            assert self._process.stdin
            self._process.stdin.write(json.dumps({"id": number, "op": op, **arguments}) + "\n")
            self._process.stdin.flush()
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            raise AssertionError(f"no answer to {op} {arguments} within {timeout} s") from None

    def close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


class Server:
    """A Wingbeat that was started with its own command, and the flyte CLI pointed at it."""

    def __init__(self, data: pathlib.Path, home: pathlib.Path, *options: str) -> None:
        self.data = data
        self.home = home
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        self.options = ("--port", port, *EXTRA, *options)
        self._reader: Reader | None = None
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "TMPDIR", "PYTHONDONTWRITEBYTECODE")}
        self.env = {
            **kept,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "DO_NOT_TRACK": "1",
            "COLUMNS": "200",
            "TERM": "dumb",
            "NO_COLOR": "1",
        }

    # -- commands ----------------------------------------------------------------------------------------------------

    def run(
        self, *command: str, timeout: float = 120, check: bool = True, cwd: pathlib.Path | None = None, **variables: str
    ) -> Result:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**self.env, **variables},
            timeout=timeout,
            cwd=cwd or PROGRAMS,
            stdin=subprocess.DEVNULL,
        )
        result = Result(done.returncode, done.stdout, done.stderr)
        if result.code == -signal.SIGABRT and command[0] == "flyte" and result.out:
            # The client's own end, seen on busy machines: its work is done and told, then the process aborts while the
            # interpreter shuts down. What it did is checked by the tests all the same.
            warnings.warn(f"{command[:4]} aborted at its very end", stacklevel=2)
            result.code = 0
        if check and result.code != 0:
            raise AssertionError(
                f"{command} ended with {result.code}\n{result.text}\n--- server log\n{self.log_tail()}"
            )
        return result

    def log_tail(self) -> str:
        path = self.data / "server.log"
        return path.read_text()[-3000:] if path.exists() else ""

    def up(self) -> None:
        self.run("wingbeat", "up", "--detach", "--data-dir", str(self.data), *self.options)

    def stop(self) -> None:
        if self._reader:
            self._reader.close()
            self._reader = None
        self.run("wingbeat", "stop", "--data-dir", str(self.data), check=False)

    def flyte(self, *args: str, **kwargs: Any) -> Result:
        return self.run("flyte", "--config", str(self.data / "flyte.yaml"), *args, **kwargs)

    def start(self, program: str, task: str, *args: str, options: tuple[str, ...] = (), **kwargs: Any) -> str:
        """Submit a run; returns its name."""
        result = self.flyte("run", *options, f"{program}.py", task, *args, **kwargs)
        return run_name(result)

    # -- reading back ------------------------------------------------------------------------------------------------

    @property
    def reader(self) -> Reader:
        if self._reader is None:
            self._reader = Reader(self)
        return self._reader

    def details(self, run: str, *, wait: bool = False, timeout: float = 100) -> dict[str, Any]:
        """What the SDK reads back of a run and all of its actions: see readback.py."""
        return self.reader.ask("details", timeout, run=run, wait=wait)  # type: ignore[no-any-return]

    def finish(self, run: str, timeout: float = 100) -> dict[str, Any]:
        """Wait for the end of a run and read it back."""
        return self.details(run, wait=True, timeout=timeout)

    def go(self, program: str, task: str, *args: str, timeout: float = 100, **kwargs: Any) -> dict[str, Any]:
        """Submit, wait, read back."""
        return self.finish(self.start(program, task, *args, **kwargs), timeout)

    def logs(self, run: str, action: str = "a0", **more: Any) -> str:
        return str(self.reader.ask("logs", run=run, action=action, **more))

    def until(self, run: str, condition: Callable[[list[dict[str, Any]]], Any], timeout: float = 60) -> Any:
        """Ask for the run's actions until `condition` of them is true; returns what it returned."""
        end = time.monotonic() + timeout
        while True:
            seen = self.reader.ask("actions", run=run)
            if found := condition(seen):
                return found
            assert time.monotonic() < end, f"not within {timeout} s; the actions are {seen}"
            threading.Event().wait(0.1)


def run_name(result: Result) -> str:
    match = re.search(r"/runs/([a-z0-9-]+)", re.sub(r"[\s│]+", "", result.text))
    assert match, result.text
    return match.group(1)


@dataclasses.dataclass
class Outcome:
    """The end of a submitted run as the SDK reads it."""

    server: Server
    folder: pathlib.Path
    details: dict[str, Any]

    @property
    def run(self) -> str:
        return str(self.details["run"])

    @property
    def phase(self) -> str:
        return str(self.details["phase"])

    @property
    def outputs(self) -> Any:
        assert self.phase == "SUCCEEDED", self.details["root"]
        return self.details["outputs"]

    @property
    def root(self) -> dict[str, Any]:
        return self.details["root"]  # type: ignore[no-any-return]

    @property
    def actions(self) -> dict[str, Any]:
        return self.details["actions"]  # type: ignore[no-any-return]

    @property
    def error(self) -> dict[str, str]:
        assert self.phase != "SUCCEEDED", self.details["outputs"]
        return self.root["error"]  # type: ignore[no-any-return]

    def named(self, name: str) -> list[dict[str, Any]]:
        """The actions of a task, by the last part of its name."""
        return [a for a in self.actions.values() if a["name"].rsplit(".", 1)[-1] == name]

    def stamps(self, label: str) -> int:
        return len(list(self.folder.glob(f"{label}.*")))

    def logs(self, action: str = "a0", **more: Any) -> str:
        return self.server.logs(self.run, action, **more)

    def failure(self) -> dict[str, str]:
        return self.server.reader.ask("failure", run=self.run)  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server that most tests share."""
    root = tmp_path_factory.mktemp("wingbeat")
    (root / "home").mkdir()
    it = Server(root / "data", root / "home")
    it.up()
    yield it
    it.stop()


@pytest.fixture
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Servers of a test's own: `start_server("--cpus", "2")`."""
    started: list[Server] = []

    def start(*options: str) -> Server:
        root = tmp_path_factory.mktemp("own")
        (root / "home").mkdir()
        it = Server(root / "data", root / "home", *options)
        started.append(it)
        it.up()
        return it

    yield start
    for it in started:
        it.stop()


Submission = tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]]


def _submissions(item: pytest.Item) -> list[Submission]:
    return [(m.args, tuple(sorted(m.kwargs.items()))) for m in reversed(list(item.iter_markers("submits")))]


@pytest.fixture(scope="session")
def submitted(
    server: Server, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Submission, tuple[pathlib.Path, concurrent.futures.Future[str]]]]:
    """Every run that a selected test asks for, on its way."""
    pool = concurrent.futures.ThreadPoolExecutor(SUBMITTERS)
    result: dict[Submission, tuple[pathlib.Path, concurrent.futures.Future[str]]] = {}
    for item in request.session.items:
        for submission in _submissions(item):
            if submission not in result:
                folder = tmp_path_factory.mktemp("run")
                result[submission] = folder, pool.submit(_submit, server, folder, submission)
    yield result
    pool.shutdown(cancel_futures=True)


def _submit(server: Server, folder: pathlib.Path, submission: Submission) -> str:
    (program, task, *args), options = submission
    (folder / "given.txt").write_text("given by hand")
    (folder / "given").mkdir()
    (folder / "given" / "one.txt").write_text("one")
    if "{folder}/frame" in args:
        import pandas as pd

        (folder / "frame").mkdir()
        pd.DataFrame({"n": [1, 2], "word": ["a", "b"]}).to_parquet(folder / "frame" / "part.parquet")
    ready = [a.replace("{folder}", str(folder)) for a in args]
    return server.start(program, task, *ready, **dict(options))


@pytest.fixture
def started(request: pytest.FixtureRequest, server: Server, submitted: Any) -> list[tuple[str, pathlib.Path]]:
    """The names and folders of this test's runs, which may be going on still, in the order of their marks."""
    return [(submitted[s][1].result(110), submitted[s][0]) for s in _submissions(request.node)]


@pytest.fixture
def outcomes(request: pytest.FixtureRequest, server: Server, submitted: Any) -> list[Outcome]:
    """The ends of this test's runs, in the order of their marks."""
    result = []
    for submission in _submissions(request.node):
        folder, future = submitted[submission]
        result.append(Outcome(server, folder, server.finish(future.result(110))))
    return result


@pytest.fixture
def outcome(outcomes: list[Outcome]) -> Outcome:
    (one,) = outcomes
    return one


# -- a skipped test is a failed one ----------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "submits(program, task, *args, options=()): a run that the test reads back")


def _no_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"a skipped conformance test counts as failed: {report.longrepr}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    _no_skip((yield).get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    _no_skip((yield).get_result())
