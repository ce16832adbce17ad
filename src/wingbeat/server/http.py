"""One port, four protocols: Connect (JSON and protobuf), gRPC and gRPC-Web.

The first bytes of a connection tell HTTP/2 (its fixed preface) from HTTP/1.1. HTTP/1.1, which the SDK, the CLI and
task processes speak, goes to uvicorn's httptools protocol, which is fast; HTTP/2, which native gRPC clients need for
trailers, goes to hypercorn's. Both run the same application. docs/decisions/0002 has the measurements.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from typing import Any, cast

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config as HypercornConfig
from uvicorn.config import Config as UvicornConfig
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from wingbeat.server.asgi import Application
from wingbeat.server.gate import Gate

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
KEEP_ALIVE_SECONDS = 120
"""Longer than the 90 s for which clients keep idle connections: else they would reuse one that we just closed."""
FIRST_BYTE_SECONDS = 30
BACKLOG = 2048
"""A fan-out starts hundreds of processes that connect at the same moment."""


class PortTaken(Exception):
    """Another program listens there."""

    def __init__(self, port: int) -> None:
        super().__init__(f"port {port} is taken by another program; stop it, or choose another port with --port")
        self.port = port


class _Connection(asyncio.Protocol):
    """Looks at the first bytes of a connection, then hands it to the protocol that speaks it."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._refused = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's own does not derive from it
        self._transport = transport
        self._server.fresh.add(self)
        _keep_alive(transport.get_extra_info("socket"))
        self._refused = self._server.gate.refuse_connection(
            transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        )
        self._timer = asyncio.get_running_loop().call_later(FIRST_BYTE_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._buffer.startswith(HTTP2_PREFACE):
            self._hand_over(self._server.http2)
        elif not HTTP2_PREFACE.startswith(self._buffer):
            self._hand_over(self._server.http1)

    def _hand_over(self, speaker: Any) -> None:
        assert self._transport is not None
        self._let_go()
        speaker(self._transport, self._buffer, {"refused": self._refused})
        self._buffer = b""

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()

    def _let_go(self) -> None:
        self._server.fresh.discard(self)
        if self._timer:
            self._timer.cancel()

    def close(self) -> None:
        if self._transport:
            self._transport.close()


def _keep_alive(sock: Any) -> None:
    """Notice peers that vanish without a word (a machine put to sleep) within about a minute."""
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class HttpServer:
    """Serves `app` at host and port. Port 0 takes a free one; a `listener` that listens there already is used."""

    def __init__(
        self,
        app: Application,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        gate: Gate | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        self.app = app
        self.gate = gate or Gate()
        self.fresh: set[_Connection] = set()
        self._host = host
        self._port = port
        self._listener = listener
        self._server: asyncio.Server | None = None
        self._http1 = UvicornConfig(
            app=app,
            http="httptools",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            server_header=False,
            date_header=False,
        )
        self._http1_state = ServerState()
        self._http2 = HypercornConfig()
        self._http2.keep_alive_timeout = KEEP_ALIVE_SECONDS
        self._http2.include_date_header = False
        self._http2.include_server_header = False
        self._http2.h2_max_concurrent_streams = 1000
        # By default a connection ends, with an error for whoever uses it, after 1,000 calls.
        self._http2.keep_alive_max_requests = sys.maxsize
        self._http2_context = WorkerContext(None)
        self._http2_tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> tuple[str, int]:
        """Bind and serve; returns host and port as bound. Raises ListenRefused, PortTaken, OSError."""
        self.gate.check_host(self._host)
        self._http1.load()
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: _Connection(self),
                **({"sock": self._listener} if self._listener else {"host": self._host, "port": self._port}),
                backlog=BACKLOG,
                start_serving=False,
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortTaken(self._port) from None
            raise
        host, port = self._server.sockets[0].getsockname()[:2]
        self.gate.open(host, port)
        self.app.gate = self.gate
        await self._server.start_serving()
        return host, port

    def http1(self, transport: asyncio.Transport, data: bytes, state: dict[str, Any]) -> None:
        protocol = HttpToolsProtocol(self._http1, self._http1_state, state)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    def http2(self, transport: asyncio.Transport, data: bytes, state: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        connection = TCPServer(ASGIWrapper(self.app), loop, self._http2, self._http2_context, state, reader, writer)
        task: asyncio.Task[None] = loop.create_task(connection.run())
        self._http2_tasks.add(task)
        task.add_done_callback(self._http2_ended)

    def _http2_ended(self, task: asyncio.Task[None]) -> None:
        self._http2_tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logging.getLogger(__name__).warning("an HTTP/2 connection ended badly", exc_info=task.exception())

    async def stop(self, grace: float = 5.0) -> None:
        """Take no more connections, end streams, let requests finish for `grace` seconds, close everything."""
        if self._server is None:
            return
        self._server.close()
        for fresh in list(self.fresh):
            fresh.close()
        await self.app.drain(grace)
        for connection in list(self._http1_state.connections):
            connection.shutdown()
        await self._http2_context.terminated.set()
        for connection in list(self._http1_state.connections):
            if connection.transport and not connection.transport.is_closing():
                connection.transport.close()
        if self._http2_tasks:
            _, left = await asyncio.wait(list(self._http2_tasks), timeout=1.0)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=1.0)
        self._server = None
