"""How events become a record: pure functions, and the one place for these rules.

An event's place is (attempt, phase, version). Within an attempt the phases only go forward, by their number (queued,
waiting, initializing, running, paused), and a terminal phase ends it: a second terminal phase of the same attempt is
ignored. Every field remembers the place it came from and only a later place replaces it, so events may come twice and
in any order. An action follows its newest attempt; events of an older one change that attempt alone. A failed attempt
that is not final sends the action back to QUEUED. A terminal action never moves again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from wingbeat.database.times import from_micros, to_micros
from wingbeat.resources import (
    ActionEvent,
    ActionPhase,
    AttemptRecord,
    CacheStatus,
    ErrorInfo,
    PhaseSpan,
    Reason,
)

REASON_LIMIT = 200
"""Reasons kept for one attempt; the newest stay."""

_TERMINAL = frozenset(int(p) for p in ActionPhase if p.terminal)
_STARTED = frozenset({int(ActionPhase.INITIALIZING), int(ActionPhase.RUNNING)})
_FAILED = frozenset({int(ActionPhase.FAILED), int(ActionPhase.TIMED_OUT), int(ActionPhase.ABORTED)})

Place = tuple[int, int]
"""(phase, version), terminal phases counted above all others."""


class AttemptState(msgspec.Struct, array_like=True, kw_only=True):
    """What is kept of one attempt. Times in microseconds; phases as numbers."""

    phase: int = 0
    final: bool = False
    place: Place = (0, -1)
    starts: dict[int, int] = {}
    """Phase to the earliest time an event told of it."""
    error: ErrorInfo | None = None
    output: tuple[Place, str] | None = None
    report: tuple[Place, str] | None = None
    cache: tuple[Place, int] | None = None
    reasons: list[tuple[int, str, bool]] = []
    """(time, message, warning), sorted."""
    logs: bool = False

    @property
    def terminal(self) -> bool:
        return self.phase in _TERMINAL


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AttemptState)


def encode_attempt(state: AttemptState) -> bytes:
    return _encoder.encode(state)


def decode_attempt(data: bytes) -> AttemptState:
    return _decoder.decode(data)


def _place(event: ActionEvent) -> Place:
    phase = int(event.phase)
    return (phase + 100 if phase in _TERMINAL else phase, event.version)


def _later(old: tuple[Place, Any] | None, place: Place, value: Any) -> Any:
    return (place, value) if old is None or place > old[0] else old


def apply_to_attempt(state: AttemptState, event: ActionEvent) -> bool:
    """Take `event` into `state`; False if it told nothing new."""
    phase = int(event.phase)
    terminal = phase in _TERMINAL
    if state.terminal and terminal and phase != state.phase:
        return False
    changed = False
    place = _place(event)
    at = to_micros(event.occurred_at)
    start = state.starts.get(phase)
    if start is None or at < start:
        state.starts[phase] = at
        changed = True
    if place > state.place:
        state.place = place
        state.phase = phase
        changed = True
        if terminal:
            state.final = event.final
            state.error = event.error
    for name, value in (("output", event.output_uri), ("report", event.report_uri), ("cache", int(event.cache_status))):
        if value:
            old = getattr(state, name)
            new = _later(old, place, value)
            if new is not old:
                setattr(state, name, new)
                changed = True
    if event.logs_available and not state.logs:
        state.logs = changed = True
    if event.reasons:
        changed = _add_reasons(state, event.reasons) or changed
    return changed


def _add_reasons(state: AttemptState, reasons: tuple[Reason, ...]) -> bool:
    before = len(state.reasons)
    known = set(state.reasons)
    known.update((to_micros(r.occurred_at), r.message, r.warning) for r in reasons)
    if len(known) == before:
        return False
    kept = sorted(known)[-REASON_LIMIT:]
    changed = kept != state.reasons
    state.reasons = kept
    return changed


def to_record(attempt: int, state: AttemptState) -> AttemptRecord:
    """The attempt as readers see it. It starts with its first event; a phase ends where the next one starts."""
    end = state.starts.get(state.phase) if state.terminal else None
    order = sorted(
        ((at, phase) for phase, at in state.starts.items() if phase not in _TERMINAL or phase == state.phase),
        key=lambda span: (span[1] in _TERMINAL, *span),
    )
    spans: list[PhaseSpan] = []
    for index, (at, phase) in enumerate(order):
        if index + 1 < len(order):
            until: int | None = max(at, order[index + 1][0])
        else:
            until = at if phase in _TERMINAL else None
        spans.append(
            PhaseSpan(
                phase=ActionPhase(phase),
                start=from_micros(at),
                end=None if until is None else from_micros(until),
            )
        )
    started = min(state.starts.values(), default=None)
    return AttemptRecord(
        attempt=attempt,
        phase=ActionPhase(state.phase),
        started_at=None if started is None else from_micros(started),
        ended_at=None if end is None or started is None else from_micros(max(end, started)),
        error=state.error,
        output_uri=state.output[1] if state.output else "",
        report_uri=state.report[1] if state.report else "",
        cache_status=CacheStatus(state.cache[1]) if state.cache else CacheStatus.DISABLED,
        transitions=spans,
        reasons=[Reason(message=m, occurred_at=from_micros(at), warning=w) for at, m, w in state.reasons],
        logs_available=state.logs,
    )


class ActionState(msgspec.Struct):
    """The part of an action's record that events change, as it is in its row."""

    phase: int
    attempts: int
    cache_status: int
    started_at: int | None
    ended_at: int | None
    updated_at: int | None
    output_uri: str
    error: bytes | None
    abort_reason: str
    aborted_by: str
    value: bytes
    signalled_by: str
    wait_reason: str


_json = msgspec.json.Encoder()


def apply_to_action(action: ActionState, attempt: AttemptState, event: ActionEvent) -> None:
    """Take `event` into `action`, after it was taken into `attempt`, the state of the attempt it tells of."""
    at = to_micros(event.occurred_at)
    phase = int(event.phase)
    action.updated_at = at if action.updated_at is None else max(action.updated_at, at)
    if phase in _STARTED and (action.started_at is None or at < action.started_at):
        action.started_at = at
    if event.attempt < action.attempts or (action.phase in _TERMINAL and event.attempt > action.attempts):
        return
    # Also after the end, so that a late event of the last attempt leaves the same record as one in time.
    action.cache_status = attempt.cache[1] if attempt.cache else 0
    if action.phase in _TERMINAL:
        return
    action.attempts = event.attempt
    if attempt.terminal and not attempt.final:
        action.phase = int(ActionPhase.QUEUED)
        return
    action.phase = attempt.phase
    if action.phase not in (int(ActionPhase.QUEUED), int(ActionPhase.WAITING_FOR_RESOURCES)):
        action.wait_reason = ""
    if not attempt.terminal:
        return
    action.ended_at = attempt.starts[attempt.phase]
    if phase not in _FAILED:
        action.output_uri = event.output_uri or action.output_uri
    if event.error is not None:
        action.error = _json.encode(event.error)
    if phase == int(ActionPhase.ABORTED):
        action.abort_reason = action.abort_reason or event.abort_reason
        action.aborted_by = action.aborted_by or event.aborted_by
    action.value = event.value or action.value
    action.signalled_by = event.signalled_by or action.signalled_by
