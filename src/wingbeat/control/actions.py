"""The service that running parents talk to, and the older pair of services with the same meaning."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from flyteidl2.actions.actions_service_connect import ActionsService
from flyteidl2.actions.actions_service_pb2 import (
    AbortResponse,
    Action,
    EnqueueResponse,
    SignalResponse,
    UpdateResponse,
    WatchForUpdatesResponse,
)
from flyteidl2.workflow.queue_service_connect import QueueService
from flyteidl2.workflow.queue_service_pb2 import (
    AbortQueuedActionResponse,
    AbortQueuedRunResponse,
    EnqueueActionResponse,
)
from flyteidl2.workflow.state_service_connect import StateService
from flyteidl2.workflow.state_service_pb2 import ControlMessage, WatchResponse

from wingbeat.control import wire
from wingbeat.control.endings import Aborts, Signals
from wingbeat.control.enqueue import Enqueuer
from wingbeat.control.errors import InvalidRequest
from wingbeat.control.watches import Watches
from wingbeat.database import Records


def _subject(identity: Any) -> str:
    """Who an EnrichedIdentity is; empty when it says nothing."""
    kind = identity.WhichOneof("principal")
    return str(getattr(identity, kind).id.subject) if kind else ""


CANCELLED = "cancelled by its parent"
"""Why a child is aborted when the parent's SDK asks for it and gives no reason."""


class ActionsApi(ActionsService):  # type: ignore[misc]
    def __init__(
        self, enqueuer: Enqueuer, watches: Watches, aborts: Aborts, signals: Signals, records: Records, user: str
    ) -> None:
        self._enqueuer = enqueuer
        self._watches = watches
        self._aborts = aborts
        self._signals = signals
        self._records = records
        self._user = user

    async def enqueue(self, request: Any, ctx: Any) -> Any:
        await self._enqueuer.enqueue(request.action)
        return EnqueueResponse()

    async def watch_for_updates(self, request: Any, ctx: Any) -> AsyncIterator[Any]:
        if request.WhichOneof("filter") is None:
            raise InvalidRequest("whose children? The request has no parent action")
        async with aclosing(self._watches.children(wire.action_id(request.parent_action_id))) as messages:
            async for message in messages:
                if isinstance(message, ControlMessage):
                    yield WatchForUpdatesResponse(control_message=message)
                else:
                    yield WatchForUpdatesResponse(action_update=message)

    async def update(self, request: Any, ctx: Any) -> Any:
        """Executors of other kinds report here. Ours writes the store, so what is known is only confirmed."""
        await self._records.get(wire.action_id(request.action_id))
        return UpdateResponse()

    async def abort(self, request: Any, ctx: Any) -> Any:
        by = _subject(request.aborted_by) or self._user
        await self._aborts.action(wire.action_id(request.action_id), request.reason or CANCELLED, by)
        return AbortResponse()

    async def signal(self, request: Any, ctx: Any) -> Any:
        by = _subject(request.signalled_by) or self._user
        await self._signals.signal(wire.action_id(request.action_id), request.value, by)
        return SignalResponse()


class QueueApi(QueueService):  # type: ignore[misc]
    def __init__(self, enqueuer: Enqueuer, aborts: Aborts, user: str) -> None:
        self._enqueuer = enqueuer
        self._aborts = aborts
        self._user = user

    async def enqueue_action(self, request: Any, ctx: Any) -> Any:
        action = Action(
            action_id=request.action_id,
            parent_action_name=request.parent_action_name,
            input_uri=request.input_uri,
            run_output_base=request.run_output_base,
            group=request.group,
            subject=request.subject,
        )
        kind = request.WhichOneof("spec")
        if kind is not None:
            getattr(action, kind).CopyFrom(getattr(request, kind))
        await self._enqueuer.enqueue(action)
        return EnqueueActionResponse()

    async def abort_queued_run(self, request: Any, ctx: Any) -> Any:
        await self._aborts.run(wire.run_id(request.run_id), request.reason, self._user)
        return AbortQueuedRunResponse()

    async def abort_queued_action(self, request: Any, ctx: Any) -> Any:
        await self._aborts.action(wire.action_id(request.action_id), request.reason or CANCELLED, self._user)
        return AbortQueuedActionResponse()


class StateApi(StateService):  # type: ignore[misc]
    """Only the watch: no client that runs today writes states."""

    def __init__(self, watches: Watches) -> None:
        self._watches = watches

    async def watch(self, request: Any, ctx: Any) -> AsyncIterator[Any]:
        if request.WhichOneof("filter") is None:
            raise InvalidRequest("whose children? The request has no parent action")
        async with aclosing(self._watches.children(wire.action_id(request.parent_action_id))) as messages:
            async for message in messages:
                if isinstance(message, ControlMessage):
                    yield WatchResponse(control_message=message)
                else:
                    yield WatchResponse(action_update=message)
