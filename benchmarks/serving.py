"""A Wingbeat in a folder of its own, and the raw Connect calls that the programs need."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flyteidl2.common.identifier_pb2 import ProjectIdentifier, RunIdentifier
from flyteidl2.core.interface_pb2 import TypedInterface
from flyteidl2.core.tasks_pb2 import TaskTemplate
from flyteidl2.task.task_definition_pb2 import TaskSpec
from flyteidl2.workflow.run_service_pb2 import CreateRunRequest

from benchmarks.processes import descendants

BIN = Path(sys.executable).parent
PROGRAMS = Path(__file__).parent / "programs"
TERMINAL = ("SUCCEEDED", "FAILED", "ABORTED", "TIMED_OUT")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="wingbeat-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Server:
    """`wingbeat up` in the foreground of a child process."""

    def __init__(self, home: Path, *options: str) -> None:
        self.home = home
        self.data = home / "data"
        self.port = free_port()
        self.options = options
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR")}
        self.env = {**kept, "PATH": f"{BIN}{os.pathsep}{kept['PATH']}", "HOME": str(home), "DO_NOT_TRACK": "1"}
        self.env |= {"COLUMNS": "200", "NO_COLOR": "1"}
        self.process: subprocess.Popen[bytes] | None = None
        self._connection: http.client.HTTPConnection | None = None

    # -- life --------------------------------------------------------------------------------------------------------

    def exec(self) -> float:
        """Start it and return at once; the time of the start."""
        begin = time.monotonic()
        with open(self.home / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                [str(BIN / "wingbeat"), "up", "--data-dir", str(self.data), "--port", str(self.port), *self.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                cwd=self.home,
            )
        return begin

    def wait_ready(self) -> float:
        """When /readyz first said yes."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError((self.home / "server.log").read_text()[-3000:])
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
                connection.request("GET", "/readyz")
                answer = connection.getresponse()
                answer.read()
                if answer.status == 200:
                    self._connection = connection
                    return time.monotonic()
            time.sleep(0.004)
        raise RuntimeError("not ready within 120 s")

    def up(self) -> Server:
        self.exec()
        self.wait_ready()
        return self

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
            self.process = None
        self._connection = None

    def __enter__(self) -> Server:
        return self.up()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- its processes -----------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def processes(self) -> list[int]:
        """The server, the process for bulk data, and the zygotes."""
        return descendants(self.pid)

    def zygotes(self) -> list[int]:
        return [pid for pid in self.processes() if Path(f"/proc/{pid}/comm").read_text() == "wingbeat-zygote\n"]

    def wait_zygote(self) -> int:
        """The pid of the first zygote, once it can fork."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if found := self.zygotes():
                return found[0]
            time.sleep(0.02)
        raise RuntimeError("no zygote within 60 s")

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(self, method: str, body: bytes, content_type: str = "application/proto") -> bytes:
        """A unary Connect call; `method` is `Service/Method`, with its package."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self._connection.request("POST", f"/{method}", body, {"Content-Type": content_type})
        answer = self._connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{method}: {answer.status} {data[:500]!r}")
        return data

    def ask(self, method: str, request: dict[str, Any]) -> dict[str, Any]:
        """The same in JSON."""
        return dict(json.loads(self.call(method, json.dumps(request).encode(), "application/json")))

    def create_run(self, name: str, spec: Any = None, inputs: Any = None) -> float:
        """Submit a run of `spec`, else of a command that ends at once; when it was accepted."""
        request = CreateRunRequest(task_spec=spec or command_spec("true"))
        request.run_id.CopyFrom(run_identifier(name))
        if inputs is not None:
            request.inputs.CopyFrom(inputs)
        else:
            request.inputs.SetInParent()
        self.call("flyteidl2.workflow.RunService/CreateRun", request.SerializeToString())
        return time.monotonic()

    def phase(self, run: str) -> str:
        request = {"runId": {"org": "local", "project": "default", "domain": "development", "name": run}}
        details = self.ask("flyteidl2.workflow.RunService/GetRunDetails", request)
        return str(details["details"]["action"]["status"].get("phase", "")).removeprefix("ACTION_PHASE_")

    def wait_end(self, run: str, timeout: float = 600, sign: Path | None = None) -> str:
        """How the run ended. Where the run leaves a `sign`, the server is not asked before that is there: questions
        cost it something too."""
        end = time.monotonic() + timeout
        while sign is not None and not sign.exists() and time.monotonic() < end - timeout / 2:
            time.sleep(0.05)
        while (phase := self.phase(run)) not in TERMINAL:
            if time.monotonic() > end:
                raise RuntimeError(f"run {run} is {phase} after {timeout:g} s")
            time.sleep(0.05)
        return phase

    def flyte_run(self, run: str, program: str, task: str, *arguments: str) -> None:
        """Submit a program of `programs/` through the real CLI."""
        command = [str(BIN / "flyte"), "--config", str(self.data / "flyte.yaml"), "run", "--name", run]
        done = subprocess.run(
            [*command, f"{program}.py", task, *arguments], env=self.env, cwd=PROGRAMS, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(f"flyte run ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def run_identifier(name: str) -> Any:
    return RunIdentifier(org="local", project="default", domain="development", name=name)


def project_identifier() -> Any:
    return ProjectIdentifier(organization="local", name="default", domain="development")


def command_spec(*command: str, name: str = "bench.command", cpus: str = "") -> Any:
    """A task that is a plain command line."""
    template = TaskTemplate(type="container", interface=TypedInterface())
    template.id.org, template.id.project, template.id.domain = "local", "default", "development"
    template.id.name, template.id.version = name, "v1"
    template.container.image = "any"
    template.container.command.extend(command)
    if cpus:
        template.container.resources.requests.add(name=1, value=cpus)
    spec = TaskSpec(task_template=template, short_name=name.rpartition(".")[2])
    spec.environment.name = "bench"
    return spec
