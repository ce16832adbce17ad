"""The rules, row by row: an action, what was observed, and what must follow. No I/O, no clock."""

import datetime as dt

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wingbeat.engine.decide import (
    Policy,
    Step,
    abort_event,
    decide_cache_hit,
    decide_condition,
    decide_invalid,
    decide_system_failure,
    decide_transition,
    next_step,
)
from wingbeat.engine.facts import TaskFacts
from wingbeat.engine.state import EngineState, read_state
from wingbeat.engine.status import action_phase
from wingbeat.plugins import Transition
from wingbeat.resources import (
    ActionPhase,
    CacheStatus,
    ErrorInfo,
    ObjectMeta,
    PluginPhase,
    TaskAction,
    TaskActionSpec,
    TaskActionStatus,
)
from wingbeat.resources.taskaction import FINALIZER

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
USER = ErrorInfo(message="boom", code="ValueError", kind="USER")
SYSTEM = ErrorInfo(message="the process vanished", code="ProcessLost", kind="SYSTEM")


def action(**status) -> TaskAction:
    return TaskAction(
        metadata=ObjectMeta(name="r-a0", uid="u1", finalizers=[FINALIZER], creation_timestamp=NOW),
        spec=TaskActionSpec(run_name="r", project="p", domain="d", action_name="a0", task_type="python"),
        status=TaskActionStatus(**status),
    )


def after(before: TaskAction, decision) -> TaskAction:
    """The action as a store would hold it after the decision."""
    if decision.status is None:
        return before
    return msgspec.structs.replace(before, status=decision.status)


def step(act, transition, *, facts=None, now=NOW, cache=CacheStatus.DISABLED, policy=None):
    return decide_transition(
        act, read_state(act), facts or TaskFacts(), transition, cache=cache, policy=policy or Policy(), now=now
    )


def condition(status, type):
    return next((c for c in status.conditions if c.type == type), None)


# -- the order of a reconcile ----------------------------------------------------------------------------------------


def plan(act, *, facts=None, problem="", catalog=False, state=None, now=NOW):
    return next_step(act, state or read_state(act), facts or TaskFacts(), problem=problem, now=now, catalog=catalog)


def test_deletion_comes_before_everything_else():
    act = action()
    act.metadata.deletion_timestamp = NOW
    assert plan(act, problem="broken") is Step.ABORT


def test_a_terminal_action_is_only_settled():
    act = after(action(), step(action(), Transition(phase=PluginPhase.SUCCESS)))
    assert act.terminal
    assert plan(act, problem="broken") is Step.SETTLE


def test_an_invalid_spec_is_rejected_before_a_finalizer_is_added():
    act = action()
    act.metadata.finalizers = []
    assert plan(act, problem="lacks taskType") is Step.REJECT
    assert plan(act) is Step.ADD_FINALIZER


def test_a_back_off_delays_the_launch_but_not_what_is_launched():
    later = EngineState(not_before=NOW + dt.timedelta(seconds=5))
    assert plan(action(), state=later) is Step.WAIT
    assert plan(action(), state=later, now=NOW + dt.timedelta(seconds=5)) is Step.HANDLE
    launched = EngineState(not_before=NOW + dt.timedelta(seconds=5), plugin={"token": "t"})
    assert plan(action(), state=launched) is Step.HANDLE


def test_the_catalog_is_asked_once_and_never_after_a_launch():
    act = action()
    act.spec.cache_key = "k"
    facts = TaskFacts(discoverable=True)
    assert plan(act, facts=facts, catalog=True) is Step.LOOKUP
    assert plan(act, facts=facts, catalog=False) is Step.HANDLE
    assert plan(act, facts=facts, catalog=True, state=EngineState(cache_checked=True)) is Step.HANDLE
    assert plan(act, facts=facts, catalog=True, state=EngineState(plugin={"token": "t"})) is Step.HANDLE
    assert plan(act, facts=TaskFacts(), catalog=True) is Step.HANDLE


