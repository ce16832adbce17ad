import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from wingbeat.server.folder import DataFolder

GOLDEN = Path(__file__).parent / "golden"


@dataclass
class Result:
    code: int
    out: str
    err: str


@dataclass
class Cli:
    """Runs the command as a user would: its own process, its own home."""

    home: Path

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def folder(self) -> DataFolder:
        return DataFolder(self.data)

    def environment(self, **more: str) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("WINGBEAT_", "XDG_", "FLYTE"))
        }
        kept |= {
            "HOME": str(self.home),
            "DO_NOT_TRACK": "1",
            "WINGBEAT_DATA_DIR": str(self.data),
        }
        return {**kept, **more}

    def __call__(self, *arguments: str | Path, answer: str = "", **environment: str) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "wingbeat.cli", *map(str, arguments)],
            capture_output=True,
            text=True,
            input=answer,
            env=self.environment(**environment),
            timeout=90,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "wingbeat.cli", "up", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(**environment),
        )


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    cli = Cli(tmp_path)
    yield cli
    for folder in (cli.data, *tmp_path.glob("*/data")):
        if (folder / "id").exists():
            cli("stop", "--data-dir", folder)
            cli("stop", "--data-dir", folder)  # what a server that was told to keep its tasks has left


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def golden() -> Callable[[str, Result, dict[str, object]], None]:
    """Compare what a command printed, and its exit code, with a kept file; what differs from run to run is named.
    With GOLDEN_UPDATE=1 the files are written."""

    def check(name: str, result: Result, names: dict[str, object]) -> None:
        text = f"exit code {result.code}\n--- output\n{result.out}--- errors\n{result.err}"
        for placeholder, value in sorted(names.items(), key=lambda item: -len(str(item[1]))):
            text = text.replace(str(value), f"<{placeholder}>")
        text = re.sub(r"\d+(\.\d+)? (B|KiB|MiB) left", "<free> left", text)
        path = GOLDEN / f"{name}.txt"
        if os.environ.get("GOLDEN_UPDATE"):
            path.write_text(text)
        assert text == path.read_text()

    return check
