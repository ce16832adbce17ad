"""Runs and their actions, as the CLI, the SDK and the pages see them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec
from flyteidl2.core.execution_pb2 import LogContext
from flyteidl2.workflow.run_definition_pb2 import EnrichedAction
from flyteidl2.workflow.run_service_connect import RunService
from flyteidl2.workflow.run_service_pb2 import (
    AbortActionResponse,
    AbortRunResponse,
    CreateRunResponse,
    GetActionDataURIsResponse,
    GetActionDetailsResponse,
    GetActionLogContextResponse,
    GetRunDetailsResponse,
    ListActionsResponse,
    ListRunsResponse,
    SignalEventResponse,
    WatchActionDetailsResponse,
    WatchActionsResponse,
    WatchClusterEventsResponse,
    WatchRunDetailsResponse,
    WatchRunsResponse,
)

from wingbeat.control import listing, wire
from wingbeat.control.endings import Aborts, Signals, payload_literal
from wingbeat.control.errors import InvalidRequest, Missing, Unsupported
from wingbeat.control.feed import Feed, Predicate
from wingbeat.control.names import missing_action, missing_run
from wingbeat.control.specs import Specs
from wingbeat.control.submit import Submission
from wingbeat.control.tree import Tree
from wingbeat.control.watches import Watches
from wingbeat.database import Filter, FilterFunction, Order, RecordNotFound, RecordQuery, Records
from wingbeat.resources import (
    ROOT_ACTION,
    ActionId,
    ActionPhase,
    ActionRecord,
    ActionType,
    RunId,
    TaskId,
    normalize_org,
)

RUN_ORDER = (Order("created_at", True),)
ACTION_ORDER = (Order("created_at", False),)
WATCH_RUNS_SNAPSHOT = 100
WATCH_ACTIONS_PAGE = 1000


def outputs_uri(record: ActionRecord) -> str:
    """The full path of the outputs.pb of an action that succeeded; empty where there is none."""
    if record.phase not in wire.SUCCESS_PHASES or not record.output_uri:
        return ""
    if record.action_type == ActionType.TRACE or record.output_uri.endswith("/outputs.pb"):
        return record.output_uri
    return f"{record.output_uri.rstrip('/')}/outputs.pb"


class RunApi(RunService):  # type: ignore[misc]
    def __init__(
        self,
        submission: Submission,
        records: Records,
        specs: Specs,
        watches: Watches,
        feed: Feed,
        aborts: Aborts,
        signals: Signals,
        *,
        user: str,
        heartbeat: float,
    ) -> None:
        self._submission = submission
        self._records = records
        self._specs = specs
        self._watches = watches
        self._feed = feed
        self._aborts = aborts
        self._signals = signals
        self._user = user
        self._heartbeat = heartbeat

    # --- changes

    async def create_run(self, request: Any, ctx: Any) -> Any:
        record = await self._submission.create_run(request)
        return CreateRunResponse(run=wire.run(record))

    async def abort_run(self, request: Any, ctx: Any) -> Any:
        await self._aborts.run(wire.run_id(request.run_id), request.reason, self._user)
        return AbortRunResponse()

    async def abort_action(self, request: Any, ctx: Any) -> Any:
        await self._aborts.action(wire.action_id(request.action_id), request.reason, self._user)
        return AbortActionResponse()

    async def signal_event(self, request: Any, ctx: Any) -> Any:
        await self._signals.signal(wire.action_id(request.action_id), payload_literal(request.payload), self._user)
        return SignalEventResponse()

    # --- one

    async def get_run_details(self, request: Any, ctx: Any) -> Any:
        record = await self._root(wire.run_id(request.run_id))
        return GetRunDetailsResponse(details=await self._watches.run_details_of(record))

    async def get_action_details(self, request: Any, ctx: Any) -> Any:
        record = await self._get(wire.action_id(request.action_id))
        return GetActionDetailsResponse(details=await self._watches.details_of(record))

    async def get_action_data(self, request: Any, ctx: Any) -> Any:
        raise Unsupported("inputs and outputs are read with DataProxyService.GetActionData")

    async def get_action_data_u_r_is(self, request: Any, ctx: Any) -> Any:
        record = await self._get(wire.action_id(request.action_id))
        return GetActionDataURIsResponse(inputs_uri=record.input_uri, outputs_uri=outputs_uri(record))

    async def get_action_log_context(self, request: Any, ctx: Any) -> Any:
        id = wire.action_id(request.action_id)
        for attempt in await self._records.attempts(id):
            if attempt.attempt == request.attempt and attempt.logs_available:
                context = LogContext(primary_pod_name=id.object_name)
                return GetActionLogContextResponse(
                    log_context=context,
                    start_time=wire.timestamp(attempt.started_at),
                    end_time=wire.timestamp(attempt.ended_at),
                )
        raise Missing(f"there are no logs of attempt {request.attempt} of action {id}")

    # --- lists

    async def list_runs(self, request: Any, ctx: Any) -> Any:
        query = listing.record_query(request.request, RUN_ORDER, parent="", **_run_scope(request))
        if request.WhichOneof("scope_by") == "trigger_name":
            fired = Filter("trigger_name", FilterFunction.EQUAL, (request.trigger_name.name,))
            query = msgspec.structs.replace(query, filters=(*query.filters, fired))
        if request.paused_actions_only:
            paused = await self._with_paused_actions(query)
            if paused is None:
                return ListRunsResponse()
            query = paused
        records = await self._records.list(query)
        token = listing.next_token(records, query.limit - 1, query.offset)
        return ListRunsResponse(runs=[wire.run(r) for r in records], token=token)

    async def _with_paused_actions(self, query: RecordQuery) -> RecordQuery | None:
        """Only runs that have an action that waits for an answer."""
        paused = Filter("phase", FilterFunction.EQUAL, (int(ActionPhase.PAUSED),))
        scope = RecordQuery(org=query.org, project=query.project, domain=query.domain, filters=(paused,), limit=1000)
        names = tuple({r.id.run for r in await self._records.list(scope)})
        if not names:
            return None
        wanted = Filter("run_name", FilterFunction.VALUE_IN, names)
        return msgspec.structs.replace(query, filters=(*query.filters, wanted))

    async def list_actions(self, request: Any, ctx: Any) -> Any:
        run = wire.run_id(request.run_id)
        message = request.request
        for each in message.filters:
            if each.field == "parent_name":
                each.field = "parent"
        query = listing.record_query(
            message, ACTION_ORDER, org=run.org, project=run.project, domain=run.domain, run=run.run
        )
        records = await self._records.list(query)
        token = listing.next_token(records, query.limit - 1, query.offset)
        actions = [wire.action(r, await self._condition_spec(r)) for r in records]
        return ListActionsResponse(actions=actions, token=token)

    async def _condition_spec(self, record: ActionRecord) -> bytes:
        return await self._specs.of(record) if record.action_type == ActionType.CONDITION else b""

    # --- watches

    async def watch_action_details(self, request: Any, ctx: Any) -> AsyncIterator[Any]:
        async with aclosing(self._watches.details(wire.action_id(request.action_id))) as details:
            async for each in details:
                yield WatchActionDetailsResponse(details=each)

    async def watch_run_details(self, request: Any, ctx: Any) -> AsyncIterator[Any]:
        run = wire.run_id(request.run_id)
        async with aclosing(self._watches.record(run.action(ROOT_ACTION))) as records:
            async for record in records:
                yield WatchRunDetailsResponse(details=await self._watches.run_details_of(record))

    async def watch_runs(self, request: Any, ctx: Any) -> AsyncIterator[Any]:
        """The newest runs, then each that is new or changes. Without end."""
        scope = _run_scope(request)
        with self._feed.everywhere(_in_scope(scope)) as changes:
            for record in await self._records.list(
                RecordQuery(parent="", order_by=RUN_ORDER, limit=WATCH_RUNS_SNAPSHOT, **scope)
            ):
                changes.offer(record)
            yield WatchRunsResponse(runs=[wire.run(r) for r in await changes.take(0)])
            while True:
                yield WatchRunsResponse(runs=[wire.run(r) for r in await changes.take(self._heartbeat)])

    async def watch_actions(self, request: Any, ctx: Any) -> AsyncIterator[Any]:
        """All actions of a run that match, with their ancestors, then what changes. Without end."""
        run = wire.run_id(request.run_id)
        tree = Tree(request.filter)
        await self._root(run)
        with self._feed.of_run(run) as changes:
            query = RecordQuery(
                org=run.org, project=run.project, domain=run.domain, run=run.run, order_by=ACTION_ORDER, limit=0
            )
            for record in await self._records.list(query):
                changes.offer(record)
            wait = 0.0
            while True:
                nodes = tree.update(await changes.take(wait))
                for start in range(0, max(len(nodes), 1), WATCH_ACTIONS_PAGE):
                    page = nodes[start : start + WATCH_ACTIONS_PAGE]
                    enriched = [
                        EnrichedAction(
                            action=wire.action(node.record, await self._condition_spec(node.record)),
                            meets_filter=shown,
                            children_phase_counts=node.counts,
                        )
                        for node, shown in page
                    ]
                    yield WatchActionsResponse(enriched_actions=enriched)
                wait = self._heartbeat

    async def watch_cluster_events(self, request: Any, ctx: Any) -> AsyncIterator[Any]:
        """What happened to one attempt, in words; ends with the attempt."""
        id = wire.action_id(request.id)
        sent = 0
        async with aclosing(self._watches.record(id)) as records:
            async for record in records:
                attempt = next((a for a in await self._records.attempts(id) if a.attempt == request.attempt), None)
                reasons = attempt.reasons if attempt else []
                events = [wire.cluster_event(r.message, r.occurred_at, r.warning) for r in reasons]
                yield WatchClusterEventsResponse(cluster_events=events[sent:])
                sent = len(events)
                if (attempt is not None and attempt.ended_at is not None) or record.attempts > request.attempt:
                    return

    # --- parts

    async def _get(self, id: ActionId) -> ActionRecord:
        try:
            return await self._records.get(id)
        except RecordNotFound:
            raise missing_action(id) from None

    async def _root(self, run: RunId) -> ActionRecord:
        try:
            return await self._records.get(run.action(ROOT_ACTION))
        except RecordNotFound:
            raise missing_run(run) from None


def _run_scope(request: Any) -> dict[str, Any]:
    """The scope of a request for runs, as parts of a RecordQuery."""
    fields = request.DESCRIPTOR.oneofs_by_name
    kind = request.WhichOneof("scope_by" if "scope_by" in fields else "target")
    if kind == "project_id":
        id = request.project_id
        return {"org": normalize_org(id.organization), "project": id.name, "domain": id.domain}
    if kind in ("task_id", "task_name"):
        id = getattr(request, kind)
        org = normalize_org(id.org)
        # A run and its task may be in different projects.
        return {"org": org, "task": TaskId(org, id.project, id.domain, id.name, getattr(id, "version", ""))}
    if kind == "trigger_name":
        id = request.trigger_name
        return {
            "org": normalize_org(id.org),
            "project": id.project,
            "domain": id.domain,
            "task": TaskId("", "", "", id.task_name, "") if id.task_name else None,
        }
    if kind == "cluster_id":
        raise InvalidRequest("there are no clusters here; watch the runs of a project")
    return {"org": normalize_org(request.org)}


def _in_scope(scope: dict[str, Any]) -> Predicate:
    task: TaskId | None = scope.get("task")

    def wants(record: ActionRecord) -> bool:
        if record.parent or any(
            scope.get(p) not in (None, "", getattr(record.id, p)) for p in ("org", "project", "domain")
        ):
            return False
        if task is None:
            return True
        parts = ("org", "project", "domain", "name", "version")
        return record.task is not None and all(getattr(task, p) in ("", getattr(record.task, p)) for p in parts)

    return wants