# -- phases ----------------------------------------------------------------------------------------------------------

PHASES = [
    (PluginPhase.NOT_READY, ActionPhase.QUEUED, "Queued"),
    (PluginPhase.QUEUED, ActionPhase.QUEUED, "Queued"),
    (PluginPhase.WAITING_FOR_RESOURCES, ActionPhase.WAITING_FOR_RESOURCES, "Queued"),
    (PluginPhase.WAITING_FOR_CACHE, ActionPhase.WAITING_FOR_RESOURCES, "Queued"),
    (PluginPhase.INITIALIZING, ActionPhase.INITIALIZING, "Initializing"),
    (PluginPhase.RUNNING, ActionPhase.RUNNING, "Executing"),
]


@pytest.mark.parametrize(("plugin", "shown", "history"), PHASES)
def test_a_phase_in_progress_is_shown_as_condition_history_and_event(plugin, shown, history):
    decision = step(action(), Transition(phase=plugin, reason="because"))
    assert condition(decision.status, "Progressing").status == "True"
    assert condition(decision.status, "Progressing").reason == history
    assert [h.phase for h in decision.status.phase_history] == [history]
    assert decision.status.plugin_phase == plugin.wire_name
    assert [e.phase for e in decision.events] == [shown]
    assert action_phase(plugin) is shown


def test_the_same_report_twice_writes_nothing():
    report = Transition(phase=PluginPhase.RUNNING, reason="running as process 1", logs_available=True)
    act = after(action(), step(action(), report))
    again = step(act, report)
    assert again.status is None
    assert again.events == ()


def test_success_ends_the_action_and_frees_the_attempt():
    decision = step(action(system_failures=2), Transition(phase=PluginPhase.SUCCESS, output_uri="/o"))
    assert condition(decision.status, "Succeeded").status == "True"
    assert condition(decision.status, "Progressing").status == "False"
    assert decision.status.system_failures == 0
    assert decision.finalize_attempt
    (event,) = decision.events
    assert (event.phase, event.output_uri, event.final) == (ActionPhase.SUCCEEDED, "/o", True)


def test_what_a_plugin_launches_is_persisted_before_it_is_called_again():
    decision = step(action(), Transition(phase=PluginPhase.QUEUED, state={"token": "t"}, again=True))
    assert decision.again
    assert read_state(after(action(), decision)).plugin == {"token": "t"}


# -- user failures ---------------------------------------------------------------------------------------------------


def test_a_user_failure_with_attempts_left_is_retried_in_place_and_keeps_its_error():
    facts = TaskFacts(max_attempts=3)
    act = after(action(), step(action(), Transition(phase=PluginPhase.QUEUED, state={"token": "t"}, again=True)))
    decision = step(act, Transition(phase=PluginPhase.RETRYABLE_FAILURE, error=USER), facts=facts)
    failed, queued = decision.events
    assert (failed.attempt, failed.phase, failed.final, failed.error) == (1, ActionPhase.FAILED, False, USER)
    assert (queued.attempt, queued.phase) == (2, ActionPhase.QUEUED)
    assert decision.status.attempts == 2
    assert decision.finalize_attempt
    state = read_state(after(act, decision))
    assert state.plugin is None
    assert state.generation == 1
    assert not after(act, decision).terminal


def test_the_last_attempt_that_fails_fails_the_action_with_its_own_error():
    decision = step(
        action(attempts=3), Transition(phase=PluginPhase.RETRYABLE_FAILURE, error=USER), facts=TaskFacts(max_attempts=3)
    )
    (event,) = decision.events
    assert (event.attempt, event.final, event.error) == (3, True, USER)
    assert decision.status.error_state.code == "ValueError"


def test_a_permanent_failure_is_never_retried():
    decision = step(
        action(), Transition(phase=PluginPhase.PERMANENT_FAILURE, error=USER), facts=TaskFacts(max_attempts=9)
    )
    assert after(action(), decision).terminal


