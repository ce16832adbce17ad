"""Every rule on phases, attempts, failures, deadlines, back-off and cleanup, as pure functions.

Nothing here reads a clock, a store or a file: `now` and the observation come in, a `Decision` goes out, and the shell
(`controller.py`) carries it out. Rules from outside are those of Flyte's executor; where it loses information (the
error of a retried attempt, timeouts, back-off) these do better with the same shapes on the wire.
"""

from __future__ import annotations

import datetime as dt
import enum

import msgspec

from wingbeat.engine.draft import Decision, Draft
from wingbeat.engine.facts import TaskFacts
from wingbeat.engine.state import EngineState
from wingbeat.engine.status import action_phase, add_history, set_condition, show_phase
from wingbeat.engine.timeouts import Timeout, next_limit, overdue
from wingbeat.plugins import Transition
from wingbeat.resources import (
    ActionEvent,
    ActionPhase,
    CacheStatus,
    ErrorInfo,
    ErrorKind,
    ErrorState,
    PluginPhase,
    Reason,
    TaskAction,
)
from wingbeat.resources.taskaction import (
    ANNOTATION_ABORT_REASON,
    ANNOTATION_ABORTED_BY,
    FINALIZER,
)

SERVER_STOPPED = "ServerStopped"
"""Code of an attempt that ended because this server was stopped: it starts again and no budget is charged."""


class Policy(msgspec.Struct, frozen=True):
    """What the operator sets."""

    max_system_failures: int = 3
    """Consecutive ones that are retried; the next one fails the action."""
    max_total_system_failures: int = 20
    """Over the whole life of the action, whatever progress lies between."""
    system_backoff: float = 0.5
    """Seconds before the first relaunch after a system failure; doubles each time."""
    system_backoff_cap: float = 30.0
    progress_after: float = 60.0
    """A launch that ran this many seconds counts as progress and resets the consecutive count."""


class Step(enum.Enum):
    """What a reconcile does next, by what is already known."""

    SETTLE = "settle"
    ABORT = "abort"
    REJECT = "reject"
    CONDITION = "condition"
    ADD_FINALIZER = "add finalizer"
    WAIT = "wait"
    LOOKUP = "lookup"
    HANDLE = "handle"


def next_step(
    action: TaskAction, state: EngineState, facts: TaskFacts, *, problem: str, now: dt.datetime, catalog: bool
) -> Step:
    """The order of the reconcile: deletion, end, validation, finalizer, back-off, cache, plugin."""
    if action.deleting:
        return Step.ABORT
    if action.terminal:
        return Step.SETTLE
    if problem:
        return Step.REJECT
    if FINALIZER not in action.metadata.finalizers:
        return Step.ADD_FINALIZER
    if action.is_condition:
        return Step.CONDITION
    if state.not_before is not None and now < state.not_before and state.plugin is None:
        return Step.WAIT
    if catalog and facts.discoverable and action.spec.cache_key and not state.cache_checked and state.plugin is None:
        return Step.LOOKUP
    return Step.HANDLE


# -- decisions -------------------------------------------------------------------------------------------------------


def decide_invalid(action: TaskAction, state: EngineState, code: str, message: str, now: dt.datetime) -> Decision:
    """A spec that can never run, or a task type that no plugin serves: failed at once, and told like any failure."""
    draft = Draft(action, state, now)
    set_condition(draft.status, "Progressing", False, code, message, now)
    set_condition(draft.status, "Failed", True, code, message, now)
    add_history(draft.status, "PermanentFailure", message, now)
    draft.status.error_state = ErrorState(code=code, kind=ErrorKind.USER, message=message)
    draft.event(ActionPhase.FAILED, error=ErrorInfo(message=message, code=code, kind=ErrorKind.USER))
    return draft.finish(wait_reason="")


def decide_cache_hit(
    action: TaskAction, state: EngineState, *, output_uri: str, report_uri: str, now: dt.datetime
) -> Decision:
    """The catalog has the outputs: succeeded without a launch."""
    draft = Draft(action, state, now)
    draft.state.cache_checked = True
    draft.status.cache_status = CacheStatus.HIT
    draft.status.plugin_phase = PluginPhase.SUCCESS.wire_name
    show_phase(draft.status, PluginPhase.SUCCESS, "cache hit", now)
    draft.event(
        ActionPhase.SUCCEEDED,
        output_uri=output_uri,
        report_uri=report_uri,
        cache=CacheStatus.HIT,
        reasons=(Reason(message="cache hit: outputs of an earlier execution are reused", occurred_at=now),),
    )
    return draft.finish(wait_reason="")


