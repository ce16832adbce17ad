"""The data process as its server sees it: started, watched, started again, stopped."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from pathlib import Path

from wingbeat.storage.protocol import StorageUnavailable
from wingbeat.storage.signing import Signer

_log = logging.getLogger(__name__)
_START_SECONDS = 20.0
_LONGEST_PAUSE = 5.0
_LINGERING_SECONDS = 7.0
"""How long an earlier data process may take to end: what is under way has 5."""


class DataServer:
    """Serves the storage at `storage_uri` by signed URLs. `folder` is private to it: key, port and incoming files; with
    the same folder it takes the same port again, so URLs outlive restarts. `signer` makes the URLs once it runs."""

    def __init__(
        self,
        folder: Path,
        storage_uri: str,
        *,
        host: str = "127.0.0.1",
        allow_hosts: tuple[str, ...] = (),
    ) -> None:
        self._folder = folder
        self._storage_uri = storage_uri
        self._host = host
        self._allow_hosts = allow_hosts
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.signer = Signer.load(folder / "signing.key")
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def base_url(self) -> str:
        return self.signer.base_url

    @property
    def pid(self) -> int | None:
        """Of the process that serves now."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def start(self) -> str:
        """Start it; its base URL. Raises StorageUnavailable when it does not come up."""
        port_file = self._folder / "port"
        kept = port_file.read_text().strip() if port_file.exists() else ""
        port = int(kept) if kept.isdigit() and await self._becomes_free(int(kept)) else 0
        port = await self._launch(port)
        if str(port) != kept:
            port_file.write_text(f"{port}\n")
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.signer.base_url = f"http://{host}:{port}"
        self._watch = asyncio.create_task(self._keep_running(port), name="data-process")
        return self.base_url

    async def stop(self) -> None:
        """End it; what is under way has 5 seconds."""
        self._stopping = True
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            self._watch = None
        if self._process is not None:
            await self._end(self._process)
            self._process = None

    async def _becomes_free(self, port: int) -> bool:
        """One whose server was killed gives its port free as soon as its last transfer is over."""
        deadline = asyncio.get_running_loop().time() + _LINGERING_SECONDS
        while not self._is_free(port):
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    def _is_free(self, port: int) -> bool:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self._host, port))
            except OSError as error:
                if error.errno in (errno.EADDRINUSE, errno.EACCES):
                    return False
                raise StorageUnavailable(f"the data process cannot listen on {self._host}: {error.strerror}") from error
        return True

    async def _launch(self, port: int) -> int:
        arguments = ["--folder", str(self._folder), "--storage", self._storage_uri, "--host", self._host]
        arguments += ["--port", str(port), *(f"--allow-host={name}" for name in self._allow_hosts)]
        # -P: the folder that the user happens to be in holds no modules of ours. A session of its own: a Ctrl-C in the
        # terminal is for the server, which decides.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "wingbeat.storage.server", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), _START_SECONDS)
        except TimeoutError:
            line = b""
        except BaseException:
            await self._end(process)
            raise
        if not line.strip().isdigit():
            await self._end(process)
            raise StorageUnavailable(
                f"the data process did not start (exit code {process.returncode}); its error is in the server's log"
            )
        self._process = process
        return int(line)

    async def _keep_running(self, port: int) -> None:
        pause = 0.05
        loop = asyncio.get_running_loop()
        while not self._stopping:
            assert self._process is not None
            since = loop.time()
            code = await self._process.wait()
            if loop.time() - since > 60:
                pause = 0.05
            _log.error("the data process ended with exit code %s; it is started again", code)
            while True:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                try:
                    await self._launch(port)
                    break
                except StorageUnavailable as error:
                    _log.error("%s; the next try is in %.1f s", error, pause)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 7)
        except TimeoutError:
            process.kill()
            await process.wait()