def test_retries_back_off_by_base_factor_and_cap():
    facts = TaskFacts(max_attempts=9, backoff_base=2, backoff_factor=3, backoff_cap=10)
    assert [facts.retry_delay(n).total_seconds() for n in (1, 2, 3, 4)] == [2, 6, 10, 10]
    decision = step(action(), Transition(phase=PluginPhase.RETRYABLE_FAILURE, error=USER), facts=facts)
    assert decision.wake_at == NOW + dt.timedelta(seconds=2)
    assert not decision.again
    assert plan(after(action(), decision), facts=facts) is Step.WAIT


def test_success_after_a_retry_clears_the_old_error():
    facts = TaskFacts(max_attempts=2)
    act = after(action(), step(action(), Transition(phase=PluginPhase.RETRYABLE_FAILURE, error=USER), facts=facts))
    act = after(act, step(act, Transition(phase=PluginPhase.SUCCESS), facts=facts))
    assert act.status.error_state is None
    assert act.status.attempts == 2


# -- system failures -------------------------------------------------------------------------------------------------


def test_three_system_failures_in_a_row_are_retried_and_the_fourth_fails_the_action():
    act = action()
    for count in (1, 2, 3):
        decision = step(act, Transition(phase=PluginPhase.RETRYABLE_FAILURE, error=SYSTEM))
        act = after(act, decision)
        assert (act.status.system_failures, act.terminal, act.attempt) == (count, False, 1)
        assert decision.abort_attempt
        assert decision.finalize_attempt
        assert read_state(act).plugin is None
        assert read_state(act).generation == count
        act = after(act, step(act, Transition(phase=PluginPhase.QUEUED, state={"token": f"t{count}"}, again=True)))
    decision = step(act, Transition(phase=PluginPhase.RETRYABLE_FAILURE, error=SYSTEM))
    (event,) = decision.events
    assert event.error.code == "MaxSystemFailuresExceeded"
    assert event.error.kind == "SYSTEM"
    assert "the process vanished" in event.error.message
    assert decision.status.system_failures == 4


def test_a_relaunch_alone_does_not_reset_the_count_but_a_minute_of_running_does():
    act = after(action(), decide_system_failure(action(), EngineState(), SYSTEM, policy=Policy(), now=NOW))
    running = Transition(phase=PluginPhase.RUNNING, state={"token": "t"})
    act = after(act, step(act, running))
    assert act.status.system_failures == 1
    act = after(act, step(act, running, now=NOW + dt.timedelta(seconds=61)))
    assert act.status.system_failures == 0


def test_a_total_cap_ends_what_fails_after_every_bit_of_progress():
    policy = Policy(max_total_system_failures=5)
    act = action()
    for _ in range(5):
        act = after(act, decide_system_failure(act, read_state(act), SYSTEM, policy=policy, now=NOW))
        act.status.system_failures = 0
    act = after(act, decide_system_failure(act, read_state(act), SYSTEM, policy=policy, now=NOW))
    assert act.terminal
    assert act.status.error_state.code == "MaxSystemFailuresExceeded"


def test_an_attempt_that_a_stop_of_the_server_interrupted_is_charged_to_no_budget():
    stopped = ErrorInfo(message="the server was stopped", code="ServerStopped", kind="SYSTEM")
    act = action()
    for stops in range(1, 31):
        act = after(act, decide_system_failure(act, read_state(act), stopped, policy=Policy(), now=NOW))
        assert (act.terminal, act.attempt, act.status.system_failures) == (False, 1, 0)
        assert read_state(act).total_system_failures == 0
        assert read_state(act).generation == stops


def test_system_failures_back_off_exponentially():
    act, delays = action(), []
    for _ in range(3):
        decision = decide_system_failure(act, read_state(act), SYSTEM, policy=Policy(), now=NOW)
        delays.append((decision.wake_at - NOW).total_seconds())
        act = after(act, decision)
    assert delays == [0.5, 1.0, 2.0]


