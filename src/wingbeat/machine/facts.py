"""What is on disk about each launch, and what follows from it.

<state_dir>/<token>/request.json   the request, durable before anything is asked of a zygote; no secrets
<state_dir>/<token>/start.json     the one claim to run it, made by the child; pid 0 when it was called off
<state_dir>/<token>/kill.json      that and why we end it, written before the first signal
<state_dir>/<token>/exit.json      how it ended, by the zygote
<state_dir>/<token>/work           its working folder
<state_dir>/+kept/<token>          working folders kept for a look, the newest few
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from pathlib import Path
from typing import TypeVar

import msgspec

from wingbeat.machine.processes import boot_id
from wingbeat.machine.protocol import LaunchSpec

TOKEN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,119}")
KEPT = "+kept"

T = TypeVar("T")


class Request(msgspec.Struct, kw_only=True):
    version: int = 1
    boot: str
    """The computer's start during which it was written."""
    spec: LaunchSpec
    secrets: tuple[str, ...] = ()
    """Names of the secret variables, whose values are not here."""


class Claim(msgspec.Struct, kw_only=True):
    pid: int
    start: int
    at: float


class Exit(msgspec.Struct, kw_only=True):
    pid: int
    start: int
    code: int | None = None
    signal: int | None = None
    started_at: float
    ended_at: float
    max_rss: int = 0
    cpu_seconds: float = 0.0
    strays: bool = True


class Kill(msgspec.Struct, kw_only=True):
    why: str
    grace: float = 0.0
    out_of_memory: bool = False
    at: float


class Facts:
    """The folder of one launch."""

    def __init__(self, state_dir: Path, token: str) -> None:
        self.state_dir = state_dir
        self.token = token
        self.folder = state_dir / token

    def write_request(self, spec: LaunchSpec) -> None:
        """Write the request so that it survives a loss of power. Raises OSError."""
        request = Request(
            boot=boot_id(), spec=msgspec.structs.replace(spec, secret_env={}), secrets=tuple(spec.secret_env)
        )
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.folder / "request.json.new"
        with open(temporary, "wb") as file:
            file.write(msgspec.json.encode(request))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.folder / "request.json")
        for folder in (self.folder, self.state_dir):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def request(self) -> Request | None:
        return self._read("request.json", Request)

    def claim(self) -> Claim | None:
        return self._read("start.json", Claim)

    def exit(self) -> Exit | None:
        return self._read("exit.json", Exit)

    def kill(self) -> Kill | None:
        return self._read("kill.json", Kill)

    def write_kill(self, why: str, *, grace: float = 0.0, out_of_memory: bool = False) -> None:
        """As well as the disk allows: what only tells a later server why must not keep us from ending it."""
        with contextlib.suppress(OSError):
            self._write("kill.json", Kill(why=why, grace=grace, out_of_memory=out_of_memory, at=time.time()))

    def call_off(self) -> bool:
        """Take the claim to run away from any child that has not made it yet. False when one has. Raises OSError."""
        temporary = self.folder / f"start.{os.getpid()}"
        try:
            temporary.write_bytes(msgspec.json.encode(Claim(pid=0, start=0, at=time.time())))
            os.link(temporary, self.folder / "start.json")
        except FileExistsError:
            return False
        except FileNotFoundError:
            return True  # the folder is gone, and nothing can start without it
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def remove(self, *, keep_work: bool, kept: int) -> None:
        """Remove the folder; with `keep_work` its working folder moves to the kept ones, of which `kept` stay."""
        if keep_work and kept > 0 and (self.folder / "work").is_dir():
            home = self.state_dir / KEPT
            home.mkdir(mode=0o700, exist_ok=True)
            target = home / self.token
            shutil.rmtree(target, ignore_errors=True)
            with contextlib.suppress(OSError):
                (self.folder / "work").rename(target)
                os.utime(target)
            prune(home, kept)
        # Renamed first: a removal cut short must not leave a folder that looks like a launch without its facts.
        doomed = self.state_dir / f"+removed-{self.token}"
        with contextlib.suppress(OSError):
            shutil.rmtree(doomed, ignore_errors=True)
            self.folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode((self.folder / name).read_bytes(), type=kind)
        except (OSError, msgspec.DecodeError):
            return None

    def _write(self, name: str, value: msgspec.Struct) -> None:
        temporary = self.folder / f"{name}.new"
        with contextlib.suppress(FileNotFoundError):
            temporary.write_bytes(msgspec.json.encode(value))
            temporary.replace(self.folder / name)


def prune(home: Path, keep: int) -> None:
    """Keep the newest so many folders."""
    with contextlib.suppress(OSError):
        folders = sorted(home.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
        for folder in folders[keep:]:
            shutil.rmtree(folder, ignore_errors=True)


def all_tokens(state_dir: Path) -> list[str]:
    """Every launch that has a folder; remains of removals are cleared on the way."""
    tokens = []
    for folder in state_dir.iterdir():
        if folder.name.startswith("+removed-"):
            shutil.rmtree(folder, ignore_errors=True)
        elif TOKEN.fullmatch(folder.name) and folder.is_dir():
            tokens.append(folder.name)
    return sorted(tokens)
