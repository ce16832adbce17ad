"""The data folder: one server at a time, and what a server leaves there for the next one and for clients.

lock          held (flock) by the server for as long as it lives
id            names the folder: processes of tasks carry it, so two folders never touch each other's
layout        the version of all of this
port          the port to take again, because live tasks and clients know it
server.json   who holds the lock; stale when nobody does
flyte.yaml    the clients' configuration
example/      a first workflow to run; yours to change
server.log    what a server in the background writes
stop.json     how the one who stops the server wants it done
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shlex
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import yaml  # type: ignore[import-untyped]

from wingbeat.server.example import HELLO

LAYOUT = 1
"""Raised when an older version could not use the folder any more."""


class FolderError(Exception):
    """The folder cannot be used; says why."""


class NewerFolder(FolderError):
    """A newer version has used the folder in a way that this one does not know."""


class FolderFull(FolderError):
    """No space is left on its disk."""


class FolderNotWritable(FolderError):
    """This user may not write there."""


class AddressUnusable(Exception):
    """This computer does not have the address."""


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The server that holds the lock, as it says itself."""

    pid: int
    started: int
    """When the process started, in clock ticks since boot: with the pid it names a process for good."""
    started_at: float
    """Seconds since 1970."""
    endpoint: str
    version: str
    python: str
    """The Python that tasks run in."""
    python_version: str = ""
    sdk_version: str = ""
    log: str = ""
    """Where its log is; empty when it runs in a terminal."""

    def is_alive(self) -> bool:
        """Whether this very process still runs."""
        return process_start(self.pid) == self.started


class StopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Read by a server that is told to end (SIGTERM)."""

    keep_tasks: bool = False
    """Leave task processes alone: the next server takes them up."""


class DataFolder:
    """The folder at `path`. Nothing is made before `prepare`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock_file = path / "lock"
        self.log_file = path / "server.log"
        self.client_config = path / "flyte.yaml"
        self.example = path / "example" / "hello.py"

    # - being there -

    def prepare(self) -> None:
        """Make the folder (mode 0700) and check that it can be used. Raises FolderError."""
        with _problems(self.path):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.path.stat().st_uid != os.geteuid() and os.geteuid() != 0:
                raise FolderNotWritable(f"the data folder {self.path} belongs to another user")
            self.path.chmod(0o700)
        layout = self._read("layout")
        if layout.isdigit() and int(layout) > LAYOUT:
            raise NewerFolder(
                f"the data folder {self.path} was used by a newer version of Wingbeat "
                f"(layout {layout}, this version knows {LAYOUT})"
            )
        with _problems(self.path):
            # More than the file system's last reserve, and gone again at once.
            with tempfile.TemporaryFile(dir=self.path) as trial:
                trial.write(bytes(1 << 20))
                trial.flush()
                os.fsync(trial.fileno())
            if layout != str(LAYOUT):
                self._write("layout", f"{LAYOUT}\n")
            if not self._read("id"):
                self._write("id", f"{secrets.token_hex(8)}\n")

    def is_ours(self) -> bool:
        """Whether a server has ever used it: never remove what is in any other folder."""
        return (self.path / "id").exists() and (self.path / "layout").exists()

    @property
    def id(self) -> str:
        return self._read("id")

    @property
    def runtime_dir(self) -> Path:
        """For sockets, whose paths must be short."""
        base = os.environ.get("XDG_RUNTIME_DIR", "")
        if base.startswith("/") and len(base) < 40 and os.access(base, os.W_OK):
            return Path(base) / f"wingbeat-{self.id}"
        return Path(tempfile.gettempdir()) / f"wingbeat-{os.geteuid()}-{self.id}"

    # - who serves it -

    def lock(self) -> contextlib.ExitStack | None:
        """Take the lock: closing what is returned gives it back, and so does the end of this process, however it
        comes. None when another server has it."""
        with _problems(self.path):
            handle = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            raise FolderError(f"the file system of {self.path} has no working locks: {error.strerror}") from error
        held = contextlib.ExitStack()
        held.callback(os.close, handle)
        return held

    def is_served(self) -> bool:
        """Whether a server holds the lock now."""
        try:
            handle = os.open(self.lock_file, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            # A shared lock: two who look at the same time do not see each other.
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(handle)
        return False

    def server(self) -> ServerInfo | None:
        """Who serves the folder now; None for nobody, or while it has not said so yet."""
        if not self.is_served():
            return None
        try:
            info = msgspec.json.decode((self.path / "server.json").read_bytes(), type=ServerInfo)
        except (OSError, msgspec.DecodeError):
            return None
        return info if info.is_alive() else None

    def announce(self, info: ServerInfo) -> None:
        """To be called by the one who holds the lock, when clients can be served."""
        self._write("server.json", msgspec.json.encode(info).decode())

    def retract(self) -> None:
        """The server of this folder goes."""
        (self.path / "server.json").unlink(missing_ok=True)
        (self.path / "stop.json").unlink(missing_ok=True)

    # - how it stops -

    def request_stop(self, request: StopRequest) -> None:
        if request == StopRequest():
            # What is meant without a request. A server can be stopped on a full disk, too.
            (self.path / "stop.json").unlink(missing_ok=True)
        else:
            self._write("stop.json", msgspec.json.encode(request).decode())

    def stop_request(self) -> StopRequest:
        """What was asked for; without a request the default."""
        try:
            return msgspec.json.decode((self.path / "stop.json").read_bytes(), type=StopRequest)
        except (OSError, msgspec.DecodeError):
            return StopRequest()

    # - where it listens, and what clients need -

    def kept_port(self) -> int | None:
        port = self._read("port")
        return int(port) if port.isdigit() and 0 < int(port) < 65536 else None

    def keep_port(self, port: int) -> None:
        if self.kept_port() != port:
            self._write("port", f"{port}\n")

    def write_client_config(self, endpoint: str, *, org: str, project: str, domain: str) -> None:
        """`flyte --config` of it works as it stands. Mode 0600."""
        content = {
            "admin": {"endpoint": endpoint, "insecure": True},
            # Images are this server's business: the client must not look for Docker.
            "image": {"builder": "remote"},
            "task": {"org": org, "project": project, "domain": domain},
        }
        head = "# Written by `wingbeat up` each time it starts. Use: flyte --config <this file> ...\n"
        self._write("flyte.yaml", head + yaml.safe_dump(content))

    def write_example(self) -> None:
        """Put a first workflow there, once: whoever changed it keeps it."""
        if not self.example.exists():
            with _problems(self.path):
                self.example.parent.mkdir(mode=0o700, exist_ok=True)
                self.example.write_text(HELLO)

    @property
    def first_command(self) -> str:
        """What runs it, from any folder: the SDK wants to be called in the folder of the code, or above it."""
        folder = shlex.quote(str(self.example.parent))
        return f"cd {folder} && flyte --config ../{self.client_config.name} run {self.example.name} main --n 3"

    def _read(self, name: str) -> str:
        try:
            return (self.path / name).read_text().strip()
        except OSError:
            return ""

    def _write(self, name: str, text: str) -> None:
        """Atomically, mode 0600, and not at all when it says that already."""
        if self._read(name) == text.strip():
            return
        with _problems(self.path):
            handle, temporary = tempfile.mkstemp(dir=self.path, prefix=f".{name}-")
            try:
                with open(handle, "w") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(handle)
                Path(temporary).rename(self.path / name)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise


def process_start(pid: int) -> int:
    """When the process started, in clock ticks since boot; 0 for one that is gone."""
    try:
        # The second field is a name in parentheses, which may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in ("Z", "X") else int(fields[19])


BACKLOG = 2048
"""A fan-out starts hundreds of processes that connect at the same moment."""


def listen(host: str, port: int) -> socket.socket | None:
    """A socket that listens there, so that from now on nobody else can; None when someone does already. Port 0 takes
    any. Whoever connects before it is served waits. Raises AddressUnusable."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            return None
        raise AddressUnusable(f"cannot listen on {host}: {error.strerror}") from error
    except BaseException:
        listener.close()
        raise
    return listener


def listen_near(host: str, preferred: int) -> socket.socket:
    """As `listen`, at `preferred` or one of the next hundred ports, else at any."""
    for port in (*range(preferred, min(preferred + 100, 65536)), 0):
        listener = listen(host, port)
        if listener is not None:
            return listener
    raise AddressUnusable(f"cannot listen on {host}: all ports are taken")


def port_is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now. Raises AddressUnusable."""
    listener = listen(host, port)
    if listener is None:
        return False
    listener.close()
    return True


@contextlib.contextmanager
def _problems(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FolderFull(f"the disk of the data folder {path} is full") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise FolderNotWritable(f"the data folder {path} is not writable: {error.strerror}") from error
        if error.errno in (errno.ENOTDIR, errno.EEXIST):
            raise FolderNotWritable(f"the data folder {path} is no folder, or something above it is a file") from error
        raise FolderError(f"the data folder {path} cannot be used: {error.strerror}") from error