# -- time ------------------------------------------------------------------------------------------------------------


def running_since(seconds: float, **kwargs) -> TaskAction:
    start = NOW - dt.timedelta(seconds=seconds)
    act = action()
    act = after(act, step(act, Transition(phase=PluginPhase.QUEUED, state={"token": "t"}), now=start, **kwargs))
    return after(act, step(act, Transition(phase=PluginPhase.RUNNING), now=start, **kwargs))


def test_an_attempt_over_its_runtime_is_ended_and_retried_within_the_budget():
    facts = TaskFacts(max_attempts=2, max_runtime=10)
    act = running_since(10, facts=facts)
    decision = step(act, Transition(phase=PluginPhase.RUNNING), facts=facts)
    timed_out, queued = decision.events
    assert (timed_out.phase, timed_out.final) == (ActionPhase.TIMED_OUT, False)
    assert timed_out.error.code == "MAX_RUNTIME_EXCEEDED"
    assert queued.attempt == 2
    assert decision.abort_attempt


def test_the_last_attempt_over_its_runtime_times_the_action_out():
    facts = TaskFacts(max_runtime=10)
    decision = step(running_since(11, facts=facts), Transition(phase=PluginPhase.RUNNING), facts=facts)
    (event,) = decision.events
    assert (event.phase, event.final) == (ActionPhase.TIMED_OUT, True)
    assert condition(decision.status, "Failed").reason == "TimedOut"


def test_a_result_that_is_there_wins_over_a_passed_deadline():
    facts = TaskFacts(max_runtime=10, deadline=10)
    decision = step(running_since(11, facts=facts), Transition(phase=PluginPhase.SUCCESS), facts=facts)
    assert decision.events[0].phase is ActionPhase.SUCCEEDED


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (TaskFacts(queued_timeout=10, max_attempts=5), "QUEUED_TIMEOUT_EXCEEDED"),
        (TaskFacts(deadline=10, max_attempts=5), "DEADLINE_EXCEEDED"),
    ],
)
def test_waiting_too_long_times_the_action_out_whatever_attempts_are_left(facts, code):
    start = NOW - dt.timedelta(seconds=10)
    waiting = Transition(phase=PluginPhase.WAITING_FOR_RESOURCES, reason="waits for 1 CPU")
    act = after(action(), step(action(), waiting, facts=facts, now=start))
    decision = step(act, waiting, facts=facts)
    assert decision.events[-1].error.code == code
    assert after(act, decision).terminal


def test_a_limit_in_the_future_is_a_wake_up_call():
    facts = TaskFacts(max_runtime=10)
    act = running_since(4, facts=facts)
    assert step(act, Transition(phase=PluginPhase.RUNNING), facts=facts).wake_at == NOW + dt.timedelta(seconds=6)


# -- cache, rejection, abort, conditions -----------------------------------------------------------------------------


def test_a_cache_hit_succeeds_without_a_launch():
    decision = decide_cache_hit(action(), EngineState(), output_uri="/o", report_uri="", now=NOW)
    (event,) = decision.events
    assert (event.phase, event.cache_status, event.output_uri) == (ActionPhase.SUCCEEDED, CacheStatus.HIT, "/o")
    assert decision.status.cache_status == CacheStatus.HIT


def test_the_cache_status_of_a_success_is_the_one_that_was_observed():
    decision = step(action(), Transition(phase=PluginPhase.SUCCESS), cache=CacheStatus.PUT_FAILURE)
    assert decision.events[0].cache_status is CacheStatus.PUT_FAILURE


def test_a_rejected_action_is_told_like_any_failure():
    decision = decide_invalid(action(), EngineState(), "InvalidSpec", "lacks inputUri", NOW)
    (event,) = decision.events
    assert (event.phase, event.error.code, event.error.kind) == (ActionPhase.FAILED, "InvalidSpec", "USER")
    assert after(action(), decision).terminal


