"""Between records and messages. Everything that leaves carries the organisation; everything that enters is checked
for the parts of an identity, and for nothing else: old names must stay readable."""

from __future__ import annotations

import datetime as dt
from typing import Any

from flyteidl2.common.identifier_pb2 import (
    ActionIdentifier,
    RunIdentifier,
    TriggerIdentifier,
    TriggerName,
    UserIdentifier,
)
from flyteidl2.common.identity_pb2 import EnrichedIdentity, User, UserSpec
from flyteidl2.common.run_pb2 import Relation
from flyteidl2.core.execution_pb2 import ContainerError, ExecutionError
from flyteidl2.core.literals_pb2 import Literal
from flyteidl2.task.common_pb2 import OutputReferences
from flyteidl2.task.run_pb2 import RunSpec
from flyteidl2.task.task_definition_pb2 import TaskIdentifier, TaskSpec, TraceSpec
from flyteidl2.workflow.run_definition_pb2 import (
    AbortInfo,
    Action,
    ActionAttempt,
    ActionDetails,
    ActionMetadata,
    ActionStatus,
    ClusterEvent,
    ConditionAction,
    ErrorInfo,
    PhaseTransition,
    Run,
    RunDetails,
    SignalInfo,
)
from flyteidl2.workflow.state_service_pb2 import ActionUpdate
from google.protobuf.timestamp_pb2 import Timestamp

from wingbeat.control.errors import InvalidRequest
from wingbeat.resources import (
    ActionId,
    ActionPhase,
    ActionRecord,
    ActionType,
    AttemptRecord,
    RunId,
    TaskId,
    normalize_org,
)
from wingbeat.resources import ErrorInfo as ErrorRecord

FAILED_PHASES = (ActionPhase.FAILED, ActionPhase.TIMED_OUT)
SUCCESS_PHASES = (ActionPhase.SUCCEEDED, ActionPhase.RECOVERED)
KINDS = {"USER": 1, "SYSTEM": 2}
"""The same numbers in ErrorInfo.Kind and ExecutionError.ErrorKind."""


# --- what enters


def run_id(message: Any) -> RunId:
    """The identity in a RunIdentifier. Raises InvalidRequest for one with a part missing."""
    for part in ("project", "domain", "name"):
        if not getattr(message, part):
            raise InvalidRequest(f"the run identifier has no {part}")
    return RunId(normalize_org(message.org), message.project, message.domain, message.name)


def action_id(message: Any) -> ActionId:
    """The identity in an ActionIdentifier. Raises InvalidRequest for one with a part missing."""
    if not message.name:
        raise InvalidRequest("the action identifier has no name")
    return run_id(message.run).action(message.name)


def task_id(message: Any) -> TaskId:
    """The identity in a TaskIdentifier, whose version may be empty. Raises InvalidRequest."""
    for part in ("project", "domain", "name"):
        if not getattr(message, part):
            raise InvalidRequest(f"the task identifier has no {part}")
    return TaskId(normalize_org(message.org), message.project, message.domain, message.name, message.version)


def template_task_id(template: Any) -> TaskId:
    """The identity in a TaskTemplate (a `core.Identifier`)."""
    id = template.id
    return TaskId(normalize_org(id.org), id.project, id.domain, id.name, id.version)


def from_timestamp(message: Any) -> dt.datetime:
    """Raises InvalidRequest for a time out of range."""
    try:
        return message.ToDatetime(tzinfo=dt.UTC)  # type: ignore[no-any-return]
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"this is no time: {error}") from None


def from_duration(message: Any) -> dt.timedelta:
    """Raises InvalidRequest for a duration out of range."""
    try:
        return message.ToTimedelta()  # type: ignore[no-any-return]
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"this is no duration: {error}") from None


# --- small parts


def timestamp(time: dt.datetime | None) -> Any:
    """None stays None: the field is then left unset."""
    if time is None:
        return None
    result = Timestamp()
    result.FromDatetime(time)
    return result


