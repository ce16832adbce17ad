"""Records: insertion, queries and the rules by which events move them. Runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest

from wingbeat.database import (
    BadQuery,
    Database,
    Filter,
    FilterFunction,
    Order,
    RecordNotFound,
    RecordQuery,
    Records,
)
from wingbeat.resources import (
    ActionEvent,
    ActionId,
    ActionPhase,
    ActionRecord,
    ActionType,
    CacheStatus,
    ErrorInfo,
    Reason,
    RunId,
    TaskId,
)

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
RUN = RunId("local", "p", "d", "r1")
A = RUN.action("a0")


def at(seconds: float) -> dt.datetime:
    return NOW + dt.timedelta(seconds=seconds)


def event(phase: ActionPhase, seconds: float = 0, id: ActionId = A, **fields: Any) -> ActionEvent:
    return ActionEvent(id=id, attempt=fields.pop("attempt", 1), phase=phase, occurred_at=at(seconds), **fields)


@pytest.fixture
def records(db: Database) -> Records:
    return Records(db)


async def test_a_record_is_read_back_as_it_was_inserted(records: Records) -> None:
    full = ActionRecord(
        id=A,
        parent="up",
        group="g",
        action_type=ActionType.CONDITION,
        phase=ActionPhase.PAUSED,
        attempts=2,
        cache_status=CacheStatus.HIT,
        created_at=NOW,
        started_at=at(1),
        ended_at=at(2),
        updated_at=at(3),
        task=TaskId("local", "p", "d", "env.t", "v1"),
        task_type="python",
        name="t",
        environment="env",
        input_uri="file:///in",
        run_output_base="file:///base",
        output_uri="file:///out",
        error=ErrorInfo("bad", "Code", "USER", False),
        abort_reason="r",
        aborted_by="b",
        value=b"\x00v",
        signalled_by="s",
        wait_reason="w",
        run_spec=b"\x01",
        labels={"k": "ü", "quo'te": '"'},
        created_by="me",
        source=3,
        trigger_name="tr",
        trigger_revision=7,
        recovered_from="r0/a0",
    )
    stored, created = await records.insert(full, b"spec")
    assert created
    assert stored.revision > 0
    assert await records.blob(stored.spec_digest) == b"spec"
    full.spec_digest, full.revision = stored.spec_digest, stored.revision
    assert stored == full
    assert await records.get(A) == full


async def test_inserting_again_gives_what_is_there(records: Records) -> None:
    await records.insert(ActionRecord(id=A, created_at=NOW, name="first"))
    stored, created = await records.insert(ActionRecord(id=A, created_at=at(9), name="second"))
    assert (created, stored.name) == (False, "first")


async def test_an_unknown_record_is_not_found(records: Records) -> None:
    with pytest.raises(RecordNotFound, match="p/d/r1/a0"):
        await records.get(A)
    with pytest.raises(RecordNotFound):
        await records.blob("00")
    assert await records.attempts(A) == []
    await records.apply([event(ActionPhase.RUNNING)])
    assert await records.attempts(A) == []


async def test_the_events_of_an_attempt_become_its_phases_times_and_reasons(records: Records) -> None:
    await records.insert(ActionRecord(id=A, created_at=NOW))
    reason = Reason("pulled", at(1.5))
    await records.apply(
        [
            event(ActionPhase.QUEUED, 0),
            event(ActionPhase.INITIALIZING, 1, reasons=(reason,)),
            event(ActionPhase.RUNNING, 2, reasons=(reason, Reason("started", at(2))), logs_available=True),
            event(ActionPhase.SUCCEEDED, 5, output_uri="o", report_uri="r", cache_status=CacheStatus.POPULATED),
        ]
    )
    [attempt] = await records.attempts(A)
    assert [(s.phase, s.start, s.end) for s in attempt.transitions] == [
        (ActionPhase.QUEUED, at(0), at(1)),
        (ActionPhase.INITIALIZING, at(1), at(2)),
        (ActionPhase.RUNNING, at(2), at(5)),
        (ActionPhase.SUCCEEDED, at(5), at(5)),
    ]
    assert (attempt.started_at, attempt.ended_at, attempt.logs_available) == (at(0), at(5), True)
    assert [r.message for r in attempt.reasons] == ["pulled", "started"]
    assert (attempt.output_uri, attempt.report_uri, attempt.cache_status) == ("o", "r", CacheStatus.POPULATED)
    action = await records.get(A)
    assert (action.phase, action.started_at, action.ended_at, action.output_uri) == (
        ActionPhase.SUCCEEDED,
        at(1),
        at(5),
        "o",
    )
    assert action.cache_status is CacheStatus.POPULATED


async def test_a_failed_attempt_keeps_its_error_and_its_action_goes_on(records: Records) -> None:
    await records.insert(ActionRecord(id=A, created_at=NOW))
    error = ErrorInfo("flaky", "Boom", "USER", True)
    await records.apply([event(ActionPhase.RUNNING, 1), event(ActionPhase.FAILED, 2, error=error, final=False)])
    between = await records.get(A)
    assert (between.phase, between.attempts, between.ended_at, between.error) == (ActionPhase.QUEUED, 1, None, None)
    await records.apply([event(ActionPhase.QUEUED, 3, attempt=2), event(ActionPhase.RUNNING, 4, attempt=2)])
    await records.apply([event(ActionPhase.RUNNING, 1, version=7, reasons=(Reason("late", at(1)),))])
    running = await records.get(A)
    assert (running.phase, running.attempts) == (ActionPhase.RUNNING, 2)
    await records.apply([event(ActionPhase.FAILED, 6, attempt=2, error=ErrorInfo("again", "Boom", "USER"))])
    failed = await records.get(A)
    assert (failed.phase, failed.attempts, failed.started_at, failed.ended_at) == (
        ActionPhase.FAILED,
        2,
        at(1),
        at(6),
    )
    assert failed.error == ErrorInfo("again", "Boom", "USER")
    first, second = await records.attempts(A)
    assert (first.phase, first.error, first.reasons[0].message) == (ActionPhase.FAILED, error, "late")
    assert second.phase is ActionPhase.FAILED


@pytest.mark.parametrize("end", [ActionPhase.SUCCEEDED, ActionPhase.FAILED, ActionPhase.ABORTED, ActionPhase.TIMED_OUT])
async def test_a_terminal_action_never_moves_again(records: Records, end: ActionPhase) -> None:
    await records.insert(ActionRecord(id=A, created_at=NOW))
    await records.apply([event(end, 1)])
    for phase in ActionPhase:
        if phase is not ActionPhase.UNSPECIFIED:
            await records.apply([event(phase, 9, version=9), event(phase, 9, attempt=2)])
    action = await records.get(A)
    assert (action.phase, action.ended_at, action.attempts) == (end, at(1), 1)
    first = (await records.attempts(A))[0]
    assert (first.phase, first.ended_at) == (end, at(1))
    assert [s.phase for s in first.transitions if s.phase.terminal] == [end]


async def test_a_trace_that_is_inserted_finished_stays_so(records: Records) -> None:
    await records.insert(ActionRecord(id=A, created_at=NOW, phase=ActionPhase.SUCCEEDED, action_type=ActionType.TRACE))
    await records.apply([event(ActionPhase.ABORTED, 3)])
    assert (await records.get(A)).phase is ActionPhase.SUCCEEDED


async def test_reasons_are_bounded_and_the_newest_stay(records: Records) -> None:
    await records.insert(ActionRecord(id=A, created_at=NOW))
    for start in range(0, 300, 50):
        reasons = tuple(Reason(f"n{n}", at(n)) for n in range(start, start + 50))
        await records.apply([event(ActionPhase.RUNNING, version=start, reasons=reasons)])
    [attempt] = await records.attempts(A)
    assert [r.message for r in attempt.reasons] == [f"n{n}" for n in range(100, 300)]


async def test_every_change_of_a_record_is_told_with_its_identity(records: Records, db: Database) -> None:
    told: list[ActionId] = []
    db.subscribe("records", told.append)
    await records.insert(ActionRecord(id=A, created_at=NOW))
    await records.insert(ActionRecord(id=A, created_at=NOW))
    await records.apply([event(ActionPhase.RUNNING)])
    await records.apply([event(ActionPhase.RUNNING)])
    await records.set_wait_reason(A, "because")
    await records.set_abort(A, "why", "me")
    assert told == [A] * 4
    assert db.revision >= (await records.get(A)).revision > 0


async def test_the_first_request_to_abort_wins_and_finished_actions_are_left_alone(records: Records) -> None:
    for name in ("a0", "b", "c"):
        await records.insert(ActionRecord(id=RUN.action(name), created_at=NOW, parent="" if name == "a0" else "a0"))
    await records.apply([event(ActionPhase.SUCCEEDED, id=RUN.action("c"))])
    assert await records.set_abort(RUN.action("b"), "one", "me") == 1
    assert await records.set_abort(RUN, "two", "you") == 1
    reasons = {n: (await records.get(RUN.action(n))).abort_reason for n in ("a0", "b", "c")}
    assert reasons == {"a0": "two", "b": "one", "c": ""}


async def fill(records: Records) -> None:
    async def run(n: int) -> None:
        id = ActionId("local", "p" if n < 8 else "q", "d", f"r{n}", "a0")
        await records.insert(
            ActionRecord(
                id=id,
                created_at=at(n),
                labels={"team": "x" if n % 2 else "y"},
                task=TaskId("local", "p", "d", f"env.Task{n % 3}", "v1"),
                name=f"Task{n % 3}",
                created_by="me",
                source=n % 2,
            )
        )
        await records.insert(ActionRecord(id=id.run_id.action("b"), parent="a0", created_at=at(n + 0.5)))
        if n % 2:
            await records.apply([event(ActionPhase.SUCCEEDED, n + 10, id=id)])

    await asyncio.gather(*(run(n) for n in range(10)))


async def test_runs_are_selected_by_scope_label_task_and_filter(records: Records) -> None:
    await fill(records)

    async def runs(*filters: Filter, **parts: Any) -> str:
        found = await records.list(RecordQuery(parent="", filters=filters, **parts))
        return "".join(r.id.run[1:] for r in found)

    f = FilterFunction
    assert await runs() == "9876543210"
    assert await runs(project="q") == "98"
    assert await runs(project="q", limit=1, offset=1) == "8"
    assert await runs(labels=(("team", "x"),)) == "97531"
    assert await runs(labels=(("team", "'; DROP TABLE actions"),)) == ""
    assert await runs(task=TaskId("", "p", "d", "env.Task0", "")) == "9630"
    assert await runs(Filter("phase", f.EQUAL, ("5",))) == "97531"
    assert await runs(Filter("phase", f.VALUE_IN, ("5",))) == "97531"
    assert await runs(Filter("phase", f.VALUE_NOT_IN, (5, 6))) == "86420"
    assert await runs(Filter("phase", f.NOT_EQUAL, (5,)), Filter("run_name", f.GREATER_THAN, ("r4",))) == "86"
    assert await runs(Filter("function_name", f.CONTAINS_CASE_INSENSITIVE, ("TASK1",))) == "741"
    assert await runs(Filter("function_name", f.CONTAINS, ("task1",))) == ""
    assert await runs(Filter("function_name", f.CONTAINS, ("%",))) == ""
    assert await runs(Filter("task_name", f.ENDS_WITH, ("k2",))) == "852"
    assert await runs(Filter("task_name", f.NOT_ENDS_WITH, ("k2",))) == "9764310"
    assert await runs(Filter("created_at", f.GREATER_THAN_OR_EQUAL, (at(8).isoformat(),))) == "98"
    assert await runs(Filter("created_at", f.LESS_THAN, (at(2),))) == "10"
    assert await runs(Filter("duration_ms", f.LESS_THAN_OR_EQUAL, ("10000",))) == "97531"
    assert await runs(order_by=(Order("phase", False), Order("created_at", True))) == "8642097531"
    assert await runs(order_by=(Order("function_name", False), Order("run_name", False))) == "0369147258"
    assert await records.count(RecordQuery(parent="", limit=1)) == 10
    assert await records.phase_counts(RecordQuery(parent="")) == {ActionPhase.QUEUED: 5, ActionPhase.SUCCEEDED: 5}
    assert await records.phase_counts(RecordQuery(run="r1")) == {ActionPhase.QUEUED: 1, ActionPhase.SUCCEEDED: 1}
    assert [r.id.run for r in await records.list(RecordQuery(after_revision=10**9))] == []


async def test_children_are_those_of_one_run_of_one_project(records: Records) -> None:
    await fill(records)
    run = RunId("local", "p", "d", "r3")
    assert [c.id for c in await records.children(run.action("a0"))] == [run.action("b")]
    assert await records.children(RunId("local", "q", "d", "r3").action("a0")) == []
    assert await records.children_phase_counts(run) == {"a0": {ActionPhase.QUEUED: 1}}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (RecordQuery(filters=(Filter("nonsense", FilterFunction.EQUAL, ("x",)),)), "unknown column 'nonsense'"),
        (RecordQuery(filters=(Filter("phase", FilterFunction.EQUAL, ("x",)),)), "'x' does not fit column 'phase'"),
        (RecordQuery(filters=(Filter("phase", FilterFunction.CONTAINS, ("1",)),)), "does not fit 'phase'"),
        (RecordQuery(filters=(Filter("created_at", FilterFunction.EQUAL, ("yesterday",)),)), "'created_at'"),
        (RecordQuery(filters=(Filter("phase", FilterFunction.EQUAL, ()),)), "has no value"),
        (RecordQuery(filters=(Filter("phase", FilterFunction.EQUAL, (1, 2)),)), "takes one value"),
        (RecordQuery(order_by=(Order("1; DROP TABLE actions"),)), "unknown column"),
    ],
)
async def test_a_bad_query_is_refused_with_the_reason(records: Records, query: RecordQuery, words: str) -> None:
    with pytest.raises(BadQuery, match=words):
        await records.list(query)
