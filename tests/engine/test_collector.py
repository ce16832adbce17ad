"""What is collected, and what never is."""

import datetime as dt

import pytest

from wingbeat.engine.collector import expired
from wingbeat.resources import Condition, ObjectMeta, TaskAction, TaskActionSpec, TaskActionStatus

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
TTL = dt.timedelta(hours=1)


def action(name: str, *, ended_minutes_ago: float | None, parent: str | None = "a0", run: str = "r") -> TaskAction:
    conditions = []
    if ended_minutes_ago is not None:
        at = NOW - dt.timedelta(minutes=ended_minutes_ago)
        conditions = [Condition(type="Succeeded", status="True", last_transition_time=at)]
    return TaskAction(
        metadata=ObjectMeta(name=f"{run}-{name}", creation_timestamp=NOW - dt.timedelta(hours=9)),
        spec=TaskActionSpec(
            run_name=run, project="p", domain="d", action_name=name, parent_action_name=None if name == "a0" else parent
        ),
        status=TaskActionStatus(conditions=conditions),
    )


def names(actions: list[TaskAction], ttl: dt.timedelta = TTL) -> list[str]:
    return [f"{id.run}/{id.action}" for id in expired(actions, ttl=ttl, now=NOW)]


def test_a_run_is_collected_whole_once_all_of_it_has_been_finished_for_the_time_to_live_children_first():
    run = [action("a0", ended_minutes_ago=61), action("c1", ended_minutes_ago=90), action("c2", ended_minutes_ago=62)]
    assert names(run)[-1] == "r/a0"
    assert sorted(names(run)) == ["r/a0", "r/c1", "r/c2"]


@pytest.mark.parametrize("minutes", [None, 59.0])
def test_nothing_is_collected_under_a_parent_that_lives_or_has_just_ended(minutes):
    assert names([action("a0", ended_minutes_ago=minutes), action("c1", ended_minutes_ago=600)]) == []


def test_a_live_child_keeps_its_run():
    assert names([action("a0", ended_minutes_ago=600), action("c1", ended_minutes_ago=None)]) == []


def test_runs_are_judged_apart_also_when_their_actions_have_the_same_names():
    old, new = action("a0", ended_minutes_ago=600, run="old"), action("a0", ended_minutes_ago=1, run="new")
    assert names([old, new]) == ["old/a0"]


def test_a_time_to_live_of_nothing_collects_at_once():
    assert names([action("a0", ended_minutes_ago=0)], dt.timedelta(0)) == ["r/a0"]


def test_what_is_being_deleted_is_not_deleted_again():
    one = action("a0", ended_minutes_ago=600)
    one.metadata.deletion_timestamp = NOW
    assert names([one]) == []
    assert names([]) == []
