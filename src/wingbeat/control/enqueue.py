"""What a running parent asks for: a child task, a condition, or to keep a trace that it has run itself.

The SDK repeats a request until it is answered, gives each child a name that is the same on every attempt of the
parent, and takes `aborted` as the word to stop. So a known child is simply confirmed, whatever became of it.
"""

from __future__ import annotations

from typing import Any

from flyteidl2.core.execution_pb2 import ContainerError, ErrorDocument
from flyteidl2.core.types_pb2 import SimpleType
from google.protobuf.message import DecodeError

from wingbeat.control import wire
from wingbeat.control.blobs import inputs_path
from wingbeat.control.clock import now
from wingbeat.control.errors import Gone, InvalidRequest
from wingbeat.control.names import check_action_name
from wingbeat.control.taskactions import child_action, child_record
from wingbeat.database import Connection, Database, RecordNotFound, Records, get_record, insert_record
from wingbeat.resources import TERMINAL_PHASES, ActionId, ActionPhase, ActionRecord, ActionType, ErrorInfo, TaskAction
from wingbeat.storage import ObjectMissing, OutsideStorage, Storage
from wingbeat.stores import AlreadyExists, Conflict, NotFound, Store

CONDITION_TYPES = (SimpleType.BOOLEAN, SimpleType.INTEGER, SimpleType.FLOAT, SimpleType.STRING)
MAX_ERROR_BYTES = 4 * 1024 * 1024
_KINDS = {1: "USER", 2: "SYSTEM"}


class Enqueuer:
    def __init__(self, store: Store, db: Database, records: Records, storage: Storage) -> None:
        self._store = store
        self._db = db
        self._records = records
        self._storage = storage

    async def enqueue(self, request: Any) -> None:
        """`request` is an `actions.Action`. Raises InvalidRequest, and Gone when the parent has ended or ends."""
        id = wire.action_id(request.action_id)
        check_action_name(id.action)
        if not request.parent_action_name:
            raise InvalidRequest(f"action {id} has no parent; start runs with CreateRun")
        kind = request.WhichOneof("spec")
        if kind == "trace":
            await self._trace(id, request)
        elif kind in ("task", "condition"):
            await self._child(id, request)
        else:
            raise InvalidRequest(f"action {id} is neither a task, nor a trace, nor a condition")

    async def _child(self, id: ActionId, request: Any) -> None:
        if request.WhichOneof("spec") == "condition":
            _check_condition(request.condition)
            task, spec = None, request.condition.SerializeToString(deterministic=True)
        else:
            if not request.task.spec.HasField("task_template"):
                raise InvalidRequest(f"action {id} has no task template")
            task = wire.task_id(request.task.id) if request.task.HasField("id") and request.task.id.name else None
            task = task or wire.template_task_id(request.task.spec.task_template)
            spec = request.task.spec.SerializeToString(deterministic=True)
        if await self._known(id):
            return
        parent = await self._live_parent(id, request.parent_action_name)
        record = child_record(id, request, task, now())
        if request.WhichOneof("spec") == "condition" and request.condition.webhook.url:
            await self._refused_condition(record, spec)
            return
        try:
            await self._store.create(child_action(id, parent, request), record=record, spec=spec)
        except AlreadyExists:
            return
        except (Conflict, NotFound):
            raise _gone(id, request.parent_action_name, "is being aborted") from None

    async def _refused_condition(self, record: ActionRecord, spec: bytes) -> None:
        """A condition that asks for a webhook has failed from the start. It is not refused, as the SDK would show
        nothing of the reason; with the condition it can be read."""
        record.phase = ActionPhase.FAILED
        record.started_at = record.ended_at = record.created_at
        record.error = ErrorInfo(
            f"the condition {record.name!r} names a webhook, which is not called yet: make it without, and answer it "
            f"with: flyte signal condition {record.id.run} ACTION VALUE",
            code="WebhookUnsupported",
            kind="USER",
        )
        await self._db.write(lambda c: insert_record(c, record, spec))

    async def _known(self, id: ActionId) -> bool:
        try:
            await self._records.get(id)
        except RecordNotFound:
            return False
        return True

    async def _live_parent(self, id: ActionId, name: str) -> TaskAction:
        try:
            parent = await self._store.get(id.run_id.action(name))
        except NotFound:
            raise _gone(id, name, "does not run (any more)") from None
        if parent.deleting:
            raise _gone(id, name, "is being aborted")
        if parent.terminal:
            raise _gone(id, name, "has ended")
        return parent

    async def _trace(self, id: ActionId, request: Any) -> None:
        """A trace is over when it is told of; only its record is kept. One that failed may come again, with a better
        end: the SDK runs what failed for a passing reason again in the next attempt."""
        trace = request.trace
        number = trace.phase or ActionPhase.SUCCEEDED
        if number not in TERMINAL_PHASES:
            raise InvalidRequest(f"trace {id} is told of before its end (phase {number})")
        phase = ActionPhase(number)
        at = now()
        record = ActionRecord(
            id=id,
            parent=request.parent_action_name,
            group=request.group,
            action_type=ActionType.TRACE,
            phase=phase,
            created_at=wire.from_timestamp(trace.start_time) if trace.HasField("start_time") else at,
            ended_at=wire.from_timestamp(trace.end_time) if trace.HasField("end_time") else at,
            updated_at=at,
            name=trace.name,
            input_uri=inputs_path(request.input_uri),
            run_output_base=request.run_output_base,
            output_uri=trace.outputs.output_uri,
        )
        record.started_at = record.created_at
        if phase in wire.FAILED_PHASES:
            record.error = await self._trace_error(record)
        spec = trace.spec.SerializeToString(deterministic=True)

        def job(c: Connection) -> None:
            before = get_record(c, id)
            if before is not None and before.action_type == ActionType.TRACE and before.phase in wire.FAILED_PHASES:
                c.execute(
                    "DELETE FROM actions WHERE org = ? AND project = ? AND domain = ? AND run = ? AND name = ?",
                    (id.org, id.project, id.domain, id.run, id.action),
                )
            insert_record(c, record, spec)

        await self._db.write(job)

    async def _trace_error(self, record: ActionRecord) -> ErrorInfo:
        """The SDK writes it beside the outputs, and wants it back to raise it again."""
        try:
            uri = f"{record.run_output_base.rstrip('/')}/{record.id.action}/error.pb"
            error = ErrorDocument.FromString(await self._storage.get(uri, limit=MAX_ERROR_BYTES)).error
        except (ObjectMissing, OutsideStorage, DecodeError, ValueError):
            # Without an error, and recoverable: the SDK then runs the trace again.
            return ErrorInfo("the trace failed", code="Unknown", kind="USER", recoverable=True)
        return ErrorInfo(
            error.message,
            code=error.code,
            kind=_KINDS.get(error.origin, "USER"),
            recoverable=error.kind == ContainerError.RECOVERABLE,
        )


def _check_condition(condition: Any) -> None:
    if condition.type.WhichOneof("type") != "simple" or condition.type.simple not in CONDITION_TYPES:
        raise InvalidRequest(f"the condition {condition.name!r} must be of type bool, int, float or str")


def _gone(id: ActionId, parent: str, why: str) -> Gone:
    return Gone(f"action {id} is not started: its parent {parent} {why}")