def run_identifier(id: RunId) -> Any:
    return RunIdentifier(org=id.org, project=id.project, domain=id.domain, name=id.run)


def action_identifier(id: ActionId) -> Any:
    return ActionIdentifier(run=run_identifier(id.run_id), name=id.action)


def task_identifier(id: TaskId) -> Any:
    return TaskIdentifier(org=id.org, project=id.project, domain=id.domain, name=id.name, version=id.version)


def identity(subject: str) -> Any:
    """A user, of whom the name is all that is known; None for nobody."""
    if not subject:
        return None
    spec = UserSpec(first_name=subject, user_handle=subject)
    return EnrichedIdentity(user=User(id=UserIdentifier(subject=subject), spec=spec))


def error_info(error: ErrorRecord) -> Any:
    """For people: the message, and below it the user's own traceback where there is one."""
    message = f"{error.message}\n\n{error.traceback}" if error.traceback else error.message
    return ErrorInfo(message=message, code=error.code, kind=KINDS.get(error.kind, 0))


def execution_error(error: ErrorRecord | None) -> Any:
    """For a parent, which makes an exception of it: never without words, or it would look for a file instead."""
    if error is None:
        return ExecutionError(code="Unknown", message="the action failed and left no error", kind=2)
    recoverable = ContainerError.RECOVERABLE if error.recoverable else ContainerError.NON_RECOVERABLE
    return ExecutionError(
        code=error.code or "Unknown",
        message=error.message,
        kind=KINDS.get(error.kind, 0),
        recoverability=recoverable,
    )


def action_output_uri(record: ActionRecord) -> str:
    """Where outputs are, or will be looked for: the SDK warns in the user's log about every update without it."""
    return record.output_uri or f"{record.run_output_base.rstrip('/')}/{record.id.action}"


# --- actions


def action_metadata(record: ActionRecord, spec: bytes = b"") -> Any:
    """`spec` is needed for conditions only: it has their type."""
    meta = ActionMetadata(
        parent=record.parent,
        group=record.group,
        action_type=int(record.action_type),
        environment_name=record.environment,
        funtion_name=record.name,
        source=record.source,
        trigger_name=record.trigger_name,
        executed_by=identity(record.created_by),
    )
    if record.trigger_name:
        name = TriggerName(
            org=record.id.org,
            project=record.id.project,
            domain=record.id.domain,
            name=record.trigger_name,
            task_name=record.task.name if record.task else "",
        )
        meta.trigger_id.CopyFrom(TriggerIdentifier(name=name, revision=record.trigger_revision))
    if record.recovered_from:
        run, _, action = record.recovered_from.partition("/")
        source = RunId(record.id.org, record.id.project, record.id.domain, run)
        meta.recovered_from.CopyFrom(action_identifier(source.action(action)))
    if record.run_spec:
        relation = RunSpec.FromString(record.run_spec).relation
        if relation != Relation():
            meta.relation.CopyFrom(relation)
    if record.action_type == ActionType.TRACE:
        meta.trace.name = record.name
    elif record.action_type == ActionType.CONDITION:
        meta.condition.name = record.name
        if spec:
            meta.condition.type.CopyFrom(ConditionAction.FromString(spec).type)
    else:
        meta.task.task_type = record.task_type
        meta.task.short_name = record.name
        if record.task:
            meta.task.id.CopyFrom(task_identifier(record.task))
    return meta


def action_status(record: ActionRecord) -> Any:
    """It starts when its first attempt does (until then: when it was created)."""
    started = record.started_at or record.created_at
    status = ActionStatus(
        phase=int(record.phase),
        start_time=timestamp(started),
        end_time=timestamp(record.ended_at),
        attempts=max(record.attempts, 1),
        cache_status=int(record.cache_status),
    )
    if record.ended_at is not None:
        status.duration_ms = max(0, round((record.ended_at - started).total_seconds() * 1000))
    return status


