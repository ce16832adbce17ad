"""Sync and async parents, maps and groups."""

import pytest


@pytest.mark.submits("hello", "main", "--n", "4")
def test_a_sync_parent_maps_over_sync_children(outcome):
    assert outcome.outputs == [14]
    assert [(a["phase"], a["attempts"], a["parent"]) for a in outcome.named("square")] == [("SUCCEEDED", 1, "a0")] * 4
    assert "squares: [0, 1, 4, 9]" in outcome.logs()


@pytest.mark.submits("hello", "main_async", "--n", "5")
def test_an_async_parent_gathers_async_children(outcome):
    assert outcome.outputs == [[0, 1, 8, 27, 64]]
    assert len(outcome.named("cube")) == 5


@pytest.mark.submits("hello", "mixed", "--n", "3")
def test_an_async_parent_calls_a_sync_child_and_an_async_one(outcome):
    assert outcome.outputs == [[9, 27]]


@pytest.mark.submits("maps", "limited", "--n", "4")
def test_map_takes_several_lists_a_limit_and_partial_arguments(outcome):
    assert outcome.outputs == [[0, 2, 4, 6], [11, 12]]
    assert len(outcome.named("add")) == 6


@pytest.mark.submits("maps", "exceptions")
def test_map_returns_the_exceptions_of_failed_items_when_asked(outcome):
    assert outcome.outputs == [["0", "RuntimeUserError:ValueError", "2"]]
    assert sorted(a["phase"] for a in outcome.named("fussy")) == ["FAILED", "SUCCEEDED", "SUCCEEDED"]


@pytest.mark.submits("maps", "groups")
def test_children_tell_the_group_that_they_were_called_in(outcome):
    assert outcome.outputs == [[2, 4, 6, 8]]
    assert sorted(a["group"] for a in outcome.named("add")) == ["", "first", "first", "second"]


@pytest.mark.submits("fanout", "main", "--n", "30")
def test_thirty_children_of_one_group_all_succeed_at_the_first_attempt(outcome):
    assert outcome.outputs == [sum(range(30))]
    assert [(a["phase"], a["attempts"], a["group"]) for a in outcome.named("one")] == [("SUCCEEDED", 1, "wide")] * 30


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_fan_out_of_a_thousand_ends_with_every_value_and_one_attempt_each(server):
    run = server.start("fanout", "main", "--n", "1000")
    seen = server.reader.ask("summary", 800, run=run, wait=True)
    assert seen["outputs"] == [sum(range(1000))]
    assert seen["phases"] == {"SUCCEEDED": 1001}
    assert seen["attempts"] == {"1": 1001}
