"""Records: what is remembered of an action after its TaskAction is gone, and what every reader looks at.

A record is a projection of events: written idempotently, monotonic, rebuildable. Details, listings, watch
snapshots, rerun and recovery read records and never TaskActions.
"""

from __future__ import annotations

import datetime as dt
import enum

import msgspec

from wingbeat.resources.ids import ActionId, TaskId
from wingbeat.resources.phases import ActionPhase, CacheStatus


class ActionType(enum.IntEnum):
    """`flyteidl2.workflow.ActionType`, number for number."""

    UNSPECIFIED = 0
    TASK = 1
    TRACE = 2
    CONDITION = 3


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an attempt or an action failed. `kind` is `USER`, `SYSTEM` or empty."""

    message: str
    code: str = ""
    kind: str = ""
    recoverable: bool | None = None
    traceback: str = ""
    """The user's own, for people; a parent that catches the failure of a child gets the message alone."""


class Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line for people on what happened to an action, and when (a cluster event on the wire)."""

    message: str
    occurred_at: dt.datetime
    warning: bool = False


class ActionEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to one attempt of one action.

    Delivered at least once and in order per action; the key (id, attempt, phase, version) makes repeats harmless.
    """

    id: ActionId
    attempt: int
    phase: ActionPhase
    version: int = 0
    occurred_at: dt.datetime
    final: bool = True
    """Whether a terminal phase ends the *action*; False for a failed attempt that is followed by another."""
    error: ErrorInfo | None = None
    output_uri: str = ""
    """The prefix that holds `outputs.pb`, set on success."""
    report_uri: str = ""
    cache_status: CacheStatus = CacheStatus.DISABLED
    reasons: tuple[Reason, ...] = ()
    value: bytes = b""
    """A serialized literal: the value a condition was signalled with."""
    signalled_by: str = ""
    abort_reason: str = ""
    aborted_by: str = ""
    logs_available: bool = False


class PhaseSpan(msgspec.Struct, omit_defaults=True):
    """A phase of an attempt, from its start to the start of the next (None: still in it)."""

    phase: ActionPhase
    start: dt.datetime
    end: dt.datetime | None = None


class AttemptRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    attempt: int
    phase: ActionPhase = ActionPhase.QUEUED
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    error: ErrorInfo | None = None
    output_uri: str = ""
    report_uri: str = ""
    cache_status: CacheStatus = CacheStatus.DISABLED
    transitions: list[PhaseSpan] = []
    reasons: list[Reason] = []
    logs_available: bool = False


class ActionRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The record of one action. Root actions (parent == "") are the runs."""

    id: ActionId
    parent: str = ""
    group: str = ""
    action_type: ActionType = ActionType.TASK
    phase: ActionPhase = ActionPhase.QUEUED
    attempts: int = 1
    cache_status: CacheStatus = CacheStatus.DISABLED
    created_at: dt.datetime
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None
    spec_digest: str = ""
    """Digest of the serialized TaskSpec, TraceSpec or ConditionAction in the blob table (see `action_type`)."""
    task: TaskId | None = None
    task_type: str = ""
    name: str = ""
    """What people call it: the short name of a task, the name of a trace or a condition."""
    environment: str = ""
    input_uri: str = ""
    """The full path of the `inputs.pb`."""
    run_output_base: str = ""
    output_uri: str = ""
    """The prefix that holds the final `outputs.pb` (a trace: the file itself)."""
    error: ErrorInfo | None = None
    abort_reason: str = ""
    aborted_by: str = ""
    value: bytes = b""
    signalled_by: str = ""
    wait_reason: str = ""
    """Why an action that waits does so, in words; empty when it does not wait."""
    # Root actions only:
    run_spec: bytes = b""
    labels: dict[str, str] = {}
    created_by: str = ""
    source: int = 0
    trigger_name: str = ""
    trigger_revision: int = 0
    # Recovery: the identity (as `run/action`) whose outputs this one reuses.
    recovered_from: str = ""
    revision: int = 0
    """The store-wide sequence number of the last change; set by the store."""
