"""What a status shows of a phase: conditions, history, names. Pure; changes the status it is given."""

from __future__ import annotations

import datetime as dt

import msgspec

from wingbeat.resources import (
    ActionPhase,
    Condition,
    PhaseTransition,
    PluginPhase,
    TaskActionStatus,
)

HISTORY_LIMIT = 100
"""Entries kept of `status.phaseHistory`; older ones are dropped, the first is kept."""

_ACTION_PHASE = {
    PluginPhase.NOT_READY: ActionPhase.QUEUED,
    PluginPhase.QUEUED: ActionPhase.QUEUED,
    PluginPhase.WAITING_FOR_RESOURCES: ActionPhase.WAITING_FOR_RESOURCES,
    PluginPhase.WAITING_FOR_CACHE: ActionPhase.WAITING_FOR_RESOURCES,
    PluginPhase.INITIALIZING: ActionPhase.INITIALIZING,
    PluginPhase.RUNNING: ActionPhase.RUNNING,
    PluginPhase.SUCCESS: ActionPhase.SUCCEEDED,
    PluginPhase.RETRYABLE_FAILURE: ActionPhase.FAILED,
    PluginPhase.PERMANENT_FAILURE: ActionPhase.FAILED,
    PluginPhase.ABORTED: ActionPhase.ABORTED,
}

_HISTORY_NAME = {
    PluginPhase.NOT_READY: "Queued",
    PluginPhase.QUEUED: "Queued",
    PluginPhase.WAITING_FOR_RESOURCES: "Queued",
    PluginPhase.WAITING_FOR_CACHE: "Queued",
    PluginPhase.INITIALIZING: "Initializing",
    PluginPhase.RUNNING: "Executing",
    PluginPhase.SUCCESS: "Completed",
    PluginPhase.RETRYABLE_FAILURE: "RetryableFailure",
    PluginPhase.PERMANENT_FAILURE: "PermanentFailure",
    PluginPhase.ABORTED: "Aborted",
}


def action_phase(phase: PluginPhase) -> ActionPhase:
    """What clients see of a plugin phase (engine.md section 7)."""
    return _ACTION_PHASE.get(phase, ActionPhase.UNSPECIFIED)


def set_condition(
    status: TaskActionStatus, type: str, value: bool, reason: str, message: str, now: dt.datetime
) -> None:
    """Set a condition as Kubernetes' helper does: the transition time moves only when the status flips."""
    text = "True" if value else "False"
    for condition in status.conditions:
        if condition.type == type:
            if condition.status != text:
                condition.last_transition_time = now
            condition.status, condition.reason, condition.message = text, reason, message
            return
    status.conditions.append(
        Condition(type=type, status=text, reason=reason, message=message, last_transition_time=now)
    )


def add_history(status: TaskActionStatus, phase: str, message: str, now: dt.datetime) -> None:
    """Append to the phase history; a repeat of the last phase is left out."""
    if status.phase_history and status.phase_history[-1].phase == phase:
        return
    status.phase_history.append(PhaseTransition(phase=phase, occurred_at=now, message=message))
    if len(status.phase_history) > HISTORY_LIMIT:
        del status.phase_history[1]


def show_phase(status: TaskActionStatus, phase: PluginPhase, message: str, now: dt.datetime) -> None:
    name = _HISTORY_NAME[phase]
    if phase is PluginPhase.SUCCESS:
        set_condition(status, "Progressing", False, name, "TaskAction has completed", now)
        set_condition(status, "Succeeded", True, name, "TaskAction completed successfully", now)
        status.error_state = None
    elif phase in (PluginPhase.PERMANENT_FAILURE, PluginPhase.ABORTED):
        set_condition(status, "Progressing", False, name, message, now)
        set_condition(status, "Failed", True, name, message, now)
    else:
        set_condition(status, "Progressing", True, name, message, now)
    add_history(status, name, message, now)


_status_decoder = msgspec.json.Decoder(TaskActionStatus)
_status_encoder = msgspec.json.Encoder()


def copy_status(status: TaskActionStatus) -> TaskActionStatus:
    return _status_decoder.decode(_status_encoder.encode(status))