def test_an_abort_names_who_asked_and_why():
    act = action()
    act.metadata.annotations = {"wingbeat.dev/abort-reason": "too slow", "wingbeat.dev/aborted-by": "ada"}
    event = abort_event(act, EngineState(), NOW)
    assert (event.phase, event.abort_reason, event.aborted_by) == (ActionPhase.ABORTED, "too slow", "ada")


def test_a_condition_pauses_and_a_signal_ends_it_with_its_value():
    act = action()
    act.spec.action_type = "condition"
    paused = decide_condition(act, EngineState(), timeout=None, problem="", now=NOW)
    assert paused.events[0].phase is ActionPhase.PAUSED
    assert paused.wake_at is None
    act = after(act, paused)
    assert decide_condition(act, read_state(act), timeout=None, problem="", now=NOW).status is None
    act.status.signal_value, act.status.signalled_by = b"yes", "ada"
    done = decide_condition(act, read_state(act), timeout=1, problem="", now=NOW + dt.timedelta(hours=1))
    assert (done.events[0].phase, done.events[0].value) == (ActionPhase.SUCCEEDED, b"yes")


def test_a_condition_without_a_signal_times_out_at_its_deadline():
    act = action()
    paused = decide_condition(act, EngineState(), timeout=30, problem="", now=NOW)
    assert paused.wake_at == NOW + dt.timedelta(seconds=30)
    late = decide_condition(act, EngineState(), timeout=30, problem="", now=NOW + dt.timedelta(seconds=30))
    assert (late.events[0].phase, late.events[0].error.code) == (ActionPhase.TIMED_OUT, "ConditionTimedOut")


# -- the state space -------------------------------------------------------------------------------------------------

REPORTS = st.sampled_from(
    [
        Transition(phase=PluginPhase.QUEUED, state={"token": "t"}, again=True),
        Transition(phase=PluginPhase.WAITING_FOR_RESOURCES, reason="waits"),
        Transition(phase=PluginPhase.INITIALIZING),
        Transition(phase=PluginPhase.RUNNING, logs_available=True),
        Transition(phase=PluginPhase.SUCCESS, output_uri="/o"),
        Transition(phase=PluginPhase.RETRYABLE_FAILURE, error=USER),
        Transition(phase=PluginPhase.RETRYABLE_FAILURE, error=SYSTEM),
        Transition(phase=PluginPhase.RETRYABLE_FAILURE),
        Transition(phase=PluginPhase.PERMANENT_FAILURE, error=USER),
    ]
)


@settings(max_examples=300)
@given(
    reports=st.lists(st.tuples(REPORTS, st.floats(0, 100)), max_size=40),
    max_attempts=st.integers(1, 4),
    limits=st.tuples(*[st.sampled_from([0.0, 50.0, 300.0])] * 3),
)
def test_no_sequence_of_reports_breaks_the_budgets_or_repeats_an_event_key(reports, max_attempts, limits):
    facts = TaskFacts(max_attempts=max_attempts, max_runtime=limits[0], queued_timeout=limits[1], deadline=limits[2])
    act, now, keys, launches = action(), NOW, set(), 0
    for report, seconds in reports:
        now += dt.timedelta(seconds=seconds)
        if act.terminal:
            break
        decision = step(act, report, facts=facts, now=now)
        for event in decision.events:
            key = (event.attempt, event.phase, event.version)
            assert key not in keys
            keys.add(key)
            assert event.final or event.attempt < max_attempts
        previous = act
        act = after(act, decision)
        assert 1 <= act.attempt <= max_attempts
        assert act.attempt >= previous.attempt
        assert read_state(act).generation >= read_state(previous).generation
        launches = max(launches, read_state(act).generation + 1)
        if act.terminal:
            assert [e.final for e in decision.events if e.phase.terminal] == [True]
            assert decision.finalize_attempt
        elif read_state(act).generation > read_state(previous).generation:
            assert read_state(act).plugin is None
            assert decision.finalize_attempt
    assert launches <= max_attempts + Policy().max_total_system_failures