def action(record: ActionRecord, spec: bytes = b"") -> Any:
    return Action(id=action_identifier(record.id), metadata=action_metadata(record, spec), status=action_status(record))


def run(record: ActionRecord) -> Any:
    return Run(action=action(record), labels=record.labels)


def cluster_event(message: str, at: dt.datetime, warning: bool) -> Any:
    kind = ClusterEvent.TYPE_WARNING if warning else ClusterEvent.TYPE_NORMAL
    return ClusterEvent(occurred_at=timestamp(at), message=message, type=kind)


def action_attempt(attempt: AttemptRecord) -> Any:
    message = ActionAttempt(
        attempt=attempt.attempt,
        phase=int(attempt.phase),
        start_time=timestamp(attempt.started_at),
        end_time=timestamp(attempt.ended_at),
        outputs=OutputReferences(output_uri=attempt.output_uri, report_uri=attempt.report_uri),
        logs_available=attempt.logs_available,
        cache_status=int(attempt.cache_status),
        cluster_events=[cluster_event(r.message, r.occurred_at, r.warning) for r in attempt.reasons],
        phase_transitions=[
            PhaseTransition(phase=int(s.phase), start_time=timestamp(s.start), end_time=timestamp(s.end))
            for s in attempt.transitions
        ],
    )
    if attempt.error is not None:
        message.error_info.CopyFrom(error_info(attempt.error))
    return message


def action_details(record: ActionRecord, attempts: list[AttemptRecord], spec: bytes) -> Any:
    """`spec` is the serialized TaskSpec, TraceSpec or ConditionAction; empty when it is unknown."""
    details = ActionDetails(
        id=action_identifier(record.id),
        metadata=action_metadata(record, spec),
        status=action_status(record),
        attempts=[action_attempt(a) for a in attempts],
    )
    if record.phase in FAILED_PHASES:
        details.error_info.CopyFrom(error_info(record.error or ErrorRecord("the action failed and left no error")))
    elif record.phase == ActionPhase.ABORTED:
        details.abort_info.CopyFrom(AbortInfo(reason=record.abort_reason, aborted_by=identity(record.aborted_by)))
    elif record.value:
        output = Literal.FromString(record.value)
        details.signal_info.CopyFrom(SignalInfo(signalled_by=identity(record.signalled_by), output=output))
    if record.action_type == ActionType.TRACE:
        details.trace.CopyFrom(TraceSpec.FromString(spec))
    elif record.action_type == ActionType.CONDITION:
        details.condition.CopyFrom(ConditionAction.FromString(spec))
    else:
        details.task.CopyFrom(TaskSpec.FromString(spec))
    if record.wait_reason:
        _tell_why_it_waits(details, record)
    return details


def _tell_why_it_waits(details: Any, record: ActionRecord) -> None:
    """A line among the events of the newest attempt: there is no field for it."""
    event = cluster_event(record.wait_reason, record.updated_at or record.created_at, False)
    if details.attempts and details.attempts[-1].attempt == record.attempts:
        details.attempts[-1].cluster_events.append(event)
    else:
        details.attempts.append(
            ActionAttempt(attempt=max(record.attempts, 1), phase=int(record.phase), cluster_events=[event])
        )


def run_details(record: ActionRecord, attempts: list[AttemptRecord], spec: bytes) -> Any:
    return RunDetails(run_spec=RunSpec.FromString(record.run_spec), action=action_details(record, attempts, spec))


def action_update(record: ActionRecord) -> Any:
    """What a parent learns of its child."""
    update = ActionUpdate(
        action_id=action_identifier(record.id), phase=int(record.phase), output_uri=action_output_uri(record)
    )
    if record.phase in FAILED_PHASES:
        update.error.CopyFrom(execution_error(record.error))
    if record.value and record.phase in SUCCESS_PHASES:
        update.value.ParseFromString(record.value)
    return update
