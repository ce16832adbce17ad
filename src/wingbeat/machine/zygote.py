"""The zygote: starts and supervises the processes of one Python environment, and outlives the server.

This file is run by the *environment's* interpreter (`<interpreter> zygote.py '<configuration as JSON>'`), which
has the Flyte SDK but perhaps not Wingbeat. So it uses the standard library only and Python 3.10's syntax.

In `fork` mode it imports the SDK's runtime once, and every `a0` launch is a fork of that: tens of milliseconds
instead of 0.6 s of imports. It leans on a few internals of the SDK; they are probed at start, and where a probe
fails the file runs itself again in `spawn` mode, in which each `a0` is a fresh interpreter. Everything else is the
same in both: the Unix socket, one JSON object a line, the log files, the start marker and `exit.json`.

One thread, always: forking a process with threads copies locks that nobody will ever open.

Facts on disk, in the folder of each launch:
`start.json` is claimed (created, never replaced) by the child before any user code; who finds it there already does
not run. That makes a start happen at most once, whoever asks and however often.
`exit.json` appears, whole, once the child has been reaped.
"""

# The `os` functions, since they are what runs in every child, and pathlib only wraps them:
# ruff: noqa: E402, PTH103, PTH105, PTH108, PTH110, PTH111, PTH116, PTH118, PTH119, PTH120, PTH208

from __future__ import annotations

import sys

# The folder of this file holds modules of Wingbeat's; none of them may be importable by a task.
sys.path[:] = [entry for entry in sys.path if entry != __file__.rpartition("/")[0]]

import atexit
import contextlib
import contextvars
import errno
import gc
import importlib
import importlib.util
import json
import os
import platform
import resource
import selectors
import signal
import socket
import struct
import tarfile
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

PROTOCOL = 1
TOKEN_VARIABLE = b"WINGBEAT_TOKEN="
TOKEN_ROOM = 160
"""Bytes that the server reserves in our own environment for the token of each forked child."""
MAX_LINE = 16 * 1024
"""Longer lines of output are logged in pieces."""
PARTIAL_FLUSH_SECONDS = 0.5
MAX_REQUEST = 64 * 1024 * 1024
LONGEST_START = 15.0
"""Seconds after which a start-up counts as over, whatever it does."""
MAX_BACKLOG = 16 * 1024 * 1024
SMALL_ARCHIVE = 1024 * 1024
PRELOAD = (
    "flyte",
    "flyte.errors",
    "flyte.storage",
    "flyte.report",
    "flyte.remote",
    "flyte._bin.runtime",
    "flyte._initialize",
    "flyte._internal.controllers.remote",
    "flyte._internal.controllers.remote._controller",
    "flyte._internal.controllers.remote._client",
    "flyte._internal.resolvers.default",
    "flyte._internal.runtime.entrypoints",
    "flyte._internal.runtime.taskrunner",
    "flyte.remote._client.controlplane",
    # What these and their libraries import only when they are first used:
    "docstring_parser",
    "faulthandler",
    "flyte._utils.asyncify",
    "flyte.git",
    "flyte.remote._client.auth._interceptors.default_metadata",
    "flyte.remote._client.auth._interceptors.retry",
    "opentelemetry.metrics",
    "opentelemetry.propagate",
    "opentelemetry.trace",
    "pyqwest._glue",
)
# Read once, when the interpreter, the allocator or the SDK starts: a fork cannot follow a change of these.
START_VARIABLES = ("LD_", "PYTHON", "MALLOC_", "GLIBC_TUNABLES", "FLYTE_IO_", "_F_TE_MAX_COROS", "OTEL_")
FOLLOWED_VARIABLES = ("PYTHONUNBUFFERED", "PYTHONPATH", "PYTHONIOENCODING", "PYTHONDONTWRITEBYTECODE")


