"""`/healthz`, `/readyz` and `/metrics`, for people, scripts and scrapers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from wingbeat.server.asgi import TEXT, ASGIApp, Receive, Scope, Send, respond

Check = Callable[[], Awaitable[None]]
"""Raises, with words for people, when the thing it looks at cannot be used now."""
CHECK_SECONDS = 5.0


def health_pages(checks: Mapping[str, Check], registry: CollectorRegistry = REGISTRY) -> list[tuple[str, ASGIApp]]:
    """The pages, with their paths. `checks` name what the server cannot do without (the database, the storage)."""

    async def healthz(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, b"OK\n", TEXT)

    async def readyz(scope: Scope, receive: Receive, send: Send) -> None:
        problems = [p for p in await asyncio.gather(*(_run(n, c) for n, c in checks.items())) if p]
        if problems:
            await respond(send, 503, ("\n".join(problems) + "\n").encode(), TEXT)
        else:
            await respond(send, 200, b"OK\n", TEXT)

    async def metrics(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, generate_latest(registry), CONTENT_TYPE_LATEST)

    return [("/healthz", healthz), ("/readyz", readyz), ("/metrics", metrics)]


async def _run(name: str, check: Check) -> str:
    try:
        await asyncio.wait_for(check(), CHECK_SECONDS)
    except TimeoutError:
        return f"{name}: no answer within {CHECK_SECONDS:g} s"
    except Exception as error:
        return f"{name}: {error}"
    return ""
