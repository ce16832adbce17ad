"""Events may come twice and in any order, and the record is the same in the end."""

from __future__ import annotations

import datetime as dt

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wingbeat.database.projection import (
    ActionState,
    AttemptState,
    apply_to_action,
    apply_to_attempt,
    decode_attempt,
    encode_attempt,
    to_record,
)
from wingbeat.resources import ActionEvent, ActionId, ActionPhase, AttemptRecord, CacheStatus, ErrorInfo, Reason

ID = ActionId("local", "p", "d", "r", "a0")
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
RUNNING = [ActionPhase.QUEUED, ActionPhase.WAITING_FOR_RESOURCES, ActionPhase.INITIALIZING, ActionPhase.RUNNING]
ENDS = [ActionPhase.SUCCEEDED, ActionPhase.FAILED, ActionPhase.ABORTED, ActionPhase.TIMED_OUT, ActionPhase.RECOVERED]


# Time is no property of these rules, and the machines that run the tests are busy.
property_settings = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Projection:
    """What `records.apply_events` does, without a database, through the stored form."""

    def __init__(self) -> None:
        self.action = ActionState(1, 1, 0, None, None, None, "", None, "", "", b"", "", "")
        self.attempts: dict[int, bytes] = {}

    def apply(self, event: ActionEvent) -> None:
        stored = self.attempts.get(event.attempt)
        state = decode_attempt(stored) if stored else AttemptState()
        if apply_to_attempt(state, event):
            self.attempts[event.attempt] = encode_attempt(state)
            apply_to_action(self.action, state, event)

    def result(self) -> tuple[ActionState, list[AttemptRecord]]:
        return self.action, [to_record(n, decode_attempt(b)) for n, b in sorted(self.attempts.items())]


def project(events: list[ActionEvent]) -> tuple[ActionState, list[AttemptRecord]]:
    projection = Projection()
    for event in events:
        projection.apply(event)
    return projection.result()


@st.composite
def histories(draw: st.DrawFn) -> list[ActionEvent]:
    """What an engine may tell of one action, in the order in which it happened."""
    events: list[ActionEvent] = []
    attempts = draw(st.integers(1, 3))
    seconds = 0
    finished = draw(st.booleans())
    for attempt in range(1, attempts + 1):
        last = attempt == attempts
        phases = sorted(draw(st.lists(st.sampled_from(RUNNING), max_size=6)) or [ActionPhase.QUEUED])
        if not last:
            phases.append(ActionPhase.FAILED)
        elif finished:
            phases.append(draw(st.sampled_from(ENDS)))
        for version, phase in enumerate(phases):
            seconds += draw(st.integers(0, 2))
            at = START + dt.timedelta(seconds=seconds)
            failed = phase in (ActionPhase.FAILED, ActionPhase.TIMED_OUT)
            messages = draw(st.lists(st.sampled_from("abc"), max_size=2))
            events.append(
                ActionEvent(
                    id=ID,
                    attempt=attempt,
                    phase=phase,
                    version=version,
                    occurred_at=at,
                    final=last,
                    error=ErrorInfo(f"error {attempt}", "Code") if failed else None,
                    output_uri=draw(st.sampled_from(["", "out1", "out2"])),
                    report_uri=draw(st.sampled_from(["", "report1", "report2"])),
                    cache_status=draw(st.sampled_from([CacheStatus.DISABLED, CacheStatus.MISS, CacheStatus.HIT])),
                    reasons=tuple(Reason(m, at) for m in messages),
                    value=b"v" if phase is ActionPhase.SUCCEEDED else b"",
                    signalled_by="me" if phase is ActionPhase.SUCCEEDED else "",
                    abort_reason="why" if phase is ActionPhase.ABORTED else "",
                    logs_available=draw(st.booleans()),
                )
            )
    return events


@property_settings
@given(histories(), st.data())
def test_any_order_and_any_repetition_of_events_gives_the_same_record(
    events: list[ActionEvent], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(events))
    repeated = data.draw(st.lists(st.sampled_from(events), max_size=5))
    mixed = data.draw(st.permutations([*shuffled, *repeated]))
    assert project(mixed) == project(events)


@property_settings
@given(histories())
def test_a_repeated_event_changes_nothing_at_all(events: list[ActionEvent]) -> None:
    projection = Projection()
    for event in events:
        projection.apply(event)
        before = msgspec.json.encode(projection.result())
        projection.apply(event)
        assert msgspec.json.encode(projection.result()) == before


@property_settings
@given(histories(), histories())
def test_what_has_ended_never_moves_whatever_comes(first: list[ActionEvent], second: list[ActionEvent]) -> None:
    projection = Projection()
    for event in first:
        projection.apply(event)
    action = projection.action
    if not ActionPhase(action.phase).terminal:
        return
    kept = (action.phase, action.attempts, action.ended_at, action.error, action.output_uri, action.value)
    for event in second:
        projection.apply(event)
    assert (action.phase, action.attempts, action.ended_at, action.error, action.output_uri, action.value) == kept


@property_settings
@given(histories())
def test_the_action_follows_its_newest_attempt(events: list[ActionEvent]) -> None:
    action, attempts = project(events)
    newest = attempts[-1]
    assert action.attempts == newest.attempt
    assert action.phase == newest.phase
    for attempt in attempts[:-1]:
        assert attempt.phase is ActionPhase.FAILED
        assert attempt.error is not None
    for attempt in attempts:
        starts = [span.start for span in attempt.transitions]
        assert starts == sorted(starts)
        assert all(a.end == b.start for a, b in zip(attempt.transitions, attempt.transitions[1:], strict=False))
        assert (attempt.ended_at is not None) == attempt.phase.terminal
