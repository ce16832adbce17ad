"""What `wingbeat doctor` looks at. Each check says what it found and, where that is not right, what to do."""

from __future__ import annotations

import enum
import os
import platform
import resource
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from wingbeat.cli.disk import GOOD_FREE, LEAST_FREE, NETWORK, file_system_type, free_space
from wingbeat.cli.errors import command, existing
from wingbeat.cli.interpreter import look_at, package_version
from wingbeat.cli.running import readiness
from wingbeat.server.folder import AddressUnusable, DataFolder, port_is_free
from wingbeat.server.quantities import format_size
from wingbeat.server.settings import DEFAULT_PORT, Settings


class Level(enum.StrEnum):
    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Finding:
    check: str
    level: Level
    detail: str
    todo: str = ""


def run_checks(settings: Settings) -> list[Finding]:
    return [finding for check in CHECKS for finding in check(settings)]


def _server(settings: Settings) -> Iterator[Finding]:
    folder = DataFolder(settings.data_dir)
    info = folder.server()
    if info is None:
        yield Finding("server", Level.OK, f"not running (data folder {folder.path})")
        return
    ready, why = readiness(info.endpoint)
    if ready:
        yield Finding("server", Level.OK, f"ready at {info.endpoint} (pid {info.pid})")
    else:
        yield Finding(
            "server", Level.FAIL, f"pid {info.pid} at {info.endpoint}: {why}", f"look into {info.log or 'its terminal'}"
        )


def _port(settings: Settings) -> Iterator[Finding]:
    folder = DataFolder(settings.data_dir)
    if folder.server() is not None:
        return
    port = settings.port or folder.kept_port() or DEFAULT_PORT
    try:
        free = port_is_free(settings.host, port)
    except AddressUnusable as error:
        yield Finding("port", Level.FAIL, str(error), "wingbeat up --host 127.0.0.1")
        return
    if free:
        yield Finding("port", Level.OK, f"{port} on {settings.host} is free")
    elif settings.port:
        yield Finding(
            "port", Level.FAIL, f"{port} on {settings.host} is taken", "choose another with --port, or leave it out"
        )
    else:
        yield Finding("port", Level.WARN, f"{port} on {settings.host} is taken; another will be used")