def start_time(pid: int) -> int:
    """When `pid` started, in clock ticks since boot; with the pid it names a process for good."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def write_json(path: str, value: Any) -> None:
    """Write a file that is there whole or not at all."""
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w") as file:
        json.dump(value, file)
    os.replace(temporary, path)


# --- the SDK ---------------------------------------------------------------------------------------------------------


class Unforkable(Exception):
    """The SDK in this environment cannot be preloaded and forked; the message says why."""


class Sdk:
    """The preloaded SDK: what is stopped before a fork, and started again in the child."""

    def __init__(self, extra: list[str]) -> None:
        for name in PRELOAD[:6]:
            try:
                importlib.import_module(name)
            except Exception as error:
                raise Unforkable(f"importing {name} failed: {type(error).__name__}: {error}") from error
        for name in (*PRELOAD[6:], *extra):
            # The inner modules only save time; a name that another SDK version lacks is no reason to stop.
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        try:
            self.main = sys.modules["flyte._bin.runtime"].main
            api = importlib.import_module("flyte.syncify._api")
            kind = api._BackgroundLoop
            self.configured = getattr(api, "_configured_loops", None)
            self.loops = [thing for thing in gc.get_objects() if type(thing) is kind]
            for loop in self.loops:
                atexit.unregister(loop.stop)
                loop.stop()
                loop.thread.join(5)
                loop.loop.close()
            if not self.loops or self.main.name != "a0" or not callable(self.main.main):
                raise Unforkable("its runtime has no `a0` command or no background loop")
        except Unforkable:
            raise
        except Exception as error:
            raise Unforkable(f"its internals are others than expected: {type(error).__name__}: {error}") from error
        self.entrypoints = sys.modules.get("flyte._internal.runtime.entrypoints")
        self.reports_ready = callable(getattr(self.entrypoints, "load_and_run_task", None))
        self.lean = skip_unused_tls()
        skip_git()
        compile_expressions()
        unpack_here()
        self.threads()
        self.probe()

    @staticmethod
    def threads() -> None:
        """Make sure that there is one thread. A joined one may still be on its way out of the kernel: wait for that."""
        give_up = time.monotonic() + 5.0
        while (count := len(os.listdir("/proc/self/task"))) != 1:
            if threading.active_count() > 1 or time.monotonic() > give_up:
                names = ", ".join(thread.name for thread in threading.enumerate())
                raise Unforkable(f"{count} threads are running ({names}), and only one may when forking")
            time.sleep(0.001)

    def revive(self) -> None:
        """In the child: start again what was stopped."""
        if self.configured is not None:
            self.configured.clear()
        for loop in self.loops:
            loop.__init__(loop.thread.name)

    def probe(self) -> None:
        """Fork once and call through the SDK's background loop, as every task does."""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.alarm(10)
                self.revive()

                async def answer() -> int:
                    return 42

                from flyte.syncify import syncify

                code = 0 if syncify(answer)() == 42 else 1
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        if status != 0:
            raise Unforkable(f"a forked copy of it did not work (wait status {status})")

    def on_ready(self, call: Callable[[], None]) -> None:
        """Call when the runtime is up and is about to load the task."""
        inner = self.entrypoints.load_and_run_task  # type: ignore[union-attr]

        def load_and_run_task(*args: Any, **kwargs: Any) -> Any:
            call()
            return inner(*args, **kwargs)

        self.entrypoints.load_and_run_task = load_and_run_task  # type: ignore[union-attr]


def skip_unused_tls() -> bool:
    """Plain http needs no root certificates and no session for logins, and loading both for two clients is most of
    what a trivial action costs. Only sessions that the SDK itself calls insecure, to an http:// address, go without."""
    try:
        session: Any = importlib.import_module("flyte.remote._client.auth._session")
        resolve, certificates, login = (
            session._resolve_tls_ca_cert,
            session._supports_system_certs,
            session.get_async_session,
        )
    except Exception:
        return False
    plain: contextvars.ContextVar[bool] = contextvars.ContextVar("wingbeat_plain_http", default=False)

    async def resolve_tls(endpoint: str, **kwargs: Any) -> Any:
        # The first thing each new session does, in the task that goes on to build the two clients.
        plain.set(bool(kwargs.get("insecure")) and str(endpoint).startswith("http://"))
        return await resolve(endpoint, **kwargs)

    session._resolve_tls_ca_cert = resolve_tls
    session._supports_system_certs = lambda: not plain.get() and certificates()
    session.get_async_session = lambda **kwargs: None if plain.get() else login(**kwargs)
    return True


