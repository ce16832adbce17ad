"""A server that is killed, starved and stopped, and what its tasks and its records say of it afterwards."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

HERE = pathlib.Path(__file__).parent
PROGRAMS = HERE / "programs"
READBACK = HERE.parent / "conformance" / "readback.py"
BIN = pathlib.Path(sys.executable).parent


def pause(seconds: float = 0.05) -> None:
    threading.Event().wait(seconds)


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Look until `condition` is true; returns what it returned."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        pause()
    return found


def unused_port() -> int:
    """Far from the default and from those that the kernel gives away: it must still be free after a kill."""
    while True:
        port = random.randrange(14000, 30000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def carrying(marker: str) -> dict[int, str]:
    """Living processes whose environment holds `marker`, with their command lines."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if marker.encode() in (entry / "environ").read_bytes():
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
                if state not in (b"Z", b"X"):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


@dataclasses.dataclass(frozen=True)
class Stamp:
    event: str
    attempt: int
    pid: int
    at: int
    """Nanoseconds of the monotonic clock, which all processes share."""


def stamps(folder: pathlib.Path) -> dict[str, list[Stamp]]:
    """What every action wrote, in order, by its name."""
    result = {}
    for path in folder.iterdir():
        lines = [line.split() for line in path.read_text().splitlines()]
        result[path.name] = [Stamp(event, int(a), int(pid), int(at)) for event, a, pid, at in lines]
    return result


def starts(written: list[Stamp]) -> Counter[int]:
    """How often each attempt began (the first is 0)."""
    return Counter(stamp.attempt for stamp in written if stamp.event == "start")


def overlaps(written: list[Stamp]) -> list[tuple[Stamp, Stamp]]:
    """Pairs of executions of one action that were alive at once. One without an end was killed, and what tells that
    it was gone by then is that nothing of it is written after the next start."""
    spans: dict[int, list[Stamp]] = {}
    for stamp in written:
        spans.setdefault(stamp.pid, []).append(stamp)
    ordered = sorted(spans.values(), key=lambda span: span[0].at)
    return [(a[-1], b[0]) for a, b in itertools.pairwise(ordered) if a[-1].at > b[0].at]


class Reader:
    """One long-lived client process of the SDK that reads things back, see tests/conformance/readback.py."""

    def __init__(self, server: Server) -> None:
        self._errors = open(server.home / "reader.log", "a")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, str(READBACK), str(server.data / "flyte.yaml"), "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=server.env,
            cwd=server.home,
        )
        self._numbers = itertools.count()
        self._waiting: dict[int, concurrent.futures.Future[Any]] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            try:
                reply = json.loads(line)
                future = self._waiting.pop(reply["id"])
            except (ValueError, KeyError, TypeError):
                continue
            if "error" in reply:
                future.set_exception(AssertionError("the SDK could not read it back:\n" + reply["error"]))
            else:
                future.set_result(reply["value"])
        for future in list(self._waiting.values()):
            future.set_exception(AssertionError("the reading client ended"))

    def ask(self, op: str, timeout: float = 100, **arguments: Any) -> Any:
        number = next(self._numbers)
        future = self._waiting[number] = concurrent.futures.Future()
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"id": number, "op": op, **arguments}) + "\n")
        self._process.stdin.flush()
        return future.result(timeout)

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


