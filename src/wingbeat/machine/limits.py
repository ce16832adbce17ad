"""Memory limits: a control group for each launch where they are writable, else a watch over what its tree uses.

An rlimit would only make an allocation fail inside the process, which user code may catch; these end the tree.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Literal

from wingbeat.machine.processes import cgroup_members

LimitsMode = Literal["auto", "cgroup", "watchdog", "off"]


class LimitsError(Exception):
    """The way of limiting memory that was asked for does not work here."""


class ControlGroups:
    """Memory control groups of one data folder, version 1 or 2, one below another: ours, then one a launch."""

    def __init__(self, parent: Path, version: int) -> None:
        self.parent = parent
        self.version = version

    @classmethod
    def find(cls, marker: str) -> ControlGroups | None:
        """Groups that this process may make; None where it may not."""
        for base, version in _candidates():
            parent = base / f"wingbeat-{marker[:32]}"
            groups = cls(parent, version)
            with contextlib.suppress(OSError):
                if version == 2:
                    # Processes must not be beside groups, so this works where ours holds none or is the root.
                    (base / "cgroup.subtree_control").write_text("+memory")
                parent.mkdir(exist_ok=True)
                if version == 2:
                    (parent / "cgroup.subtree_control").write_text("+memory")
                trial = parent / "+trial"
                trial.mkdir(exist_ok=True)
                limit = trial / groups._limit_file
                works = os.access(limit, os.W_OK) and os.access(trial / "cgroup.procs", os.W_OK)
                trial.rmdir()
                if works:
                    return groups
        return None

    @property
    def _limit_file(self) -> str:
        return "memory.limit_in_bytes" if self.version == 1 else "memory.max"

    def folder(self, token: str) -> Path:
        return self.parent / token

    def make(self, token: str, limit: int) -> Path:
        """The group of a launch, with its limit in bytes. Raises OSError."""
        folder = self.folder(token)
        folder.mkdir(exist_ok=True)
        (folder / self._limit_file).write_text(str(limit))
        # Swap would only put the end off. Where it is not accounted for, the files are not there.
        if self.version == 1:
            with contextlib.suppress(OSError):
                (folder / "memory.memsw.limit_in_bytes").write_text(str(limit))
        else:
            with contextlib.suppress(OSError):
                (folder / "memory.swap.max").write_text("0")
            with contextlib.suppress(OSError):
                (folder / "memory.oom.group").write_text("1")
        return folder

    def kills(self, token: str) -> int:
        """How many processes the kernel ended in this group for want of memory."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        with contextlib.suppress(OSError, ValueError):
            for line in (self.folder(token) / name).read_text().splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
        return 0

    def peak(self, token: str) -> int:
        """The most bytes that the group used; 0 where the kernel does not say."""
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder(token) / name).read_text())
        return 0

    def release(self, token: str) -> bool:
        """Remove the group of a launch; False while something is in it."""
        try:
            self.folder(token).rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def sweep(self, keep: set[str]) -> None:
        """Remove empty groups that an earlier server left."""
        with contextlib.suppress(OSError):
            for folder in self.parent.iterdir():
                if folder.is_dir() and folder.name not in keep and not cgroup_members(str(folder)):
                    with contextlib.suppress(OSError):
                        folder.rmdir()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.parent.rmdir()


def choose(mode: LimitsMode, marker: str) -> ControlGroups | None:
    """The groups to use, or None where there are none: then usage is watched, except with `off`. Raises LimitsError
    for `cgroup` where none work."""
    if mode == "off":
        return None
    groups = ControlGroups.find(marker) if mode in ("auto", "cgroup") else None
    if mode == "cgroup" and groups is None:
        raise LimitsError(
            "Memory limits by control group were asked for, but no memory control group is writable here. "
            "Use memory_limits = auto or watchdog, or have the administrator delegate one."
        )
    return groups


def _candidates() -> list[tuple[Path, int]]:
    """Where a memory group might be made: below the one that we are in, or below the mount."""
    own: dict[str, str] = {}
    unified = ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                unified = path
            for controller in controllers.split(","):
                own[controller] = path
    found: list[tuple[Path, int]] = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            before, _, after = line.partition(" - ")
            root, mount = before.split()[3:5]
            kind, _, options = after.split(" ", 2)
            if kind == "cgroup" and "memory" in options.split()[-1].split(","):
                found += [(base, 1) for base in _below(mount, root, own.get("memory", "/"))]
            elif kind == "cgroup2" and "memory" in _words(Path(mount) / "cgroup.controllers"):
                found += [(base, 2) for base in _below(mount, root, unified or "/")]
    return found


def _below(mount: str, root: str, path: str) -> list[Path]:
    """Inside a container the path may be told from outside; then only the mount itself is ours."""
    relative = path[len(root) :] if root != "/" and path.startswith(root) else path
    inner = Path(mount) / relative.strip("/")
    return [inner, Path(mount)] if inner.is_dir() and inner != Path(mount) else [Path(mount)]


def _words(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return path.read_text().split()
    return []
