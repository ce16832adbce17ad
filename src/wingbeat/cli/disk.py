"""The disk below the data folder: what kind it is, and what is left of it."""

from __future__ import annotations

import os
from pathlib import Path

from wingbeat.cli.errors import CliError, command, existing, other_folder
from wingbeat.server.quantities import format_size
from wingbeat.server.settings import Settings

NETWORK = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone"]
)
"""SQLite's write-ahead log needs memory shared by all who use the file, which these cannot give."""
LEAST_FREE = 32 << 20
"""Bytes: with less, nothing useful can be done."""
GOOD_FREE = 2 << 30


def file_system_type(path: Path) -> str:
    """Of the mount that `path` (or the nearest folder above it that exists) is on, as the kernel calls it."""
    there = f"{existing(path).resolve()}/"
    best, kind = "", "unknown"
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return kind
    for line in lines:
        left, _, right = line.partition(" - ")
        # Blanks and the like are written in octal. Of several mounts on one place the last is the one that is seen.
        point = left.split()[4].encode().decode("unicode_escape").rstrip("/") + "/"
        if there.startswith(point) and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


def free_space(path: Path) -> int:
    """Bytes that this user may still write."""
    found = os.statvfs(existing(path))
    return found.f_bavail * found.f_frsize


def check_disk(settings: Settings) -> None:
    """Raises CliError for a disk that a server cannot work on."""
    folder = settings.data_dir
    kind = file_system_type(folder)
    if kind in NETWORK and not settings.database.startswith("postgres"):
        raise CliError(
            f"the data folder {folder} is on a network file system ({kind}), where the database would be damaged",
            command("wingbeat", "up", "--data-dir", other_folder(folder)),
        )
    free = free_space(folder)
    if free < LEAST_FREE:
        raise CliError(
            f"the disk of the data folder {folder} is full: {format_size(free)} left, at least "
            f"{format_size(LEAST_FREE)} are needed",
            command("df", "-h", existing(folder)),
        )