def skip_git() -> None:
    """Looking for its configuration, the SDK asks git for the repository around the working folder. That folder is
    ours: there is none, or it is one that has nothing to do with the task; and the question costs a process."""
    reader = sys.modules.get("flyte.config._reader")
    if hasattr(reader, "_config_path_from_git_root"):
        reader._config_path_from_git_root = lambda: None  # type: ignore[union-attr]


def compile_expressions() -> None:
    """Each task with a type or a text is described from its docstring, by a parser that compiles its regular
    expressions when it is used: a third of a trivial task. One use here, and every fork finds them compiled."""
    parser = sys.modules.get("docstring_parser")
    with contextlib.suppress(Exception):
        parser.parse("Do it.\n\nArgs:\n    x (int): what.\n\nReturns:\n    int: it.\n")  # type: ignore[union-attr]
        parser.parse("")  # type: ignore[union-attr]


def unpack_here() -> None:
    """The SDK unpacks a task's code by `tar`, which starts `gzip`: two processes, where the code of most tasks is a
    few kilobytes. Small archives are unpacked in the task's process; what that will not do is left to `tar`."""
    bundle = sys.modules.get("flyte._code_bundle.bundle")
    original = getattr(bundle, "_extract_tar", None)
    if original is None:
        return

    async def extract(archive: Any, dest: Any) -> None:
        try:
            if os.stat(archive).st_size <= SMALL_ARCHIVE:
                with tarfile.open(archive) as opened:
                    opened.extractall(dest, filter="tar")
                return
        except Exception:
            pass
        await original(archive, dest)

    bundle._extract_tar = extract  # type: ignore[union-attr]


# --- logs ------------------------------------------------------------------------------------------------------------