def decide_transition(
    action: TaskAction,
    state: EngineState,
    facts: TaskFacts,
    transition: Transition,
    *,
    cache: CacheStatus,
    policy: Policy,
    now: dt.datetime,
) -> Decision:
    """What a plugin's report means for the action."""
    phase = transition.phase
    if phase is PluginPhase.RETRYABLE_FAILURE:
        error = transition.error or ErrorInfo(message="unknown error", code="Unknown", kind=ErrorKind.UNKNOWN)
        if error.kind == ErrorKind.SYSTEM:
            return decide_system_failure(action, state, error, policy=policy, now=now, reasons=transition.reasons)
        return _user_failure(action, state, facts, transition, error, now=now)
    if phase is PluginPhase.PERMANENT_FAILURE:
        error = transition.error or ErrorInfo(message="unknown error", code="Unknown", kind=ErrorKind.UNKNOWN)
        return _failed(action, state, error, transition=transition, now=now)
    if phase is PluginPhase.SUCCESS:
        return _succeeded(action, state, transition, cache=cache, now=now)
    timeout = overdue(action, state, facts, phase, now)
    if timeout is not None:
        return _timed_out(action, state, facts, transition, timeout, now=now)
    return _progress(action, state, facts, transition, policy=policy, cache=cache, now=now)


def _progress(
    action: TaskAction,
    state: EngineState,
    facts: TaskFacts,
    transition: Transition,
    *,
    policy: Policy,
    cache: CacheStatus,
    now: dt.datetime,
) -> Decision:
    draft = Draft(action, state, now)
    phase = transition.phase
    at = transition.occurred_at or now
    draft.state.queued_at = draft.state.queued_at or now
    draft.state.first_queued_at = draft.state.first_queued_at or now
    if phase is PluginPhase.RUNNING and draft.state.started_at is None:
        draft.state.started_at = at
    if transition.state is not None:
        draft.state.plugin = transition.state
    draft.state.not_before = None
    status = draft.status
    status.cache_status = cache
    if (
        phase is PluginPhase.RUNNING
        and status.system_failures
        and draft.state.started_at is not None
        and (now - draft.state.started_at).total_seconds() >= policy.progress_after
    ):
        status.system_failures = 0
    status.plugin_phase = phase.wire_name
    status.plugin_phase_version = transition.version
    show_phase(status, phase, transition.reason, at)
    shown = action_phase(phase)
    logs = transition.logs_available and not state.logs_available
    draft.state.logs_available = draft.state.logs_available or transition.logs_available
    waiting = shown is ActionPhase.WAITING_FOR_RESOURCES
    told = shown is not state.phase or logs or bool(transition.reasons)
    if waiting and transition.reason != state.reason:
        told = True
    draft.state.reason = transition.reason if waiting else ""
    if told:
        reasons = transition.reasons
        if waiting and transition.reason:
            reasons = (*reasons, Reason(message=transition.reason, occurred_at=at))
        draft.event(shown, at=at, reasons=reasons, cache=cache)
    deadline = next_limit(draft.state, facts, phase)
    limits = [deadline] if deadline is not None else []
    if transition.check_after is not None:
        limits.append(now + dt.timedelta(seconds=transition.check_after))
    if status.system_failures and phase is PluginPhase.RUNNING and draft.state.started_at is not None:
        limits.append(draft.state.started_at + dt.timedelta(seconds=policy.progress_after))
    return draft.finish(
        wait_reason=transition.reason if waiting else "",
        again=transition.again,
        wake_at=min(limits) if limits else None,
    )


def _succeeded(
    action: TaskAction, state: EngineState, transition: Transition, *, cache: CacheStatus, now: dt.datetime
) -> Decision:
    draft = Draft(action, state, now)
    at = transition.occurred_at or now
    draft.status.system_failures = 0
    draft.status.cache_status = cache
    draft.status.plugin_phase = PluginPhase.SUCCESS.wire_name
    draft.status.plugin_phase_version = transition.version
    draft.state.plugin = None
    draft.state.logs_available = draft.state.logs_available or transition.logs_available
    if draft.state.started_at is None:
        # It came and went between two looks: say that it ran, so that every attempt has a start.
        draft.state.started_at = at
    show_phase(draft.status, PluginPhase.SUCCESS, "", at)
    draft.event(
        ActionPhase.SUCCEEDED,
        at=at,
        output_uri=transition.output_uri,
        report_uri=transition.report_uri,
        cache=cache,
        reasons=transition.reasons,
    )
    return draft.finish(wait_reason="", finalize=True)