class Server:
    """A Wingbeat on a data folder of its own; started, killed and started again."""

    def __init__(self, data: pathlib.Path, home: pathlib.Path) -> None:
        self.data = data
        self.home = home
        self.port = unused_port()
        self._reader: Reader | None = None
        kept = {k: v for k, v in os.environ.items() if k in ("LANG", "TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
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

    def run(self, *command: str, check: bool = True, timeout: float = 120, **env: str) -> subprocess.CompletedProcess:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=self.env | env,
            timeout=timeout,
            cwd=PROGRAMS,
            stdin=subprocess.DEVNULL,
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}\n--- log\n{self.log()[-5000:]}"
            )
        return done

    def wingbeat(self, *args: str, **kwargs: Any) -> subprocess.CompletedProcess:
        return self.run("wingbeat", *args, "--data-dir", str(self.data), **kwargs)

    def up(self, *options: str, crash_at: str = "") -> None:
        self.wingbeat(
            "up",
            "--detach",
            "--port",
            str(self.port),
            *options,
            **({"WINGBEAT_CRASH_AT": crash_at} if crash_at else {}),
        )

    def stop(self, *options: str, check: bool = True) -> None:
        self.let_go()
        self.wingbeat("stop", *options, check=check)

    def flyte(self, *args: str, **kwargs: Any) -> subprocess.CompletedProcess:
        return self.run("flyte", "--config", str(self.data / "flyte.yaml"), *args, **kwargs)

    def start(self, program: str, task: str, *args: str, options: tuple[str, ...] = ()) -> str:
        """Submit a run; returns its name."""
        done = self.flyte("run", *options, f"{program}.py", task, *args)
        match = re.search(r"/runs/([a-z0-9-]+)", re.sub(r"[\s│]+", "", done.stdout + done.stderr))
        assert match, done.stdout + done.stderr
        return match.group(1)

    def log(self) -> str:
        path = self.data / "server.log"
        return path.read_text() if path.exists() else ""

    # -- who is there ------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return int(json.loads((self.data / "server.json").read_text())["pid"])

    @property
    def endpoint(self) -> str:
        return str(json.loads((self.data / "server.json").read_text())["endpoint"])

    @property
    def marker(self) -> str:
        """What every process that works for this data folder carries, from the zygotes down."""
        return f"WINGBEAT_DATA={(self.data / 'id').read_text().strip()}"

    def is_alive(self) -> bool:
        return bool(self.wingbeat("status", check=False).returncode != 3)

    def processes(self) -> dict[int, str]:
        return carrying(self.marker)

    def zygotes(self) -> list[int]:
        found = [pid for pid, line in self.processes().items() if "zygote.py" in line and _is_zygote(pid)]
        # A task that was forked just now has not given itself another name yet.
        return [pid for pid in found if not any(pid in _children(other) for other in found)]

    def data_processes(self) -> list[int]:
        return [pid for pid in _children(self.pid) if "wingbeat.storage.server" in _command(pid)]

    def data_process(self) -> int:
        (pid,) = self.data_processes()
        return pid

    def kill(self) -> None:
        """As hard as it gets; returns when it is gone."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        self.wait_gone(pid)

    def kill_all(self) -> None:
        """Everything that works for this data folder, supervisors first. All of it is ours: it carries the id of a
        folder that a test made."""
        for pid in [*self.zygotes(), *self.processes()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self.processes(), 10, "the end of all processes of the folder")

    @staticmethod
    def wait_gone(pid: int, seconds: float = 30) -> None:
        until(lambda: not _command(pid), seconds, f"the end of process {pid}")

    # -- reading back ------------------------------------------------------------------------------------------------

    def ask(self, op: str, timeout: float = 100, **arguments: Any) -> Any:
        if self._reader is None:
            self._reader = Reader(self)
        return self._reader.ask(op, timeout, **arguments)

    def let_go(self) -> None:
        """A client of a server that is about to die."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def summary(self, run: str, timeout: float = 400) -> dict[str, Any]:
        """Wait for the end of a run; counts of phases and attempts."""
        try:
            return self.ask("summary", timeout, run=run, wait=True)
        except (TimeoutError, concurrent.futures.TimeoutError):
            seen = [a for a in self.ask("actions", run=run) if a["phase"] != "SUCCEEDED"]
            raise AssertionError(f"{run} has not ended within {timeout} s: {seen}\n{self.log()[-5000:]}") from None

    def details(self, run: str, timeout: float = 100, wait: bool = True) -> dict[str, Any]:
        return self.ask("details", timeout, run=run, wait=wait)

    def actions(self, run: str) -> list[dict[str, Any]]:
        return self.ask("actions", run=run)


def _command(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _is_zygote(pid: int) -> bool:
    """A forked task shows its zygote's command line; it is told apart by the name that it gives itself."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "wingbeat-zygote"
    except OSError:
        return False


def _children(pid: int) -> list[int]:
    try:
        threads = list(pathlib.Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return []


def check_ended_once(server: Server, folder: pathlib.Path, run: str, n: int, *, value: int) -> dict[str, Any]:
    """The run (of programs/flock.py, with `n` actions) has succeeded with `value`; every attempt of every action began
    exactly once and no two of an action were alive together; nothing of it is left. Returns how it was read back."""
    seen = server.summary(run)
    assert (seen["phase"], seen["outputs"]) == ("SUCCEEDED", [value])
    assert seen["phases"] == {"SUCCEEDED": n}
    written = stamps(folder)
    assert len(written) == n
    assert not [pair for each in written.values() for pair in overlaps(each)]
    begun = Counter(tuple(sorted(starts(each).items())) for each in written.values())
    retried = seen["attempts"].get("2", 0)
    assert seen["attempts"] == {"1": n - retried, "2": retried}
    assert begun == {((0, 1),): n - retried, ((0, 1), (1, 1)): retried}
    assert retried, "none of the actions was a flaky one"
    check_nothing_left(server)
    return seen


def check_nothing_left(server: Server) -> None:
    """No launch is remembered, and a stop leaves no process of this data folder."""
    attempts = server.data / "attempts"
    until(lambda: not _launches(attempts), 20, f"launches forgotten; there are {_launches(attempts)}")
    server.stop()
    assert not server.processes()


def _launches(attempts: pathlib.Path) -> list[str]:
    return [path.name for path in attempts.iterdir() if not path.name.startswith("+")]
