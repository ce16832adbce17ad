"""Server-sent events: sent while someone listens, a sign of life when nothing happens, and an end when they hang up."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from wingbeat.server.asgi import Receive, Send
from wingbeat.server.pages.responses import DATA_POLICY, headers

RETRY_MILLISECONDS = 2_000
"""How long a browser waits before it connects again."""


class Event(msgspec.Struct, frozen=True):
    """One message; without a name, a comment that only keeps the connection alive."""

    name: str = ""
    data: Any = None
    id: str = ""

    def encode(self) -> bytes:
        if not self.name:
            return b": still here\n\n"
        start = f"id: {self.id}\n" if self.id else ""
        # JSON has no line feeds of its own, so that the data is one line.
        return f"{start}event: {self.name}\ndata: {json.dumps(self.data)}\n\n".encode()


async def serve(events: AsyncGenerator[Event, None], receive: Receive, send: Send) -> None:
    """Send `events` to their end. When the client hangs up, `events` is closed where it waits."""

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
        async with contextlib.aclosing(events) as source:
            async for event in source:
                yield event.encode()

    await serve_pieces(pieces(), "text/event-stream", receive, send)


async def serve_pieces(pieces: AsyncGenerator[bytes, None], content_type: str, receive: Receive, send: Send) -> None:
    """Send bytes as they come; see `serve`."""
    task = asyncio.current_task()
    assert task is not None
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        task.cancel()

    watcher = asyncio.get_running_loop().create_task(watch())
    try:
        async with contextlib.aclosing(pieces) as source:
            all_headers = headers(content_type, DATA_POLICY, (b"x-accel-buffering", b"no"))
            await send({"type": "http.response.start", "status": 200, "headers": all_headers})
            async for piece in source:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except asyncio.CancelledError:
        if not gone:
            raise
        task.uncancel()
    finally:
        watcher.cancel()
