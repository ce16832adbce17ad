"""A started server with two small services: one answers, one streams until its client goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from connectrpc.request import RequestContext
from flyteidl2.cluster.payload_pb2 import SelectClusterRequest, SelectClusterResponse
from flyteidl2.cluster.service_connect import ClusterService, ClusterServiceASGIApplication
from flyteidl2.workflow.state_service_connect import StateService, StateServiceASGIApplication
from flyteidl2.workflow.state_service_pb2 import ControlMessage, WatchRequest, WatchResponse

from wingbeat.control.codec import mount
from wingbeat.control.errors import ErrorInterceptor, Missing
from wingbeat.server.asgi import Application
from wingbeat.server.gate import Gate
from wingbeat.server.health import health_pages
from wingbeat.server.http import HttpServer


class Cluster(ClusterService):
    async def select_cluster(self, request: SelectClusterRequest, ctx: RequestContext) -> SelectClusterResponse:
        if request.org_id.name == "missing":
            raise Missing("there is no such cluster")
        if request.org_id.name == "boom":
            raise ZeroDivisionError("boom")
        return SelectClusterResponse(cluster=f"hello {request.org_id.name[:50]}")


@dataclass
class State(StateService):
    """Streams one message, then waits without end; notes that it began and that it was let go."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def watch(self, request: WatchRequest, ctx: RequestContext) -> AsyncIterator[WatchResponse]:
        try:
            yield WatchResponse(control_message=ControlMessage(sentinel=True))
            if request.parent_action_id.name == "short":
                yield WatchResponse(control_message=ControlMessage(sentinel=True))
                return
            self.begun.set()
            await asyncio.Event().wait()
        finally:
            self.ended.set()


@dataclass
class Started:
    server: HttpServer
    host: str
    port: int
    state: State
    problems: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


async def start_server(gate: Gate | None = None, port: int = 0, **options: Any) -> Started:
    state = State()
    problems: list[str] = []

    async def database() -> None:
        if problems:
            raise OSError(problems[0])

    interceptors = (ErrorInterceptor(),)
    app = Application(
        [
            mount(ClusterServiceASGIApplication, Cluster(), interceptors),
            mount(StateServiceASGIApplication, state, interceptors),
        ],
        health_pages({"database": database}),
        **options,
    )
    server = HttpServer(app, host="127.0.0.1", port=port, gate=gate)
    host, bound = await server.start()
    return Started(server, host, bound, state, problems)


@pytest.fixture
async def started() -> AsyncIterator[Started]:
    it = await start_server()
    yield it
    await it.server.stop(1)


@pytest.fixture
def start() -> Any:
    return start_server
