"""The data process: uploads and downloads by signed URL, beside the control plane and never on its loop.

`python -P -m wingbeat.storage.server --folder F --storage URI --port P`, started and watched by `DataServer`. It says
the port it got on its standard output (one line) and ends when its standard input does, so it never outlives its
server. One thread serves one connection: they are few and all of them are busy copying, which needs no Python lock.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import mimetypes
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from wingbeat.storage.folder import FolderStorage
from wingbeat.storage.opening import open_storage
from wingbeat.storage.protocol import ObjectMissing, OutsideStorage, Storage, StorageFull, StorageUnavailable
from wingbeat.storage.signing import AGAIN, BadToken, Grant, Signer
from wingbeat.storage.transfer import Interrupted, digest_of, open_file, reading, receive, storing

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_CONNECTIONS = 128
_TRANSFERS = 24
"""Uploads at the same time, each with 2 MiB of buffers; further ones wait."""
_IDLE = 60.0
"""Seconds without a byte from a client before its connection is closed."""
_LINGER = 64 << 20
"""Bytes of a refused upload that are read on, so that the client gets to see the refusal."""


class Refused(Exception):
    """An answer other than success, with words."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def _parts(url: str, header: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the header {header} of this request is not valid") from None


def _digest(announced: str) -> str:
    """A Content-MD5 in hex."""
    try:
        return base64.b64decode(announced, validate=True).hex()
    except binascii.Error:
        raise Refused(HTTPStatus.BAD_REQUEST, "the header Content-MD5 of this request is not base64") from None


class DataHTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], storage: Storage, signer: Signer, folder: Path, hosts: list[str]
    ) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.storage = storage
        self.signer = signer
        self.incoming = folder / "incoming"
        self.hosts = {*LOOPBACK, *hosts}
        self.transfers = threading.BoundedSemaphore(_TRANSFERS)
        self._connections = threading.BoundedSemaphore(_CONNECTIONS)
        self.busy = 0
        self.idle = threading.Condition()
        super().__init__(address, DataHandler)

    def server_bind(self) -> None:
        # Not HTTPServer's: it looks its own name up, which may take seconds.
        socket.socket.setsockopt(self.socket, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        with self.idle:
            self.busy += 1
        try:
            yield
        finally:
            with self.idle:
                self.busy -= 1
                self.idle.notify_all()

    def drain(self, seconds: float) -> None:
        """Accept nothing new and wait until what is under way has ended."""
        stop = threading.Thread(target=self.shutdown, daemon=True)
        stop.start()
        # Wake its loop up, which otherwise looks every half second.
        with suppress(OSError):
            socket.create_connection((str(self.server_address[0]), self.server_address[1]), timeout=1).close()
        stop.join()
        with self.idle:
            self.idle.wait_for(lambda: self.busy == 0, timeout=seconds)


class DataHandler(BaseHTTPRequestHandler):
    server: DataHTTPServer
    protocol_version = "HTTP/1.1"
    server_version = "wingbeat"
    sys_version = ""
    timeout = _IDLE
    disable_nagle_algorithm = True

    def do_PUT(self) -> None:
        self._answer(self._put)

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_HEAD(self) -> None:
        self._answer(self._get)

    def _answer(self, handle: Any) -> None:
        with self.server.at_work():
            try:
                self._check_caller()
                handle()
            except Refused as refusal:
                self._refuse(refusal.status, refusal.message)
            except BadToken as error:
                self._refuse(HTTPStatus.FORBIDDEN, str(error))
            except OutsideStorage as error:
                self._refuse(HTTPStatus.FORBIDDEN, str(error))
            except ObjectMissing as error:
                self._refuse(HTTPStatus.NOT_FOUND, str(error))
            except StorageFull as error:
                self._refuse(HTTPStatus.INSUFFICIENT_STORAGE, str(error))
            except StorageUnavailable as error:
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            except Interrupted:
                self.close_connection = True

    def _check_caller(self) -> None:
        """A web page that was opened in a browser here must get nowhere, whatever name it gives this host."""
        host = _parts(f"//{self.headers.get('Host', '')}", "Host").hostname or ""
        if host not in self.server.hosts:
            raise Refused(HTTPStatus.FORBIDDEN, f"this server is not called {host!r}: use 127.0.0.1 or localhost")
        origin = self.headers.get("Origin")
        if origin is not None and _parts(origin, "Origin").netloc != self.headers.get("Host"):
            raise Refused(HTTPStatus.FORBIDDEN, f"requests of web pages from {origin!r} are refused")

    def handle_expect_100(self) -> bool:
        return True  # the client may go on once it was found to be allowed to: see _put

    def _grant(self, kind: str) -> Grant:
        token = self.path.removeprefix(f"/{kind}/")
        return self.server.signer.check(token, {"upload": "PUT", "download": "GET"}[kind])

    def _put(self) -> None:
        if not self.path.startswith("/upload/"):
            raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here; uploads go to /upload/TOKEN")
        grant = self._grant("upload")
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"[0-9]{1,18}", length):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "an upload has to say its Content-Length")
        if int(length) > grant.limit:
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{length} bytes are more than the {grant.limit} allowed"
            )
        announced = self.headers.get("Content-MD5", "")
        if announced and grant.md5 and announced != base64.b64encode(bytes.fromhex(grant.md5)).decode():
            raise Refused(
                HTTPStatus.FORBIDDEN,
                f"the Content-MD5 is not the one that this URL of {grant.uri} was made for; {AGAIN}",
            )
        wanted = grant.md5 or (_digest(announced) if announced else "")
        if self.headers.get("Expect", "").lower() == "100-continue":
            super().handle_expect_100()
        digest = ""
        try:
            with self.server.transfers, storing(self.server.storage, grant.uri, self.server.incoming) as file:
                digest = receive(self.rfile.readinto1, int(length), file)
                self._body_read = True
                if wanted and digest != wanted:
                    message = (
                        f"the content for {grant.uri} has the MD5 {digest}, not {wanted}: it was changed while it was "
                        "uploaded; send it again: flyte run ..."
                    )
                    raise Refused(HTTPStatus.BAD_REQUEST, message)
        except FileExistsError:
            if digest_of(self.server.storage, grant.uri) != digest:
                message = (
                    f"{grant.uri} is there already with other content, which is never replaced; send yours to a new "
                    "place: flyte delete local-cache"
                )
                raise Refused(HTTPStatus.CONFLICT, message) from None
        self._respond(HTTPStatus.OK, b"")

    def _get(self) -> None:
        if self.path == "/healthz":
            self._respond(HTTPStatus.OK, b"ok\n")
            return
        if not self.path.startswith("/download/"):
            raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here; downloads come from /download/TOKEN")
        grant = self._grant("download")
        storage = self.server.storage
        if isinstance(storage, FolderStorage):
            with open_file(storage, grant.uri) as (file, size):
                first, count = self._head_of_content(grant.uri, size)
                if self.command == "GET" and count:
                    self.wfile.flush()
                    self.connection.sendfile(file, first, count)
            return
        with reading(storage, grant.uri) as (size, chunks):
            first, count = self._head_of_content(grant.uri, size)
            if self.command == "GET":
                for chunk in chunks(first, count):
                    self.wfile.write(chunk)

    def _head_of_content(self, uri: str, size: int) -> tuple[int, int]:
        """Send status and headers; which bytes are to follow."""
        first, count = 0, size
        wanted = re.fullmatch(r"bytes=([0-9]{0,19})-([0-9]{0,19})", self.headers.get("Range", ""))
        if wanted and any(wanted.groups()):
            begin, end = wanted.groups()
            first = int(begin) if begin else max(0, size - int(end))
            last = min(int(end), size - 1) if begin and end else size - 1
            if first > last:
                self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
                self.send_header("Content-Range", f"bytes */{size}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return 0, 0
            count = last - first + 1
            self.send_response(HTTPStatus.PARTIAL_CONTENT)
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        else:
            self.send_response(HTTPStatus.OK)
        kind = mimetypes.guess_type(uri)[0] or "application/octet-stream"
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if kind.startswith("text/") else kind)
        self.send_header("Content-Length", str(count))
        self.send_header("Accept-Ranges", "bytes")
        # What a task wrote may be hostile: it gets an origin of its own and no other type than it has.
        self.send_header("Content-Security-Policy", "sandbox allow-scripts")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "private, no-cache")
        self.end_headers()
        return first, count

    def _respond(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    _body_read = False

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        body_left = self.command == "PUT" and not self._body_read
        self.close_connection = self.close_connection or body_left
        self._respond(status, f"wingbeat: {message}\n".encode())
        if body_left:
            self._read_on()

    def _read_on(self) -> None:
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_WR)
        self.connection.settimeout(5)
        left = min(int(self.headers.get("Content-Length") or 0), _LINGER)
        try:
            while left > 0 and (chunk := self.rfile.read1(min(left, 1 << 20))):
                left -= len(chunk)
        except OSError:
            pass

    def parse_request(self) -> bool:
        self._body_read = False
        return super().parse_request()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: each URL is a key."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="wingbeat.storage.server", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="the server's own folder: key and incoming files")
    parser.add_argument("--storage", required=True, help="the base URI of the storage")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--allow-host", action="append", default=[], help="a further name by which clients may call")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    address = (options.host, options.port)
    storage = open_storage(options.storage)
    signer = Signer.load(options.folder / "signing.key")
    server = DataHTTPServer(address, storage, signer, options.folder, options.allow_host)

    def until_input_ends() -> None:
        # Not sys.stdin: this thread would hold its lock at the end, which Python takes for a deadlock and aborts.
        while os.read(0, 4096):
            pass
        server.drain(5)

    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.drain, args=(5,), daemon=True).start())
    threading.Thread(target=until_input_ends, daemon=True).start()
    with suppress(BrokenPipeError):  # the server is gone already, which the thread above sees too
        os.write(1, f"{server.server_address[1]}\n".encode())
    server.serve_forever()
    with server.idle:
        server.idle.wait_for(lambda: server.busy == 0, timeout=5)


if __name__ == "__main__":
    main()
