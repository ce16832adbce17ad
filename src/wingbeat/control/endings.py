"""Ending actions from outside: abort, and the signal that a condition waits for."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from flyteidl2.core.literals_pb2 import Literal, Primitive, Scalar
from flyteidl2.core.types_pb2 import SimpleType
from flyteidl2.workflow.run_definition_pb2 import ConditionAction

from wingbeat.control.clock import now
from wingbeat.control.errors import InvalidRequest, NotNow
from wingbeat.control.names import missing_action, missing_run
from wingbeat.crashpoints import crash_point
from wingbeat.database import RecordNotFound, RecordQuery, Records
from wingbeat.resources import (
    ROOT_ACTION,
    ActionEvent,
    ActionId,
    ActionPhase,
    ActionRecord,
    ActionType,
    RunId,
)
from wingbeat.resources import copy as copy_action
from wingbeat.resources.taskaction import ANNOTATION_ABORT_REASON, ANNOTATION_ABORTED_BY
from wingbeat.stores import Conflict, NotFound, Selector, Store

DEFAULT_REASON = "User requested abort"
_TRIES = 20


class Aborts:
    def __init__(self, store: Store, records: Records) -> None:
        self._store = store
        self._records = records

    async def run(self, run: RunId, reason: str, by: str) -> None:
        """Abort all of a run. Nothing happens to one that has ended. Raises Missing."""
        reason = reason or DEFAULT_REASON
        try:
            root = await self._records.get(run.action(ROOT_ACTION))
        except RecordNotFound:
            raise missing_run(run) from None
        if root.phase.terminal:
            return
        await self._records.set_abort(run, reason, by)
        await self._store.delete_run(run, annotations=_annotations(reason, by))
        crash_point("abort.accepted")
        await self._finish(await self._of_run(run), reason, by)

    async def action(self, id: ActionId, reason: str, by: str) -> None:
        """Abort an action and everything below it. Nothing happens to one that has ended. Raises Missing."""
        reason = reason or DEFAULT_REASON
        try:
            record = await self._records.get(id)
        except RecordNotFound:
            raise missing_action(id) from None
        if record.phase.terminal:
            return
        doomed = _subtree(await self._of_run(id.run_id), id.action)
        # Together, so that they share a commit.
        await asyncio.gather(*(self._records.set_abort(each.id, reason, by) for each in doomed))
        deletions = [self._store.delete(each.id, annotations=_annotations(reason, by)) for each in doomed]
        for result in await asyncio.gather(*deletions, return_exceptions=True):
            # Not found: it has just ended, or went with its parent.
            if isinstance(result, BaseException) and not isinstance(result, NotFound):
                raise result
        await self._finish(doomed, reason, by)

    async def _of_run(self, run: RunId) -> list[ActionRecord]:
        query = RecordQuery(org=run.org, project=run.project, domain=run.domain, run=run.run, order_by=(), limit=0)
        return [r for r in await self._records.list(query) if not r.phase.terminal]

    async def _finish(self, records: list[ActionRecord], reason: str, by: str) -> None:
        """What nobody looks after any more (it was never begun, so no finalizer held it) ends here."""
        if not records:
            return
        page = await self._store.list(Selector(run=records[0].id.run_id))
        held = {action.id for action in page.items}
        at = now()
        events = [
            ActionEvent(
                id=r.id,
                attempt=max(r.attempts, 1),
                phase=ActionPhase.ABORTED,
                occurred_at=at,
                abort_reason=reason,
                aborted_by=by,
            )
            for r in records
            if r.id not in held
        ]
        if events:
            await self._records.apply(events)


def _subtree(records: list[ActionRecord], root: str) -> list[ActionRecord]:
    children: dict[str, list[ActionRecord]] = {}
    for record in records:
        children.setdefault(record.parent, []).append(record)
    result = [r for r in records if r.id.action == root]
    for record in result:  # grows while it is walked: parents before children
        result.extend(children.get(record.id.action, ()))
    return result


def _annotations(reason: str, by: str) -> dict[str, str]:
    return {ANNOTATION_ABORT_REASON: reason, ANNOTATION_ABORTED_BY: by}


class Signals:
    def __init__(self, store: Store, records: Records) -> None:
        self._store = store
        self._records = records

    async def signal(self, id: ActionId, value: Any, by: str) -> None:
        """Answer the condition `id` with a literal. The same answer again is fine. Raises Missing; InvalidRequest for
        a value of the wrong type; NotNow for what is no condition, has ended, or has another answer."""
        for _ in range(_TRIES):
            try:
                action = await self._store.get(id)
            except NotFound:
                return await self._signal_ended(id, value)
            if not action.is_condition:
                raise NotNow(f"action {id.action!r} of run {id.run!r} is not a condition")
            literal = coerce(value, ConditionAction.FromString(action.spec.condition_spec))
            answer = literal.SerializeToString(deterministic=True)
            if action.status.signal_value:
                return _same(id, action.status.signal_value, answer)
            if action.terminal or action.deleting:
                return await self._signal_ended(id, value)
            status = msgspec.structs.replace(
                copy_action(action).status, signal_value=answer, signalled_by=by, signalled_at=now()
            )
            try:
                await self._store.patch_status(id, status, resource_version=action.metadata.resource_version)
            except Conflict:
                continue
            return None
        raise Conflict(f"condition {id} changes all the time; try again")

    async def _signal_ended(self, id: ActionId, value: Any) -> None:
        try:
            record = await self._records.get(id)
        except RecordNotFound:
            raise missing_action(id) from None
        if record.action_type != ActionType.CONDITION:
            raise NotNow(f"action {id.action!r} of run {id.run!r} is not a condition")
        if not record.value:
            raise NotNow(f"the condition {record.name!r} has ended already ({record.phase.name.lower()})")
        condition = ConditionAction.FromString(await self._records.blob(record.spec_digest))
        _same(id, record.value, coerce(value, condition).SerializeToString(deterministic=True))


def _same(id: ActionId, there: bytes, answer: bytes) -> None:
    if there != answer:
        raise NotNow(f"the condition {id.action!r} of run {id.run!r} was answered already, with another value")


_KINDS = {
    SimpleType.BOOLEAN: ("boolean", "a boolean"),
    SimpleType.INTEGER: ("integer", "an integer"),
    SimpleType.FLOAT: ("float_value", "a float"),
    SimpleType.STRING: ("string_value", "a string"),
}


def coerce(value: Any, condition: Any) -> Any:
    """The literal, checked against the condition's type; an integer will do for a float. Raises InvalidRequest."""
    kind, words = _KINDS.get(condition.type.simple, ("", "unknown"))
    given = value.scalar.primitive.WhichOneof("value")
    if kind == "float_value" and given == "integer":
        return Literal(scalar=Scalar(primitive=Primitive(float_value=float(value.scalar.primitive.integer))))
    if given != kind:
        raise InvalidRequest(
            f"the condition {condition.name!r} wants {words}, not {(given or 'nothing').removesuffix('_value')}"
        )
    return value


def payload_literal(payload: Any) -> Any:
    """An EventPayload as a literal. Raises InvalidRequest for an empty one."""
    kind = payload.WhichOneof("value")
    if kind is None:
        raise InvalidRequest("the signal has no value")
    names = {
        "bool_value": "boolean",
        "int_value": "integer",
        "float_value": "float_value",
        "string_value": "string_value",
    }
    return Literal(scalar=Scalar(primitive=Primitive(**{names[kind]: getattr(payload, kind)})))
