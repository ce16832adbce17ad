"""Between HTTP and the services: one ASGI application that gates, dispatches, limits and lets go.

Each request is a task that this module knows: a client that hangs up ends its stream's handler at once, and a server
that stops ends the streams first and gives the rest its grace.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Protocol

from connectrpc.code import Code
from connectrpc.errors import ConnectError

from wingbeat.server.gate import Gate

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Of a request to a service, before and (apart) after decompression. Inline inputs are at most 10 MB."""

MAX_IGNORED_BYTES = 1024 * 1024 * 1024
TEXT = "text/plain; charset=utf-8"
GRPC_NUMBERS = {Code.PERMISSION_DENIED: 7, Code.NOT_FOUND: 5, Code.UNIMPLEMENTED: 12}


class ServiceApp(Protocol):
    """A generated application: serves every path below `path`."""

    @property
    def path(self) -> str: ...

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...


async def respond(send: Send, status: int, body: bytes, content_type: str, *headers: tuple[bytes, bytes]) -> None:
    """Send a whole response."""
    all_headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})


def _content_type(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"content-type":
            return bytes(value)
    return b""


async def respond_error(scope: Scope, send: Send, status: int, code: Code, message: str) -> None:
    """An error before any handler: in the form a Connect client reads, in gRPC's, or as text for a browser."""
    content_type = _content_type(scope)
    if content_type.startswith(b"application/grpc"):
        number = GRPC_NUMBERS[code]
        text = "".join(c if " " <= c <= "~" and c != "%" else "".join(f"%{b:02X}" for b in c.encode()) for c in message)
        trailers = [(b"grpc-status", str(number).encode()), (b"grpc-message", text.encode())]
        web = content_type.startswith(b"application/grpc-web")
        headers = [(b"content-type", content_type)]
        await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": not web})
        if web:
            block = b"".join(name + b": " + value + b"\r\n" for name, value in trailers)
            await send({"type": "http.response.body", "body": b"\x80" + len(block).to_bytes(4, "big") + block})
        else:
            await send({"type": "http.response.body", "body": b""})
            if "http.response.trailers" in scope.get("extensions", {}):
                await send({"type": "http.response.trailers", "headers": trailers})
    elif content_type.startswith(b"application/") or scope["path"].startswith("/flyteidl2."):
        body = json.dumps({"code": code.value, "message": message}).encode()
        await respond(send, status, body, "application/json")
    else:
        await respond(send, status, message.encode() + b"\n", TEXT)


async def _read_away(receive: Receive, limit: int = MAX_IGNORED_BYTES) -> None:
    """Take the rest of a body and keep nothing of it: most clients read an answer only when they have sent all."""
    while limit > 0:
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            return
        limit -= len(message.get("body", b""))


class Application:
    """All of one port. `services` are mounted at their own paths; `pages` at a prefix, the longest match first."""

    def __init__(
        self,
        services: Iterable[ServiceApp],
        pages: Iterable[tuple[str, ASGIApp]] = (),
        *,
        max_body: int = MAX_BODY_BYTES,
    ) -> None:
        self._services = {app.path: app for app in services}
        self._pages = sorted(pages, key=lambda page: -len(page[0]))
        self._max_body = max_body
        self.gate: Gate | None = None
        self._requests: dict[asyncio.Task[Any], bool] = {}
        """Requests being served, and whether each is in the middle of a streamed answer."""

    @property
    def in_flight(self) -> int:
        return len(self._requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return None
        service = self._services.get(scope["path"].rpartition("/")[0])
        refused = self.gate.refuse_request(scope) if self.gate else ""
        if scope.get("http_version") == "2" and (refused or service is None):
            # An answer before the end of the body would break the connection for its other streams.
            await _read_away(receive)
        if refused:
            return await respond_error(scope, send, 403, Code.PERMISSION_DENIED, refused)
        if not all(value.isascii() for _, value in scope["headers"]):
            return await respond(send, 400, b"a header of this request is not text\n", TEXT)
        path: str = scope["path"]
        if service is not None:
            return await self._serve(service, scope, receive, send)
        if path.startswith("/flyteidl2."):
            name = path[1:].partition("/")[0][:200]
            return await respond_error(scope, send, 501, Code.UNIMPLEMENTED, f"this server does not offer {name} (yet)")
        for prefix, page in self._pages:
            if path == prefix or path.startswith(prefix.rstrip("/") + "/"):
                return await self._serve(page, scope, receive, send)
        return await respond_error(scope, send, 404, Code.NOT_FOUND, f"there is nothing at {path[:200]}")

    async def _serve(self, app: Any, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._requests[task] = False
        gone = False
        received = 0
        length = next((int(v) for n, v in scope["headers"] if n == b"content-length" and v.isdigit()), 0)
        too_large = ConnectError(
            Code.RESOURCE_EXHAUSTED,
            f"the request {scope['path'][:200]} is larger than {self._max_body} bytes; pass large values as files "
            "(flyte.io.File): flyte run ... --NAME FILE",
        )

        async def limited_receive() -> Message:
            nonlocal gone, received
            if length > self._max_body:
                raise too_large
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > self._max_body:
                    if message.get("more_body", False):
                        await _read_away(receive)
                    raise too_large
            elif message["type"] == "http.disconnect" and not gone:
                gone = True
                # The generated applications look at this only before their next message.
                if self._requests.get(task):
                    task.cancel()
            return message

        async def noted_send(message: Message) -> None:
            if gone:
                return
            if message["type"] == "http.response.body":
                self._requests[task] = bool(message.get("more_body", False))
            elif message["type"] == "http.response.trailers":
                self._requests[task] = False
            await send(message)

        try:
            await app(scope, limited_receive, noted_send)
        except (asyncio.CancelledError, ConnectError):
            if not gone:
                raise
        finally:
            self._requests.pop(task, None)

    async def drain(self, grace: float) -> None:
        """End the streams now, and what is left after `grace` seconds."""
        for task, streaming in list(self._requests.items()):
            if streaming:
                task.cancel()
        if self._requests:
            await asyncio.wait(list(self._requests), timeout=grace)
        left = list(self._requests)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1.0)