def _failed(
    action: TaskAction,
    state: EngineState,
    error: ErrorInfo,
    *,
    transition: Transition | None,
    now: dt.datetime,
    abort: bool = False,
    reasons: tuple[Reason, ...] = (),
) -> Decision:
    """The end of the action in failure."""
    draft = Draft(action, state, now)
    at = (transition.occurred_at if transition else None) or now
    draft.state.plugin = None
    if transition is not None:
        reasons = (*reasons, *transition.reasons)
        draft.state.logs_available = draft.state.logs_available or transition.logs_available
    draft.status.plugin_phase = PluginPhase.PERMANENT_FAILURE.wire_name
    show_phase(draft.status, PluginPhase.PERMANENT_FAILURE, error.message, at)
    draft.status.error_state = ErrorState(code=error.code, kind=error.kind, message=error.message)
    draft.event(
        ActionPhase.FAILED,
        at=at,
        error=error,
        reasons=reasons,
        report_uri=transition.report_uri if transition else "",
    )
    return draft.finish(wait_reason="", abort=abort, finalize=True)


def _user_failure(
    action: TaskAction,
    state: EngineState,
    facts: TaskFacts,
    transition: Transition,
    error: ErrorInfo,
    *,
    now: dt.datetime,
) -> Decision:
    if action.attempt >= facts.max_attempts:
        return _failed(action, state, error, transition=transition, now=now)
    return _retry(action, state, facts, error, transition=transition, phase=ActionPhase.FAILED, now=now)


def _retry(
    action: TaskAction,
    state: EngineState,
    facts: TaskFacts,
    error: ErrorInfo,
    *,
    transition: Transition | None,
    phase: ActionPhase,
    now: dt.datetime,
    abort: bool = False,
) -> Decision:
    """End this attempt with its own error on record, and queue the next one in place."""
    draft = Draft(action, state, now)
    failed = action.attempt
    at = (transition.occurred_at if transition else None) or now
    if transition is not None:
        draft.state.logs_available = draft.state.logs_available or transition.logs_available
    draft.event(
        phase,
        at=at,
        final=False,
        error=error,
        reasons=transition.reasons if transition else (),
        report_uri=transition.report_uri if transition else "",
    )
    status = draft.status
    status.attempts = failed + 1
    status.system_failures = 0
    status.error_state = ErrorState(code=error.code, kind=error.kind, message=error.message)
    status.plugin_phase = PluginPhase.QUEUED.wire_name
    status.plugin_phase_version = 0
    status.cache_status = CacheStatus.DISABLED
    add_history(status, "RetryableFailure", error.message, now)
    show_phase(status, PluginPhase.QUEUED, "restarting task", now)
    delay = facts.retry_delay(failed)
    draft.state = EngineState(
        generation=state.generation + 1,
        not_before=now + delay if delay else None,
        queued_at=now,
        first_queued_at=state.first_queued_at,
        total_system_failures=state.total_system_failures,
    )
    word = f"attempt {failed + 1} of {facts.max_attempts} queued"
    if delay:
        word += f", it starts in {delay.total_seconds():g} s"
    draft.event(ActionPhase.QUEUED, reasons=(Reason(message=word, occurred_at=now),))
    return draft.finish(
        wait_reason=word if delay else "", abort=abort, finalize=True, again=not delay, wake_at=draft.state.not_before
    )


def decide_system_failure(
    action: TaskAction,
    state: EngineState,
    error: ErrorInfo,
    *,
    policy: Policy,
    now: dt.datetime,
    reasons: tuple[Reason, ...] = (),
) -> Decision:
    """The infrastructure failed, not the task: start afresh within a budget of its own."""
    counts = error.code != SERVER_STOPPED
    count = action.status.system_failures + counts
    total = state.total_system_failures + counts
    title = f"system failure {count}" if counts else "interrupted"
    line = Reason(message=f"{title}: [{error.code}] {error.message}", occurred_at=now, warning=True)
    if count > policy.max_system_failures or total > policy.max_total_system_failures:
        summary = ErrorInfo(
            code="MaxSystemFailuresExceeded",
            kind=ErrorKind.SYSTEM,
            message=f"gave up after {count} system failures in a row ({total} in all); the last one was "
            f"[{error.code}] {error.message}",
        )
        decision = _failed(action, state, summary, transition=None, now=now, abort=True, reasons=(*reasons, line))
        status = decision.status
        assert status is not None
        status.system_failures = count
        return decision
    draft = Draft(action, state, now)
    draft.status.system_failures = count
    draft.status.plugin_phase = PluginPhase.QUEUED.wire_name
    draft.status.plugin_phase_version = 0
    show_phase(draft.status, PluginPhase.QUEUED, line.message, now)
    delay = min(policy.system_backoff * 2 ** max(count - 1, 0), policy.system_backoff_cap)
    draft.state = EngineState(
        generation=state.generation + 1,
        not_before=now + dt.timedelta(seconds=delay),
        queued_at=now,
        first_queued_at=state.first_queued_at,
        total_system_failures=total,
        event_version=state.event_version,
        logs_available=state.logs_available,
        cache_checked=state.cache_checked,
    )
    draft.event(ActionPhase.QUEUED, reasons=(*reasons, line))
    return draft.finish(
        wait_reason=f"starts again in {delay:g} s after a system failure",
        abort=True,
        finalize=True,
        wake_at=draft.state.not_before,
    )


