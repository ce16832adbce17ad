"""The processes of this computer, read from /proc in one pass: who descends from which launch."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

PROC = Path("/proc")
TOKEN_VARIABLE = "WINGBEAT_TOKEN"
DATA_VARIABLE = "WINGBEAT_DATA"
NO_TOKEN = "#"
"""What a zygote has in place of a token, and so each of its children in its first moment."""


class Process(msgspec.Struct, frozen=True):
    pid: int
    parent: int
    session: int
    start: int
    """Clock ticks since boot; pid and start name a process for good."""
    zombie: bool
    token: str = ""
    """The launch whose marker it carries in its environment, of this data folder only."""


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tree of a launch hangs: its token, its first process if that is known, its control group."""

    token: str
    pid: int = 0
    start: int = 0
    cgroup: str = ""


def boot_id() -> str:
    """Changes with every start of the computer."""
    with contextlib.suppress(OSError):
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    return ""


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of `pid`; None when there is none."""
    process = _read_stat(pid)
    return process.start if process else None


def is_alive(pid: int, start: int) -> bool:
    """Is this very process there, and not a zombie nor another that was given its number?"""
    process = _read_stat(pid) if pid > 0 else None
    return process is not None and process.start == start and not process.zombie


def _read_stat(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return None
    if len(fields) < 20:
        return None
    return Process(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        start=int(fields[19]),
        zombie=fields[0] in (b"Z", b"X"),
    )


def _read_token(pid: int, marker: bytes) -> str:
    """The token in a process's environment, if it is of the data folder with this marker."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            block = file.read()
    except OSError:
        return ""
    if marker not in block:
        return ""
    variables = block.split(b"\0")
    if marker not in variables:
        return ""
    prefix = TOKEN_VARIABLE.encode() + b"="
    for variable in variables:
        if variable.startswith(prefix):
            return variable[len(prefix) :].decode(errors="replace")
    return ""


class ProcessTable:
    """One look at all processes. What starts during the look may be missed; look again."""

    def __init__(self, processes: Iterable[Process]) -> None:
        self.by_pid = {process.pid: process for process in processes}
        self._children: dict[int, list[Process]] = defaultdict(list)
        self._sessions: dict[int, list[Process]] = defaultdict(list)
        self._tokens: dict[str, list[Process]] = defaultdict(list)
        for process in self.by_pid.values():
            self._children[process.parent].append(process)
            self._sessions[process.session].append(process)
            if process.token:
                self._tokens[process.token].append(process)

    @classmethod
    def read(cls, marker: str) -> ProcessTable:
        """Look at all processes; `marker` is the id of the data folder."""
        wanted = f"{DATA_VARIABLE}={marker}".encode()
        found = []
        for name in os.listdir(PROC):  # noqa: PTH208 - many times a second
            if not name.isdigit():
                continue
            process = _read_stat(int(name))
            if process is None or process.parent == 2 or process.pid == 2:  # kernel threads
                continue
            token = "" if process.zombie else _read_token(process.pid, wanted)
            found.append(msgspec.structs.replace(process, token=token) if token else process)
        return cls(found)

    def tokens(self) -> set[str]:
        """Every launch of this data folder that something carries the marker of."""
        return set(self._tokens)

    def tree(self, root: Root) -> list[Process]:
        """All living processes of a launch: its session, its control group, what carries its marker, and whatever
        descends from any of these, however it forked away."""
        seeds = list(self._tokens.get(root.token, ()))
        if root.pid:
            first = self.by_pid.get(root.pid)
            if first is not None and first.start == root.start:
                seeds.append(first)
            # A number stays taken while it names a session. So if another process has it now, the session is gone.
            if first is None or first.start == root.start:
                seeds += self._sessions.get(root.pid, ())
        if root.cgroup:
            seeds += [self.by_pid[pid] for pid in cgroup_members(root.cgroup) if pid in self.by_pid]
        seen: dict[int, Process] = {}
        while seeds:
            process = seeds.pop()
            if process.pid in seen or process.pid == os.getpid():
                continue
            if process.token not in ("", root.token) and not process.token.startswith(NO_TOKEN):
                continue  # another launch's, adopted by something of ours
            seen[process.pid] = process
            seeds += self._children.get(process.pid, ())
        return [process for process in seen.values() if not process.zombie]


def cgroup_members(folder: str) -> list[int]:
    """The processes in a control group; empty when it is gone."""
    try:
        with open(f"{folder}/cgroup.procs") as file:
            return [int(line) for line in file if line.strip().isdigit()]
    except OSError:
        return []


def send(process: Process, number: signal.Signals) -> bool:
    """Signal exactly this process, never another that was given its number. False when it is gone."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except OSError:
        handle = -1  # an old kernel: the start time alone guards, with a moment left between check and signal
    try:
        if start_time(process.pid) != process.start:
            return False
        if handle >= 0:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if handle >= 0:
            os.close(handle)
    return True


def memory(processes: Iterable[Process], enough: int) -> int:
    """Bytes that a tree uses: the sum of its proportional set sizes. Reading those is slow, so the sum of the
    resident sizes, which is never smaller, is returned where that is below `enough`."""
    page = os.sysconf("SC_PAGE_SIZE")
    processes = list(processes)
    resident = 0
    for process in processes:
        with contextlib.suppress(OSError, ValueError, IndexError):
            resident += int((PROC / str(process.pid) / "statm").read_text().split()[1]) * page
    if resident < enough:
        return resident
    total = 0
    for process in processes:
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = (PROC / str(process.pid) / "smaps_rollup").read_text()
            total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) * 1024
    return total
