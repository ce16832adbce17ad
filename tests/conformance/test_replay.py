"""What a later attempt finds: traces and children that are not run again, checkpoints, the cache."""

import pytest


@pytest.mark.submits("traces", "main", "--folder", "{folder}")
def test_traces_and_children_run_once_though_their_parent_is_tried_three_times(outcome):
    assert outcome.outputs == [[0, 10, 20, 101]]
    assert outcome.root["attempts"] == 3
    assert {label: outcome.stamps(label) for label in ("main", "draw-0", "draw-1", "draw-2", "child")} == {
        "main": 3, "draw-0": 1, "draw-1": 1, "draw-2": 1, "child": 1,
    }  # fmt: skip
    traces = [a for a in outcome.actions.values() if a["type"] == "TRACE"]
    assert [(t["name"], t["phase"], t["parent"]) for t in traces] == [("draw", "SUCCEEDED", "a0")] * 3
    assert len(outcome.actions) == 5, "a retried parent adds no second child"


@pytest.mark.submits("traces", "failing", "--folder", "{folder}")
def test_a_failing_trace_raises_in_its_task_and_is_recorded_as_failed(outcome):
    assert "this trace fails" in outcome.outputs[0]
    (trace,) = [a for a in outcome.actions.values() if a["type"] == "TRACE"]
    assert (trace["name"], trace["phase"]) == ("refuse", "FAILED")


@pytest.mark.submits("checkpoints", "main")
def test_checkpoints_carry_work_over_three_attempts(outcome):
    assert outcome.outputs == [6, ["0@0", "1@0", "2@1", "3@1", "4@2", "5@2"]]
    assert outcome.root["attempts"] == 3
    assert [a["phase"] for a in outcome.root["each"]] == ["FAILED", "FAILED", "SUCCEEDED"]


@pytest.mark.submits("checkpoints", "sync")
def test_checkpoints_work_in_sync_tasks(outcome):
    assert outcome.outputs == ["2 steps, attempt 2"]


HIT, POPULATED = 2, 3


def test_a_second_run_takes_its_children_from_the_cache(server, tmp_path):
    first = server.go("cached", "main", "--folder", str(tmp_path))
    assert first["outputs"] == [[36, 49, -6]]
    stamps = {p.name.split(".")[0]: 0 for p in tmp_path.iterdir()}
    assert len(list(tmp_path.iterdir())) == 3, stamps
    again = server.go("cached", "main", "--folder", str(tmp_path))
    assert again["outputs"] == [[36, 49, -6]]
    assert len(list(tmp_path.iterdir())) == 3, "nothing ran again"
    children = [a for a in again["actions"].values() if a["parent"] == "a0"]
    assert [(a["phase"], a["cache"]) for a in children] == [("SUCCEEDED", HIT)] * 3
    assert {a["cache"] for a in first["actions"].values() if a["parent"] == "a0"}.isdisjoint({HIT})


def test_the_cache_serves_a_root_task_and_ignores_the_inputs_that_it_is_told_to(server, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir(), two.mkdir()
    assert server.go("cached", "root", "--folder", str(one))["outputs"] == [3]
    again = server.go("cached", "root", "--folder", str(one))
    assert (again["outputs"], again["root"]["cache"]) == ([3], HIT)
    assert len(list(one.glob("root.*"))) == 1
    server.go("cached", "ignoring", "--x", "77", "--folder", str(one))
    hit = server.go("cached", "ignoring", "--x", "77", "--folder", str(two))
    assert (hit["outputs"], hit["root"]["cache"]) == ([-77], HIT)
    assert not list(two.iterdir())
