"""What goes wrong in the control plane, by who must act, and the one table from exceptions to Connect codes.

A client starts an authentication flow when it sees `unknown`, and stops watching for good when it sees `canceled`, so
neither ever leaves this server: whatever is not in the table is `internal`, and a handler that is ended because the
server stops says `unavailable`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from prometheus_client import Counter, Histogram

from wingbeat import stores
from wingbeat.database import BadQuery, DatabaseUnavailable, RecordNotFound
from wingbeat.storage import ObjectMissing, OutsideStorage

log = logging.getLogger(__name__)

REQUESTS = Counter("wingbeat_rpc_requests_total", "Answered calls, by method and Connect code.", ["method", "code"])
SECONDS = Histogram(
    "wingbeat_rpc_seconds",
    "Time to answer unary calls.",
    ["method"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
)


CLIENT = "is the client one of Flyte 2? See: flyte --version"
"""What to look at after a request that the SDK would not have sent."""


class ControlError(Exception):
    """Base of what the services refuse. The text is for people: what, which thing, what to do next."""


class InvalidRequest(ControlError):
    """The caller must change the request."""


class Missing(ControlError):
    """The thing named does not exist."""


class Exists(ControlError):
    """A different thing of that name exists already."""


class NotNow(ControlError):
    """The thing is in a state that does not allow this."""


class Stale(ControlError):
    """Changed by somebody else meanwhile: read again."""


class Gone(ControlError):
    """The parent or run is being aborted or has ended: the caller should stop too."""


class Draining(ControlError):
    """The server is about to stop and takes nothing new."""


class Unsupported(ControlError):
    """Not offered (yet)."""


CODES: tuple[tuple[type[BaseException], Code], ...] = (
    (InvalidRequest, Code.INVALID_ARGUMENT),
    (Missing, Code.NOT_FOUND),
    (Exists, Code.ALREADY_EXISTS),
    (NotNow, Code.FAILED_PRECONDITION),
    (Stale, Code.FAILED_PRECONDITION),
    (Gone, Code.ABORTED),
    # Not `unavailable`: for that the SDK shows words of its own instead of ours.
    (Draining, Code.FAILED_PRECONDITION),
    (Unsupported, Code.UNIMPLEMENTED),
    (BadQuery, Code.INVALID_ARGUMENT),
    (RecordNotFound, Code.NOT_FOUND),
    (DatabaseUnavailable, Code.UNAVAILABLE),
    (stores.NotFound, Code.NOT_FOUND),
    (stores.AlreadyExists, Code.ALREADY_EXISTS),
    # Not `aborted`: the SDK takes that for an aborted run.
    (stores.Conflict, Code.UNAVAILABLE),
    (stores.Expired, Code.UNAVAILABLE),
    (stores.Unavailable, Code.UNAVAILABLE),
    (ObjectMissing, Code.NOT_FOUND),
    (OutsideStorage, Code.INVALID_ARGUMENT),
    # Numbers that no column holds.
    (OverflowError, Code.INVALID_ARGUMENT),
    (asyncio.CancelledError, Code.UNAVAILABLE),
)


def connect_error(error: BaseException, method: str) -> ConnectError:
    """`error` as it goes over the wire. What nobody foresaw is logged, with its traceback."""
    if isinstance(error, ConnectError):
        return error if error.code is not Code.UNKNOWN else ConnectError(Code.INTERNAL, error.message)
    for kind, code in CODES:
        if isinstance(error, kind):
            text = str(error) or "the server is stopping; call again in a moment"
            return ConnectError(code, text)
    log.error("%s failed unexpectedly", method, exc_info=error)
    return ConnectError(
        Code.INTERNAL, f"{method} failed inside the server ({type(error).__name__}: {error}); its log has the details"
    )


class ErrorInterceptor:
    """Around every handler: codes for exceptions, and the metrics of calls."""

    async def intercept_unary(
        self, call_next: Callable[[Any, RequestContext], Awaitable[Any]], request: Any, ctx: RequestContext
    ) -> Any:
        method = ctx.method().name
        started = time.perf_counter()
        code = "ok"
        try:
            return await call_next(request, ctx)
        except (Exception, asyncio.CancelledError) as error:
            answer = connect_error(error, method)
            code = answer.code.value
            raise answer from error
        finally:
            REQUESTS.labels(method, code).inc()
            SECONDS.labels(method).observe(time.perf_counter() - started)

    async def intercept_server_stream(
        self, call_next: Callable[[Any, RequestContext], AsyncIterator[Any]], request: Any, ctx: RequestContext
    ) -> AsyncIterator[Any]:
        method = ctx.method().name
        code = "ok"
        stream = call_next(request, ctx)
        try:
            async for message in stream:
                yield message
        except (Exception, asyncio.CancelledError) as error:
            answer = connect_error(error, method)
            # For the metrics a client that hung up is no failure.
            code = "hung up" if isinstance(error, asyncio.CancelledError) else answer.code.value
            raise answer from error
        finally:
            REQUESTS.labels(method, code).inc()
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
