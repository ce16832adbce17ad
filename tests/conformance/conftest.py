"""The real client against a real server: `flyte` commands, and what they read back."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

PROGRAMS = pathlib.Path(__file__).parent / "programs"
BIN = pathlib.Path(sys.executable).parent


@dataclasses.dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


class Server:
    """A Wingbeat that was started with its own command, and the flyte CLI pointed at it."""

    def __init__(self, data: pathlib.Path, home: pathlib.Path, *options: str) -> None:
        self.data = data
        self.home = home
        self.options = options
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

    def run(self, *command: str, timeout: float = 120, check: bool = True, cwd: pathlib.Path | None = None) -> Result:
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.env, timeout=timeout, cwd=cwd or PROGRAMS
        )
        result = Result(done.returncode, done.stdout, done.stderr)
        if check and result.code != 0:
            log = (self.data / "server.log").read_text()[-3000:] if (self.data / "server.log").exists() else ""
            raise AssertionError(f"{command} ended with {result.code}\n{result.text}\n--- server log\n{log}")
        return result

    def up(self) -> None:
        self.run("wingbeat", "up", "--detach", "--data-dir", str(self.data), *self.options)

    def stop(self) -> None:
        self.run("wingbeat", "stop", "--data-dir", str(self.data), check=False)

    def flyte(self, *args: str, **kwargs) -> Result:
        return self.run("flyte", "--config", str(self.data / "flyte.yaml"), *args, **kwargs)

    def start(self, program: str, task: str, *args: str, options: tuple[str, ...] = (), **kwargs) -> str:
        """Submit a run; returns its name."""
        result = self.flyte("run", *options, f"{program}.py", task, *args, **kwargs)
        match = re.search(r"/runs/([a-z0-9-]+)", re.sub(r"\s+", "", result.text))
        assert match, result.text
        return match.group(1)

    def details(self, run: str, *, wait: bool = False, timeout: float = 120) -> dict:
        """What the SDK reads back of a run and all of its actions: see readback.py."""
        script = str(pathlib.Path(__file__).parent / "readback.py")
        more = ["--wait"] if wait else []
        result = self.run(sys.executable, script, str(self.data / "flyte.yaml"), run, *more, timeout=timeout)
        return json.loads(result.out.splitlines()[-1])

    def finish(self, run: str, timeout: float = 90) -> dict:
        """Wait for the end of a run and read it back."""
        return self.details(run, wait=True, timeout=timeout)

    def go(self, program: str, task: str, *args: str, timeout: float = 90, **kwargs) -> dict:
        """Submit, wait, read back."""
        return self.finish(self.start(program, task, *args, **kwargs), timeout)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("wingbeat")
    (root / "home").mkdir()
    it = Server(root / "data", root / "home")
    it.up()
    yield it
    it.stop()