# -- time ------------------------------------------------------------------------------------------------------------


def _timed_out(
    action: TaskAction,
    state: EngineState,
    facts: TaskFacts,
    transition: Transition,
    timeout: Timeout,
    *,
    now: dt.datetime,
) -> Decision:
    error = ErrorInfo(message=timeout.message, code=timeout.code, kind=ErrorKind.USER)
    if timeout.retryable and action.attempt < facts.max_attempts:
        return _retry(
            action, state, facts, error, transition=transition, phase=ActionPhase.TIMED_OUT, now=now, abort=True
        )
    draft = Draft(action, state, now)
    draft.state.plugin = None
    draft.status.plugin_phase = PluginPhase.PERMANENT_FAILURE.wire_name
    set_condition(draft.status, "Progressing", False, "TimedOut", timeout.message, now)
    set_condition(draft.status, "Failed", True, "TimedOut", timeout.message, now)
    add_history(draft.status, "TimedOut", timeout.message, now)
    draft.status.error_state = ErrorState(code=error.code, kind=error.kind, message=error.message)
    draft.event(ActionPhase.TIMED_OUT, error=error, reasons=transition.reasons)
    return draft.finish(wait_reason="", abort=True, finalize=True)


# -- the end by request ----------------------------------------------------------------------------------------------


def abort_event(action: TaskAction, state: EngineState, now: dt.datetime) -> ActionEvent:
    """The event that tells of an abort, with the reason that came with the request."""
    notes = action.metadata.annotations
    reason = notes.get(ANNOTATION_ABORT_REASON, "") or "aborted"
    return ActionEvent(
        id=action.id,
        attempt=action.attempt,
        phase=ActionPhase.ABORTED,
        version=state.event_version,
        occurred_at=now,
        abort_reason=reason,
        aborted_by=notes.get(ANNOTATION_ABORTED_BY, ""),
        logs_available=state.logs_available,
        reasons=(Reason(message=f"aborted: {reason}", occurred_at=now),),
    )


def decide_condition(
    action: TaskAction, state: EngineState, *, timeout: float | None, problem: str, now: dt.datetime
) -> Decision:
    """A condition action waits for a signal: paused, signalled or timed out (engine.md section 3).

    `timeout` is in seconds from creation, None for no limit; a signal that is there wins over a passed deadline.
    """
    draft = Draft(action, state, now)
    status = draft.status
    if status.signal_value:
        set_condition(status, "Progressing", False, "Signaled", "", now)
        set_condition(status, "Succeeded", True, "Signaled", f'condition signalled by "{status.signalled_by}"', now)
        add_history(status, "Signaled", "", now)
        draft.event(ActionPhase.SUCCEEDED, value=status.signal_value, signalled_by=status.signalled_by)
        return draft.finish(wait_reason="")
    if problem:
        return decide_invalid(action, state, "InvalidSpec", problem, now)
    deadline = None
    created = action.metadata.creation_timestamp
    if timeout is not None and created is not None:
        deadline = created + dt.timedelta(seconds=timeout)
        if now >= deadline:
            message = f"no signal came within {timeout:g} s"
            set_condition(status, "Progressing", False, "TimedOut", message, now)
            set_condition(status, "Failed", True, "TimedOut", message, now)
            add_history(status, "TimedOut", message, now)
            status.error_state = ErrorState(code="ConditionTimedOut", kind=ErrorKind.USER, message=message)
            error = ErrorInfo(message=message, code="ConditionTimedOut", kind=ErrorKind.USER)
            draft.event(ActionPhase.TIMED_OUT, error=error)
            return draft.finish(wait_reason="")
    set_condition(status, "Progressing", True, "Paused", "waiting for signal", now)
    add_history(status, "Paused", "waiting for signal", now)
    if state.phase is not ActionPhase.PAUSED:
        draft.event(ActionPhase.PAUSED)
    return draft.finish(wait_reason="waiting for a signal", wake_at=deadline)
