"""The server's side of the zygotes: start one for each environment, find those of an earlier server, talk to them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wingbeat.crashpoints import crash_point
from wingbeat.machine.processes import DATA_VARIABLE, NO_TOKEN, TOKEN_VARIABLE, Process, is_alive, send

SOURCE = Path(__file__).with_name("zygote.py")
PROTOCOL = 1
TOKEN_ROOM = 160
START_SECONDS = 120.0
ANSWER_SECONDS = 30.0
PROMPT_SECONDS = 5.0
"""For what a zygote answers at once unless it is stuck, and nothing is lost when it does not."""
LONGEST_SOCKET_PATH = 107
INHERITED = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SSL_CERT_DIR"}
    | {"SSL_CERT_FILE", "TMPDIR", "TZ", "USER", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"}
)
"""What a zygote takes from the server's own environment; its children get theirs from the launch."""


class ZygoteError(Exception):
    """A zygote did not start, did not answer, or refused."""


class Zygote:
    """A connection to one zygote."""

    def __init__(
        self, path: Path, on_event: Callable[[Zygote, dict[str, Any]], None], on_lost: Callable[[Zygote], None]
    ) -> None:
        self.path = path
        self.hello: dict[str, Any] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self.lost = False
        self._on_event = on_event
        self._on_lost = on_lost
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def mode(self) -> str:
        return str(self.hello.get("mode", ""))

    async def connect(self) -> None:
        """Raises ZygoteError when nothing answers there, or something of another user's."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(self.path), limit=64 * 1024 * 1024)
        except OSError as error:
            raise ZygoteError(f"nothing answers on {self.path}: {error}") from error
        peer: socket.socket = writer.get_extra_info("socket")
        pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid != os.getuid():
            writer.close()
            raise ZygoteError(f"{self.path} belongs to another user (uid {uid})")
        self._writer = writer
        self._task = asyncio.create_task(self._read(reader), name=f"zygote-{self.path.name}")
        try:
            self.hello = await self.request("hello", timeout=10.0)
            if self.hello.get("protocol") != PROTOCOL:
                raise ZygoteError(f"the zygote on {self.path} speaks protocol {self.hello.get('protocol')}")
        except ZygoteError:
            if self.hello == {} and not self.lost:
                # It holds the socket and does not answer: stopped, or stuck. Nothing will come of it.
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            await self.close()
            raise

    async def request(self, op: str, *, timeout: float = ANSWER_SECONDS, **fields: Any) -> dict[str, Any]:
        """Ask, and return the answer. Raises ZygoteError."""
        if self._writer is None or self.lost:
            raise ZygoteError(f"the zygote on {self.path} is gone")
        self._number = number = self._number + 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        line = json.dumps({"id": number, "op": op, **fields}).encode() + b"\n"
        try:
            self._writer.write(line)
        except (OSError, RuntimeError) as error:
            # Its end has closed the connection, and the loop has not told us yet.
            raise ZygoteError(f"the zygote on {self.path} is gone: {error}") from error
        self._answers[number] = answer
        if op == "launch":
            crash_point("launch.sent")
        try:
            message = await asyncio.wait_for(answer, timeout)
        except TimeoutError:
            raise ZygoteError(f"the zygote on {self.path} did not answer {op} within {timeout:g} s") from None
        finally:
            self._answers.pop(number, None)
        if not message.get("ok"):
            raise ZygoteError(str(message.get("error", "refused")))
        return message

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if "event" in message:
                    self._on_event(self, message)
                else:
                    answer = self._answers.get(message.get("id"))
                    if answer is not None and not answer.done():
                        answer.set_result(message)
        except (OSError, ValueError):
            pass
        finally:
            self.lost = True
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ZygoteError(f"the zygote on {self.path} is gone"))
            if self._writer is not None:
                self._writer.close()
        self._on_lost(self)

    async def close(self) -> None:
        """Let go of it; it lives on."""
        self._on_lost = lambda _: None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()

    def reap(self) -> None:
        """Collect its exit status if it was ours and has ended."""
        if self.process is not None:
            self.process.poll()


class Zygotes:
    """All zygotes of one data folder."""

    def __init__(
        self,
        runtime_dir: Path,
        *,
        marker: str,
        mode: str,
        preload: list[str],
        adapter: str,
        interpreter_env: dict[str, str],
        orphan_seconds: float,
        on_event: Callable[[Zygote, dict[str, Any]], None],
        on_lost: Callable[[Zygote], None],
        logger: Any,
    ) -> None:
        self._dir = runtime_dir
        self._marker = marker
        self._mode = mode
        self._preload = preload
        self._adapter = adapter
        self._env = interpreter_env
        self._orphan_seconds = orphan_seconds
        self._on_event = on_event
        self._on_lost = on_lost
        self._log = logger
        self._source = SOURCE.read_bytes()
        self._by_path: dict[Path, Zygote] = {}
        self._starting: dict[Path, asyncio.Task[Zygote]] = {}
        self._booting: dict[Path, subprocess.Popen[bytes]] = {}

    def path(self, interpreter: str) -> Path:
        """The socket of the zygote for an interpreter. Another configuration, or another version of the zygote's
        source, is another socket, so that an old zygote keeps its children and gets no new ones."""
        configuration = [interpreter, self._mode, self._preload, self._adapter, sorted(self._env.items()), self._marker]
        digest = hashlib.sha256(json.dumps(configuration).encode() + self._source).hexdigest()
        path = self._dir / f"z-{digest[:12]}.sock"
        if len(os.fsencode(path)) + 9 > LONGEST_SOCKET_PATH:
            raise ZygoteError(
                f"The path of the socket {path} is too long ({len(os.fsencode(path))} bytes; with room for a suffix at "
                f"most {LONGEST_SOCKET_PATH - 9}). Set a shorter runtime folder."
            )
        return path

    async def adopt(self) -> list[Zygote]:
        """Connect to every zygote that an earlier server left; those that are gone leave only a socket, removed."""
        found = []
        for path in sorted(self._dir.glob("z-*.sock")):
            zygote = Zygote(path, self._event, self._gone)
            try:
                await zygote.connect()
            except ZygoteError as error:
                self._log.info("zygote_gone", socket=str(path), reason=str(error))
                path.unlink(missing_ok=True)
                continue
            self._by_path[path] = zygote
            found.append(zygote)
            if path != self.path(str(zygote.hello.get("interpreter", ""))):
                # Of another configuration or version of ours. It keeps its children and ends after them.
                with contextlib.suppress(ZygoteError):
                    await zygote.request("retire")
        return found

    async def get(self, interpreter: str) -> Zygote:
        """The zygote for an interpreter, started if need be. Raises ZygoteError."""
        path = self.path(interpreter)
        zygote = self._by_path.get(path)
        if zygote is not None and not zygote.lost:
            return zygote
        if path not in self._starting:
            self._starting[path] = asyncio.create_task(self._start(interpreter, path), name=f"start-{path.name}")
            self._starting[path].add_done_callback(lambda _: self._starting.pop(path, None))
        return await asyncio.shield(self._starting[path])

    def all(self) -> list[Zygote]:
        return list(self._by_path.values())

    async def _start(self, interpreter: str, path: Path) -> Zygote:
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        env["FSSPEC_FILE"] = '{"auto_mkdir": true}'
        env |= self._env
        env[DATA_VARIABLE] = self._marker
        # Room that each forked child fills with its own token, see `Environment` in zygote.py.
        env[TOKEN_VARIABLE] = NO_TOKEN * TOKEN_ROOM
        configuration = {
            "socket": str(path),
            "interpreter": interpreter,
            "marker": self._marker,
            "mode": "spawn" if self._mode == "spawn" else "fork",
            "preload": self._preload,
            "adapter": self._adapter,
            "orphan_seconds": self._orphan_seconds,
        }
        log = path.with_suffix(".log")
        try:
            process = self._popen(interpreter, configuration, env, log)
        except OSError as error:
            raise ZygoteError(f"{interpreter} does not run: {error}") from error
        assert process.stdout is not None
        self._booting[path] = process
        try:
            line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), START_SECONDS)
        except TimeoutError:
            process.kill()
            raise ZygoteError(f"{interpreter} was not up within {START_SECONDS:g} s; see {log}") from None
        finally:
            del self._booting[path]
            process.stdout.close()
        if not line:
            process.wait()
            tail = log.read_text(errors="replace").strip().splitlines()[-3:]
            raise ZygoteError(f"{interpreter} ended with status {process.returncode} at its start: {' / '.join(tail)}")
        zygote = Zygote(path, self._event, self._gone)
        await zygote.connect()
        zygote.process = process
        self._by_path[path] = zygote
        hello = zygote.hello
        self._log.info(
            "zygote_started", interpreter=interpreter, pid=hello["pid"], mode=hello["mode"], sdk=hello["sdk"]
        )
        if self._mode != "spawn" and hello["mode"] == "spawn":
            self._log.warning("zygote_spawns", interpreter=interpreter, why=hello["why"])
        return zygote

    @staticmethod
    def _popen(
        interpreter: str, configuration: dict[str, Any], env: dict[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        # Not asyncio's: that one ends the process together with the loop.
        with open(log, "wb") as errors:
            return subprocess.Popen(
                [interpreter, str(SOURCE), json.dumps(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=env,
                cwd="/",
                start_new_session=True,
            )

    def _event(self, zygote: Zygote, message: dict[str, Any]) -> None:
        self._on_event(zygote, message)

    def _gone(self, zygote: Zygote) -> None:
        zygote.reap()
        if self._by_path.get(zygote.path) is zygote:
            del self._by_path[zygote.path]
        self._on_lost(zygote)

    @staticmethod
    async def _wait_gone(zygote: Zygote) -> None:
        for _ in range(500):
            zygote.reap()
            if not is_alive(zygote.hello["pid"], zygote.hello["start"]):
                return
            await asyncio.sleep(0.02)

    async def close(self, *, end: bool) -> None:
        """Let go of all; with `end` they are told to end, and waited for."""
        for process in self._booting.values():
            # It has no children yet, and on a slow disk it may be long before it could be told anything.
            process.kill()
        for task in list(self._starting.values()):
            await asyncio.gather(task, return_exceptions=True)
        for zygote in list(self._by_path.values()):
            stuck = False
            if end:
                try:
                    await zygote.request("shutdown", timeout=PROMPT_SECONDS)
                except ZygoteError:
                    stuck = not zygote.lost
            await zygote.close()
            if not end:
                continue
            if not stuck:
                await self._wait_gone(zygote)
            # A process that is stopped, or stuck, stays for ever otherwise.
            pid, start = zygote.hello["pid"], zygote.hello["start"]
            if is_alive(pid, start):
                send(Process(pid=pid, parent=0, session=0, start=start, zombie=False), signal.SIGKILL)
                await self._wait_gone(zygote)
        self._by_path.clear()