def _folder(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir
    above = existing(folder)
    if not os.access(above, os.W_OK | os.X_OK):
        yield Finding(
            "data folder", Level.FAIL, f"{folder} is not writable", f"ls -ld {above}; or choose another with --data-dir"
        )
    else:
        yield Finding("data folder", Level.OK, str(folder))
    kind = file_system_type(folder)
    if kind in NETWORK:
        level = Level.WARN if settings.database.startswith("postgres") else Level.FAIL
        yield Finding(
            "file system",
            level,
            f"{kind}: a network file system damages the database",
            "choose a local disk with --data-dir",
        )
    elif kind in ("tmpfs", "ramfs"):
        yield Finding(
            "file system", Level.WARN, f"{kind}: gone after a restart of the computer", "choose a disk with --data-dir"
        )
    else:
        yield Finding("file system", Level.OK, kind)
    free = free_space(folder)
    level = Level.FAIL if free < LEAST_FREE else Level.WARN if free < GOOD_FREE else Level.OK
    yield Finding(
        "disk space", level, f"{format_size(free)} free", "" if level is Level.OK else f"free some: df -h {above}"
    )
    inodes = os.statvfs(above)
    if inodes.f_files and inodes.f_favail < 100_000:
        yield Finding("inodes", Level.WARN, f"{inodes.f_favail} free", f"remove small files: df -i {above}")


def _database(settings: Settings) -> Iterator[Finding]:
    path = Path(settings.database_location)
    if settings.database.startswith("postgres") or not path.exists() or DataFolder(settings.data_dir).is_served():
        return
    import sqlite3

    aside = f"{command('mv', path, f'{path}.damaged')}, then start again: runs are lost, data is not"
    try:
        # Read only, and nothing of it is changed: not even the log is taken in.
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            answer = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error as error:
        answer = str(error)
    if answer == "ok":
        yield Finding("database", Level.OK, f"{path} is sound")
    else:
        yield Finding("database", Level.FAIL, f"{path} is damaged: {answer}", aside)


def _storage(settings: Settings) -> Iterator[Finding]:
    if "://" not in settings.storage_uri:
        return  # a folder: in the data folder, or told by the server itself
    import asyncio

    from wingbeat.storage import StorageUnavailable, open_storage

    try:
        asyncio.run(open_storage(settings.storage_uri).check())
    except StorageUnavailable as error:
        yield Finding("storage", Level.FAIL, str(error), "set them where the server is started, then start it again")
    else:
        yield Finding("storage", Level.OK, f"{settings.storage_uri} can be written and read")


def _python(settings: Settings) -> Iterator[Finding]:
    python = look_at(settings.python)
    if python.problem:
        yield Finding("task Python", Level.FAIL, python.problem, python.remedy)
        return
    yield Finding("task Python", Level.OK, f"{python.path} (Python {python.version})")
    ours = package_version("flyteidl2")
    yield Finding("task SDK", Level.OK, f"flyte {python.sdk}; this server speaks flyteidl2 {ours}")
    here = package_version("flyte")
    if here and here != python.sdk:
        yield Finding(
            "client SDK",
            Level.WARN,
            f"`flyte` beside this command is {here}, tasks have {python.sdk}",
            f"{python.path} -m pip install flyte=={here}",
        )


def _tools(settings: Settings) -> Iterator[Finding]:
    # The SDK unpacks code bundles with it, in the task's process.
    tar = shutil.which("tar")
    if tar:
        yield Finding("tar", Level.OK, tar)
    else:
        yield Finding(
            "tar", Level.FAIL, "not found: code of runs cannot be unpacked", "install it, e.g. apt-get install tar"
        )


def _limits(settings: Settings) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for name, value, good, todo in (
        ("open files", hard, 4096, "ulimit -n 65536, or LimitNOFILE in the service"),
        (
            "processes",
            resource.getrlimit(resource.RLIMIT_NPROC)[1],
            1024,
            "ulimit -u 8192, or /etc/security/limits.conf",
        ),
        ("pid_max", _number("/proc/sys/kernel/pid_max"), 32768, "sysctl -w kernel.pid_max=4194304"),
        (
            "inotify watches",
            _number("/proc/sys/fs/inotify/max_user_watches"),
            8192,
            "sysctl -w fs.inotify.max_user_watches=524288",
        ),
    ):
        if value is None:
            continue
        unlimited = value == resource.RLIM_INFINITY
        enough = unlimited or value >= good
        text = (
            "unlimited"
            if unlimited
            else str(value) + (f" (now {soft})" if name == "open files" and soft != hard else "")
        )
        yield Finding(name, Level.OK if enough else Level.WARN, text, "" if enough else todo)
    cgroup_pids = _cgroup_number("pids.max")
    if cgroup_pids is not None:
        enough = cgroup_pids >= 1024
        yield Finding(
            "processes (cgroup)",
            Level.OK if enough else Level.WARN,
            str(cgroup_pids),
            "" if enough else "raise it: --pids-limit",
        )


def _memory_limits(settings: Settings) -> Iterator[Finding]:
    from wingbeat.machine.limits import ControlGroups

    groups = ControlGroups.find("doctor")
    if groups is not None:
        with suppress(OSError):
            groups.parent.rmdir()
        yield Finding("memory limits", Level.OK, "by control groups")
    else:
        # No fault: most computers give their users no groups of their own.
        yield Finding("memory limits", Level.OK, "by watching what tasks use: control groups are not writable here")


def _names(settings: Settings) -> Iterator[Finding]:
    try:
        found = sorted({str(entry[4][0]) for entry in socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM)})
    except OSError as error:
        yield Finding(
            "localhost", Level.FAIL, f"does not resolve: {error}", "add the line `127.0.0.1 localhost` to /etc/hosts"
        )
        return
    wrong = [address for address in found if not address.startswith("127.") and address != "::1"]
    if wrong:
        yield Finding("localhost", Level.FAIL, f"is {', '.join(wrong)}", "have `127.0.0.1 localhost` in /etc/hosts")
    else:
        yield Finding("localhost", Level.OK, f"is {', '.join(found)}")


def _proxies(settings: Settings) -> Iterator[Finding]:
    proxies = {scheme: url for scheme, url in getproxies_environment().items() if scheme in ("http", "https", "all")}
    caught = [host for host in ("127.0.0.1", "localhost") if not proxy_bypass_environment(host)]
    if not proxies:
        yield Finding("proxy", Level.OK, "none")
    elif caught:
        yield Finding(
            "proxy",
            Level.WARN,
            f"{', '.join(sorted(proxies))} is set, also for {' and '.join(caught)}: clients may not reach this server",
            "export NO_PROXY=127.0.0.1,localhost,::1",
        )
    else:
        yield Finding("proxy", Level.OK, "set, but not for this computer")


def _computer(settings: Settings) -> Iterator[Finding]:
    system = platform.system()
    if system == "Linux":
        yield Finding("system", Level.OK, f"Linux {platform.release()} ({platform.machine()})")
    else:
        yield Finding("system", Level.WARN, f"{system} is untested")
    user, root = os.geteuid(), os.geteuid() == 0
    detail = f"uid {user}, gid {os.getegid()}"
    yield Finding("user", Level.OK, detail + (": tasks run as root, too" if root else ""))


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


def _cgroup_number(name: str) -> int | None:
    """The smallest limit `name` of the control groups that this process is in; None for no limit."""
    found: list[int] = []
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in groups:
        _, controllers, path = line.split(":", 2)
        root = Path("/sys/fs/cgroup") / (controllers if controllers else "")
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            value = _number(str(folder / name)) if str(folder).startswith("/sys/fs/cgroup") else None
            if value is not None:
                found.append(value)
    return min(found, default=None)


CHECKS: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
    _computer,
    _server,
    _port,
    _folder,
    _database,
    _storage,
    _python,
    _tools,
    _limits,
    _memory_limits,
    _names,
    _proxies,
)
