"""Cancelling children from inside, aborting runs and actions from outside."""

import pytest


@pytest.mark.submits("cancelling", "main")
def test_a_parent_cancels_one_child_and_goes_on_with_others(outcome):
    assert outcome.outputs == [["cancelled", "2", "3"]]
    assert [a["phase"] for a in outcome.named("sleeper")] == ["ABORTED"]
    assert [a["phase"] for a in outcome.named("quick")] == ["SUCCEEDED", "SUCCEEDED"]


def running_children(seen, n):
    children = [a["id"] for a in seen if a["id"] != "a0" and a["phase"] == "RUNNING"]
    return children if len(children) == n else None


def test_aborting_a_run_ends_all_of_its_actions_with_the_reason(server):
    run = server.start("cancelling", "sleeping_tree", "--n", "2")
    server.until(run, lambda seen: running_children(seen, 2))
    said = server.flyte("abort", "run", run, "--reason", "the weather turned")
    assert run in said.flat
    seen = server.finish(run, 30)
    assert {a["phase"] for a in seen["actions"].values()} == {"ABORTED"}
    assert len(seen["actions"]) == 3
    assert {a["abort_reason"] for a in seen["actions"].values()} == {"the weather turned"}
    again = server.flyte("abort", "run", run)
    assert again.code == 0, "aborting what is aborted already changes nothing"
    assert server.details(run)["root"]["abort_reason"] == "the weather turned"


def test_aborting_one_action_ends_it_with_the_reason_and_its_parent_with_it(server):
    run = server.start("cancelling", "sleeping_tree", "--n", "2")
    child, _ = server.until(run, lambda seen: running_children(seen, 2))
    server.flyte("abort", "action", run, child, "--reason", "this one only")
    seen = server.finish(run, 60)
    aborted = seen["actions"][child]
    assert (aborted["phase"], aborted["abort_reason"]) == ("ABORTED", "this one only")
    assert seen["phase"] in ("ABORTED", "FAILED")
    assert not [a for a in seen["actions"].values() if a["phase"] in ("RUNNING", "QUEUED", "INITIALIZING")]
