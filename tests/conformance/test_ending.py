"""Cancelling children from inside, aborting runs and actions from outside."""

import os
import pathlib
import threading
import time
import uuid

import pytest


@pytest.mark.submits("cancelling", "main")
def test_a_parent_cancels_one_child_and_goes_on_with_others(outcome):
    assert outcome.outputs == [["cancelled", "2", "3"]]
    assert [a["phase"] for a in outcome.named("sleeper")] == ["ABORTED"]
    assert [a["phase"] for a in outcome.named("quick")] == ["SUCCEEDED", "SUCCEEDED"]


def running_children(seen, n):
    children = [a["id"] for a in seen if a["id"] != "a0" and a["phase"] == "RUNNING"]
    return children if len(children) == n else None


def all_over(seen):
    return all(a["phase"] in ("SUCCEEDED", "FAILED", "ABORTED", "TIMED_OUT") for a in seen)


@pytest.mark.submits("cancelling", "sleeping_tree", "--n", "2", options=("--name", "tree-to-abort"))
def test_aborting_a_run_ends_all_of_its_actions_with_the_reason(server, started):
    ((run, _),) = started
    server.until(run, lambda seen: running_children(seen, 2))
    said = server.flyte("abort", "run", run, "--reason", "the weather turned")
    assert run in said.flat
    server.until(run, all_over)
    seen = server.finish(run, 30)
    assert {a["phase"] for a in seen["actions"].values()} == {"ABORTED"}
    assert len(seen["actions"]) == 3
    assert {a["abort_reason"] for a in seen["actions"].values()} == {"the weather turned"}
    again = server.flyte("abort", "run", run)
    assert again.code == 0, "aborting what is aborted already changes nothing"
    assert server.details(run)["root"]["abort_reason"] == "the weather turned"


@pytest.mark.submits("cancelling", "sleeping_tree", "--n", "2", options=("--name", "tree-to-prune"))
def test_aborting_one_action_ends_it_with_the_reason_and_its_parent_with_it(server, started):
    ((run, _),) = started
    child, _ = server.until(run, lambda seen: running_children(seen, 2))
    server.flyte("abort", "action", run, child, "--reason", "this one only")
    # The sibling is ended a moment after its parent: a process has some seconds to go by itself.
    server.until(run, all_over)
    seen = server.finish(run, 60)
    aborted = seen["actions"][child]
    assert (aborted["phase"], aborted["abort_reason"]) == ("ABORTED", "this one only")
    assert seen["phase"] in ("ABORTED", "FAILED")
    assert {a["phase"] for name, a in seen["actions"].items() if name != "a0"} == {"ABORTED"}


def processes_with(marker: str) -> list[int]:
    """Every process of this machine whose environment or command line holds `marker`, but for the client's."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if marker.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_aborting_a_run_leaves_none_of_two_hundred_processes(server, tmp_path):
    marker = f"MARKER_OF_THE_SWARM={uuid.uuid4().hex}"
    run = server.start("swarm", "main", "--folder", str(tmp_path), options=("--env", marker))
    server.until(run, lambda _: len(list(tmp_path.glob("ready.*"))) == 5, 120)
    assert len(processes_with(marker)) >= 195
    server.flyte("abort", "run", run, "--reason", "winter")
    aborted_at = time.monotonic()
    while left := processes_with(marker):
        assert time.monotonic() - aborted_at < 10, left
        threading.Event().wait(0.1)
    seen = server.finish(run)
    ends = {name: (a["phase"], a["abort_reason"], a["error"]) for name, a in seen["actions"].items()}
    assert all(end == ("ABORTED", "winter", None) for end in ends.values()), ends
    assert len(seen["actions"]) == 6
