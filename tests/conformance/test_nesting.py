"""Parents that wait for their children never stop them from running, however small the machine's budget."""

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "options",
    [("--cpus", "2"), ("--memory", "600Mi")],
    ids=["a-budget-of-2-cpus", "memory-for-2-tasks"],
)
def test_nesting_five_deep_ends_on_a_budget_that_holds_two(start_server, options):
    server = start_server(*options)
    seen = server.go("nesting", "main", "--depth", "4", timeout=200)
    assert seen["outputs"] == [5]
    assert [(a["phase"], a["attempts"]) for a in seen["actions"].values()] == [("SUCCEEDED", 1)] * 6


def test_a_tree_that_is_deep_and_wide_ends_on_two_cpus(start_server):
    server = start_server("--cpus", "2")
    seen = server.go("nesting", "main", "--depth", "3", "--width", "2", timeout=250)
    assert seen["outputs"] == [15]
    assert {(a["phase"], a["attempts"]) for a in seen["actions"].values()} == {("SUCCEEDED", 1)}


def test_parents_that_burn_cpu_while_their_children_run_do_not_starve_them(start_server):
    server = start_server("--cpus", "2")
    seen = server.go("nesting", "burning", "--depth", "2", timeout=250)
    assert seen["outputs"] == [5]
    assert {(a["phase"], a["attempts"]) for a in seen["actions"].values()} == {("SUCCEEDED", 1)}


def test_tasks_that_are_started_anew_instead_of_forked_do_the_same(start_server, tmp_path):
    server = start_server("--mode", "spawn")
    seen = server.go("hello", "main", "--n", "6", timeout=250)
    assert seen["outputs"] == [55]
    assert [(a["phase"], a["attempts"]) for a in seen["actions"].values()] == [("SUCCEEDED", 1)] * 7
    flaky = server.go("failures", "flaky", "--folder", str(tmp_path))
    assert (flaky["outputs"], flaky["root"]["attempts"]) == (["succeeded at attempt 2"], 3)