class Log:
    """One launch's log: lines `<microseconds since 1970> <U|u|S> <text>`; `u` is a piece whose line goes on.

    The first half of the limit is kept for good in the file itself. After that come numbered pieces (`<path>.1`, ...)
    of a quarter each, of which the newest two are kept: head and tail stay, and a reader sees where it was cut."""

    def __init__(self, path: str, limit: int) -> None:
        self.path = path
        self.limit = max(limit, 4096)
        self.piece = 0
        self.partial = b""
        self.partial_since = 0.0
        self.broken = False
        self.open()

    def open(self) -> None:
        name = self.path if self.piece == 0 else f"{self.path}.{self.piece}"
        try:
            os.makedirs(os.path.dirname(name), exist_ok=True)
            self.fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self.size = os.fstat(self.fd).st_size
        except OSError:
            self.fd, self.size, self.broken = -1, 0, True

    def write(self, lines: list[tuple[str, bytes]]) -> None:
        if not lines or self.broken:
            return
        stamp = b"%d " % (time.time_ns() // 1000)
        data = b"".join(stamp + kind.encode() + b" " + text + b"\n" for kind, text in lines)
        try:
            os.write(self.fd, data)
        except OSError:
            # A full disk must not stop the task: its output is lost, its result is not.
            return
        self.size += len(data)
        if self.size >= (self.limit // 2 if self.piece == 0 else self.limit // 4):
            os.close(self.fd)
            self.piece += 1
            if self.piece > 2:
                with contextlib.suppress(OSError):
                    os.unlink(f"{self.path}.{self.piece - 2}")
            self.open()

    def feed(self, data: bytes) -> None:
        """Take output of the process as it comes."""
        *whole, rest = (self.partial + data).split(b"\n")
        lines = []
        for line in whole:
            lines += [("u", line[at : at + MAX_LINE]) for at in range(0, max(len(line) - MAX_LINE, 0), MAX_LINE)]
            done = (len(line) - 1) // MAX_LINE * MAX_LINE if line else 0
            lines.append(("U", line[done:]))
        while len(rest) > MAX_LINE:
            lines.append(("u", rest[:MAX_LINE]))
            rest = rest[MAX_LINE:]
        if not self.partial or whole:
            self.partial_since = time.monotonic()
        self.partial = rest
        self.write(lines)

    def flush(self, now: float, final: bool = False) -> None:
        """Write a line that has not ended (a prompt, a progress bar) once it has stood for a while."""
        if self.partial and (final or now - self.partial_since >= PARTIAL_FLUSH_SECONDS):
            self.write([("U" if final else "u", self.partial)])
            self.partial = b""

    def note(self, text: str) -> None:
        self.flush(0, final=True)
        self.write([("S", text.encode(errors="replace"))])

    def close(self) -> None:
        self.flush(0, final=True)
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self.broken = -1, True


# --- children --------------------------------------------------------------------------------------------------------


class Child:
    def __init__(self, request: dict[str, Any], log: Log) -> None:
        self.token: str = request["token"]
        self.folder: str = request["folder"]
        self.log = log
        self.output = -1
        self.ready_pipe = -1
        self.ready = False
        self.watch_threads = False
        self.pid = 0
        self.start = 0
        self.started_at = time.time()
        self.exited = False
        self.exit: dict[str, Any] | None = None


class Environment:
    """Where our own environment lies in memory, so that a forked child can carry its token there.

    `/proc/<pid>/environ` shows the block that `exec` made. A fork shares it, so without this a forked child, and
    what it forks and sends away, could not be told apart by their tokens."""

    def __init__(self) -> None:
        self.address = 0
        with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
            start, end = int(fields[47]), int(fields[48])
            with open("/proc/self/mem", "rb", buffering=0) as memory:
                memory.seek(start)
                block = memory.read(end - start)
            at = block.find(b"\0" + TOKEN_VARIABLE + b"#" * TOKEN_ROOM)
            if at >= 0 or block.startswith(TOKEN_VARIABLE):
                self.address = start + at + 1 + len(TOKEN_VARIABLE)

    def carry(self, token: str) -> None:
        if self.address:
            with contextlib.suppress(OSError), open("/proc/self/mem", "r+b", buffering=0) as memory:
                memory.seek(self.address)
                memory.write(token.encode()[:TOKEN_ROOM].ljust(TOKEN_ROOM, b"\0"))


def needs_fresh_interpreter(env: dict[str, str]) -> str:
    """The first variable that only a new interpreter would follow, or an empty string."""
    for name in sorted(env):
        if (
            name.startswith(START_VARIABLES)
            and name not in FOLLOWED_VARIABLES
            and env.get(name) != os.environ.get(name)
        ):
            return name
    return ""


def adapt(path: str) -> None:
    """Load the file at `path` and call its `install`, which changes the preloaded SDK and answers why it could not."""
    if not path:
        return
    spec = importlib.util.spec_from_file_location("_wingbeat_adapter", path)
    if spec is None or spec.loader is None:
        raise Unforkable(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    why_not = module.install()
    if why_not:
        print(f"wingbeat: {path}: {why_not}", file=sys.stderr)


class Zygote:
    def __init__(self, configuration: dict[str, Any]) -> None:
        self.configuration = configuration
        self.sdk: Sdk | None = None
        self.why = configuration.get("why", "")
        if configuration["mode"] == "fork":
            try:
                self.sdk = Sdk(configuration["preload"])
                adapt(configuration["adapter"])
            except Unforkable as error:
                # A failed preload may leave threads behind. A fresh start of this file has none.
                again = dict(configuration, mode="spawn", why=str(error))
                os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:-1], json.dumps(again)])
        self.environment = Environment()
        self.pid = os.getpid()
        self.selector = selectors.DefaultSelector()
        self.children: dict[str, Child] = {}
        self.pids: dict[int, Child] = {}
        self.clients: dict[socket.socket, tuple[bytearray, bytearray]] = {}
        self.alone_since = time.monotonic() + 30  # for the server that started us to come
        self.retired = False
        self.ending_at = 0.0
        self.inode = (0, 0)
        # A few for each child; the children get the limit that we were given.
        self.files = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.files[1], self.files[1]))

    # - life -

    def run(self) -> None:
        become_subreaper()
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self.end())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.selector.register(wake_read, selectors.EVENT_READ, lambda _: self.woken(wake_read))
        listener = self.listen(self.configuration["socket"])
        gc.collect()
        gc.freeze()
        with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
            file.write("wingbeat-zygote")
        # Say that we are up, then let go of the pipe to the server, which may be gone long before us.
        with contextlib.suppress(OSError):
            os.write(1, json.dumps(self.hello()).encode() + b"\n")
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)
        while not self.finished():
            for key, events in self.selector.select(self.patience()):
                key.data(events)
            self.tick()
        if self.socket_is_ours():
            os.unlink(self.configuration["socket"])
        listener.close()

    def listen(self, path: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        temporary = f"{path}.{os.getpid()}"
        mask = os.umask(0o177)
        try:
            listener.bind(temporary)
        finally:
            os.umask(mask)
        listener.listen(16)
        listener.setblocking(False)
        os.replace(temporary, path)
        status = os.stat(path)
        self.inode = (status.st_dev, status.st_ino)
        self.selector.register(listener, selectors.EVENT_READ, lambda _: self.accept(listener))
        return listener

    def socket_is_ours(self) -> bool:
        try:
            status = os.stat(self.configuration["socket"])
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self.inode

    def busy(self) -> bool:
        return any(not child.exited or child.output >= 0 for child in self.children.values())

    def patience(self) -> float:
        if any(child.watch_threads and not child.ready for child in self.pids.values()):
            return 0.05
        if any(child.log.partial for child in self.children.values()):
            return 0.25
        return 0.25 if self.ending_at else 5.0

    def tick(self) -> None:
        now = time.monotonic()
        for child in list(self.pids.values()):
            if not child.ready and time.time() - child.started_at > LONGEST_START:
                self.is_ready(child)
            if child.watch_threads and not child.ready:
                # A fresh `a0` is up when, beside the main thread and the SDK's loop, its controller's thread runs.
                with contextlib.suppress(OSError):
                    if len(os.listdir(f"/proc/{child.pid}/task")) > 2:
                        self.is_ready(child)
        for child in self.children.values():
            child.log.flush(now)
        if self.clients:
            self.alone_since = now
        elif self.pids and not self.ending_at and self.is_alone():
            for child in self.pids.values():
                child.log.note("no server came back for this task, so it was ended")
            self.end()
        if self.ending_at and now > self.ending_at:
            self.signal_all(signal.SIGKILL)
        if not self.socket_is_ours():
            self.retired = True

    def finished(self) -> bool:
        if self.busy():
            return False
        return bool(self.ending_at) or self.retired or (not self.clients and self.is_alone())

    def is_alone(self) -> bool:
        """No server for so long that none may ever come: what is left ends by itself, so that nothing runs for ever."""
        return time.monotonic() - self.alone_since > float(self.configuration["orphan_seconds"])

    def end(self) -> None:
        if not self.ending_at:
            self.ending_at = time.monotonic() + 5.0
            self.signal_all(signal.SIGTERM)

    def signal_all(self, number: int) -> None:
        for child in self.pids.values():
            with contextlib.suppress(OSError):
                os.killpg(child.pid, number)

    # - clients -

    def accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        _, uid, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid != os.getuid():
            client.close()
            return
        client.setblocking(False)
        self.clients[client] = (bytearray(), bytearray())
        self.selector.register(client, selectors.EVENT_READ, lambda events: self.serve(client, events))

    def drop(self, client: socket.socket) -> None:
        if self.clients.pop(client, None) is not None:
            self.selector.unregister(client)
            client.close()

    def serve(self, client: socket.socket, events: int) -> None:
        if client not in self.clients:
            return None
        received, pending = self.clients[client]
        try:
            if events & selectors.EVENT_WRITE:
                del pending[: client.send(pending)]
                self.expect(client, pending)
            if events & selectors.EVENT_READ:
                data = client.recv(1 << 20)
                if not data:
                    return self.drop(client)
                received += data
        except BlockingIOError:
            return None
        except OSError:
            return self.drop(client)
        if len(received) > MAX_REQUEST:
            return self.drop(client)
        while (end := received.find(b"\n")) >= 0:
            line = bytes(received[:end])
            del received[: end + 1]
            self.send(client, self.answer(line))
        return None

    def expect(self, client: socket.socket, pending: bytearray) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if pending else 0)
        if self.selector.get_key(client).events != wanted:
            self.selector.modify(client, wanted, lambda events: self.serve(client, events))

    def send(self, client: socket.socket, message: dict[str, Any]) -> None:
        if client not in self.clients:
            return None
        pending = self.clients[client][1]
        pending += json.dumps(message).encode() + b"\n"
        try:
            del pending[: client.send(pending)]
        except BlockingIOError:
            pass
        except OSError:
            return self.drop(client)
        if len(pending) > MAX_BACKLOG:
            return self.drop(client)
        return self.expect(client, pending)

    def tell(self, event: str, child: Child) -> None:
        for client in list(self.clients):
            message = {"event": event, "token": child.token, "pid": child.pid, "start": child.start}
            self.send(client, dict(message, exit=child.exit))

    def answer(self, line: bytes) -> dict[str, Any]:
        number = None
        try:
            request = json.loads(line)
            number = request.get("id")
            handler = getattr(self, "do_" + str(request.get("op")), None)
            if handler is None:
                raise ValueError("this zygote knows no request {!r}".format(request.get("op")))
            return {"id": number, "ok": True, **handler(request)}
        except Exception as error:
            return {"id": number, "ok": False, "error": f"{type(error).__name__}: {error}"}

    # - requests -

    def hello(self) -> dict[str, Any]:
        version = ""
        if self.sdk is not None:
            version = getattr(sys.modules["flyte"], "__version__", "")
        elif self.configuration["mode"] == "spawn":
            with contextlib.suppress(Exception):
                from importlib.metadata import version as installed

                version = installed("flyte")
        return {
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "start": start_time(os.getpid()),
            "mode": "fork" if self.sdk is not None else "spawn",
            "why": self.why,
            "sdk": version,
            "python": platform.python_version(),
            "lean": self.sdk is not None and self.sdk.lean,
            "marker": self.configuration["marker"],
            "interpreter": self.configuration["interpreter"],
        }

    def do_hello(self, _: dict[str, Any]) -> dict[str, Any]:
        return self.hello()

    def do_list(self, _: dict[str, Any]) -> dict[str, Any]:
        return {
            "children": [
                {"token": c.token, "pid": c.pid, "start": c.start, "ready": c.ready, "exit": c.exit}
                for c in self.children.values()
            ]
        }

    def do_note(self, request: dict[str, Any]) -> dict[str, Any]:
        """Write a line of ours into the log of a launch."""
        child = self.children.get(request["token"])
        if child is None or child.log.broken:
            return {"written": False}
        child.log.note(request["text"])
        return {"written": True}

    def do_forget(self, request: dict[str, Any]) -> dict[str, Any]:
        for token in request["tokens"]:
            child = self.children.get(token)
            if child is not None and child.exited:
                self.close_output(child)
                child.log.close()
                del self.children[token]
        return {}

    def do_retire(self, _: dict[str, Any]) -> dict[str, Any]:
        """End as soon as no child is left."""
        self.retired = True
        return {}

    def do_shutdown(self, _: dict[str, Any]) -> dict[str, Any]:
        self.end()
        return {}

    def do_launch(self, request: dict[str, Any]) -> dict[str, Any]:
        token = request["token"]
        known = self.children.get(token)
        if known is not None:
            return {"state": "known", "pid": known.pid, "start": known.start, "ready": known.ready, "exit": known.exit}
        if os.path.exists(os.path.join(request["folder"], "start.json")):
            return {"state": "claimed"}
        child = Child(request, Log(request["log_path"], request["log_limit"]))
        argv = list(request["argv"])
        is_a0 = os.path.basename(argv[0]) == "a0"
        fresh = is_a0 and (self.sdk is None or needs_fresh_interpreter(request["env"]))
        if is_a0 and not fresh:
            try:
                Sdk.threads()
            except Unforkable as error:
                fresh = True
                child.log.note(f"started with a fresh interpreter, because in the preloaded one {error}")
        elif fresh and self.sdk is not None:
            child.log.note(f"started with a fresh interpreter, because the environment sets {fresh}")
        output_read, output_write = os.pipe2(os.O_CLOEXEC)
        ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
        sys.stdout.flush()
        sys.stderr.flush()
        # A signal to the newborn must not run the zygote's handlers in it: it is held until it has its own.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
        except OSError:
            for end in (output_read, output_write, ready_read, ready_write):
                os.close(end)
            child.log.close()
            raise
        finally:
            if os.getpid() == self.pid:
                signal.pthread_sigmask(signal.SIG_SETMASK, held)
        if pid == 0:
            run_child(self, request, argv, is_a0, bool(fresh), output_write, ready_write)
        os.close(output_write)
        os.close(ready_write)
        child.pid, child.start = pid, start_time(pid)
        child.output, child.ready_pipe = output_read, ready_read
        child.watch_threads = bool(fresh) or (is_a0 and not (self.sdk and self.sdk.reports_ready))
        self.children[token] = self.pids[pid] = child
        child.log.note(f"attempt {request['attempt']} started, pid {pid}")
        os.set_blocking(output_read, False)
        self.selector.register(output_read, selectors.EVENT_READ, lambda _: self.pump(child))
        self.selector.register(ready_read, selectors.EVENT_READ, lambda _: self.ready_closed(child))
        return {"state": "started", "pid": pid, "start": child.start}

    # - children -

    def ready_closed(self, child: Child) -> None:
        self.close_ready(child)
        if not child.watch_threads:
            self.is_ready(child)

    def is_ready(self, child: Child) -> None:
        if not child.ready:
            child.ready = True
            if not child.exited:
                self.tell("ready", child)

    def close_ready(self, child: Child) -> None:
        if child.ready_pipe >= 0:
            self.selector.unregister(child.ready_pipe)
            os.close(child.ready_pipe)
            child.ready_pipe = -1

    def close_output(self, child: Child) -> None:
        if child.output >= 0:
            self.selector.unregister(child.output)
            os.close(child.output)
            child.output = -1

    def pump(self, child: Child, rounds: int = 4) -> None:
        """Move output to the log; a few pieces at a time, so that a flood from one does not starve the others."""
        for _ in range(rounds):
            if child.output < 0:
                return
            try:
                data = os.read(child.output, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self.close_output(child)
                child.log.flush(0, final=True)
                if child.exited:
                    child.log.close()
                return
            child.log.feed(data)

    def woken(self, wake: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(wake, 4096):
                pass
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self.pids.pop(pid, None)
            if child is not None:
                self.reaped(child, status, usage)

    def strays(self, child: Child) -> bool:
        """Does anything of the launch seem to live on? Errs on the side of yes; the server looks closely then."""
        if child.output >= 0:
            return True
        try:
            os.killpg(child.pid, 0)
            return True
        except OSError:
            pass
        try:
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                return any(int(pid) not in self.pids for pid in file.read().split())
        except OSError:
            return True

    def reaped(self, child: Child, status: int, usage: Any) -> None:
        self.close_ready(child)
        self.pump(child, rounds=1 << 12)
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        if not self.claimed_by(child):
            # Another process had this token before, or it was called off: this one ran no user code.
            child.exited = True
            self.close_output(child)
            child.log.close()
            self.children.pop(child.token, None)
            return self.tell("refused", child)
        child.exit = {
            "pid": child.pid,
            "start": child.start,
            "code": code,
            "signal": number,
            "started_at": child.started_at,
            "ended_at": time.time(),
            "max_rss": usage.ru_maxrss * 1024,
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "strays": self.strays(child),
        }
        with contextlib.suppress(OSError):
            write_json(os.path.join(child.folder, "exit.json"), child.exit)
        if number is not None:
            child.log.note(f"ended by signal {number} ({signal_name(number)})")
        elif code:
            child.log.note(f"ended with exit code {code}")
        # From here on, the end of the output closes the log.
        child.exited = True
        if child.output < 0:
            child.log.close()
        return self.tell("exit", child)

    @staticmethod
    def claimed_by(child: Child) -> bool:
        try:
            with open(os.path.join(child.folder, "start.json")) as file:
                claim = json.load(file)
            return bool(claim["pid"] == child.pid and claim["start"] == child.start)
        except (OSError, ValueError, KeyError):
            return False


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def become_subreaper() -> None:
    """What a child forks away comes to us, not to init, so that it can be found and reaped."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)


# --- in the child ----------------------------------------------------------------------------------------------------


def claim(folder: str) -> bool:
    """Take the one start that this launch has. False when it was taken before."""
    pid = os.getpid()
    temporary = os.path.join(folder, f"start.{pid}")
    with open(temporary, "w") as file:
        json.dump({"pid": pid, "start": start_time(pid), "at": time.time()}, file)
    try:
        os.link(temporary, os.path.join(folder, "start.json"))
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    return True


def run_child(
    zygote: Zygote,
    request: dict[str, Any],
    argv: list[str],
    is_a0: bool,
    fresh: bool,
    output: int,
    ready: int,
) -> None:
    """Never returns."""
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        # Everything of the zygote's goes: sockets, pipes of other children, the selector.
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) != ready:
                with contextlib.suppress(OSError):
                    os.close(int(name))
        resource.setrlimit(resource.RLIMIT_NOFILE, zygote.files)
        zygote.environment.carry(request["token"])
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
        for path in request["cgroups"]:
            with open(path, "w") as file:
                file.write("0")
        work = os.path.join(request["folder"], "work")
        os.makedirs(work, mode=0o700, exist_ok=True)
        os.chdir(work)
        if not claim(request["folder"]):
            os._exit(0)
        env = request["env"]
        if is_a0 and not fresh:
            code = run_a0(zygote.sdk, argv, env, ready)  # type: ignore[arg-type]
        else:
            if is_a0:
                script = os.path.join(os.path.dirname(request["interpreter"]), "a0")
                there = [script] if os.path.exists(script) else ["-m", "flyte._bin.runtime", "a0"]
                if zygote.configuration["adapter"]:
                    there = [zygote.configuration["adapter"], "a0"]
                argv = [request["interpreter"], *there, *argv[1:]]
            # What an interpreter ignores for itself, a command of another kind must not inherit as ignored.
            for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            code = execute(argv, env)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def execute(argv: list[str], env: dict[str, str]) -> int:
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        reason = os.strerror(error.errno or errno.ENOENT)
        os.write(2, ("wingbeat: cannot run {!r}: {} (PATH is {})\n".format(argv[0], reason, env.get("PATH"))).encode())
        return 126 if error.errno == errno.EACCES else 127


def run_a0(sdk: Sdk, argv: list[str], env: dict[str, str], ready: int) -> int:
    """Do in this process what a fresh `a0` would do, and return its exit code."""
    changed = {name for name in {*env, *os.environ} if env.get(name) != os.environ.get(name)}
    os.environ.clear()
    os.environ.update(env)
    if "TZ" in changed:
        time.tzset()
    sys.path[:0] = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.argv = argv
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=bool(env.get("PYTHONUNBUFFERED")))  # type: ignore[union-attr]
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write("a0")
    if any(name.startswith("FSSPEC_") or name == "HOME" for name in changed):
        reload_fsspec()
    if "numpy" in sys.modules:
        # Its generator was seeded in the zygote: without this, every task would draw the same numbers.
        sys.modules["numpy"].random.seed()
    sdk.revive()
    if sdk.reports_ready:
        sdk.on_ready(lambda: os.close(ready))
    try:
        sdk.main.main(args=argv[1:], prog_name="a0")
        code = 0
    except SystemExit as error:
        code = exit_code(error.code)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
        code = 1
    # As at the end of any interpreter: wait for threads, run what was registered; but free nothing, since touching
    # every object would copy every page that is shared with the zygote.
    ends: list[Any] = [getattr(threading, "_shutdown", None), getattr(atexit, "_run_exitfuncs", None)]
    for last in filter(None, ends):
        with contextlib.suppress(BaseException):
            last()
    return code


def exit_code(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    print(value, file=sys.stderr)
    return 1


def reload_fsspec() -> None:
    """fsspec reads its configuration when it is imported, which was in the zygote."""
    config = sys.modules.get("fsspec.config")
    if config is None:
        return
    with contextlib.suppress(Exception):
        folder = os.environ.get("FSSPEC_CONFIG_DIR", os.path.join(os.path.expanduser("~"), ".config/fsspec"))
        config.conf.clear()
        config.set_conf_files(folder, config.conf)
        config.set_conf_env(config.conf, os.environ)


if __name__ == "__main__":
    Zygote(json.loads(sys.argv[-1])).run()
