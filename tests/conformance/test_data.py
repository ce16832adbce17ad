"""Files, folders and data frames that tasks made in temporary folders open for tasks and for clients, ever after."""

import json
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
PRODUCED = [
    "kept",
    {"leaf.txt": "leaf", "part-0.txt": "part 0", "part-1.txt": "part 1"},
    [[i, f"w{i}"] for i in range(5)],
]


def open_in_a_new_shell(server, run):
    """The contents of a run's outputs, by a client that starts now and has only the written flyte.yaml."""
    assert not [name for name in server.env if "AWS" in name or "FSSPEC" in name]
    reader = str(HERE / "readback.py")
    result = server.run(sys.executable, reader, str(server.data / "flyte.yaml"), run, "--op", "opened", cwd=server.home)
    return json.loads(result.out.splitlines()[-1])


@pytest.mark.submits("offloaded", "within", "--text", "grüße through a file")
def test_files_folders_and_frames_go_from_task_to_task(outcome):
    text = "grüße through a file"
    parts = {"part-0.txt": "part 0", "part-1.txt": "part 1", "leaf.txt": "leaf"}
    assert outcome.outputs == [text, text, parts, 6 + 3]
    assert {a["attempts"] for a in outcome.actions.values()} == {1}


@pytest.mark.submits("offloaded", "nested", "--n", "2")
def test_files_in_lists_and_dicts_open_in_tasks(outcome):
    assert outcome.outputs == [["file 0", "file 1"], "file 0"]


@pytest.mark.submits("offloaded", "produce")
def test_outputs_open_in_a_new_shell_that_has_only_the_written_configuration(outcome):
    assert open_in_a_new_shell(outcome.server, outcome.run) == PRODUCED


@pytest.mark.submits(
    "offloaded", "consume",
    "--file", "{folder}/given.txt", "--folder", "{folder}/given", "--frame", "{folder}/frame",
)  # fmt: skip
def test_local_files_folders_and_tables_are_taken_as_inputs(outcome):
    assert outcome.outputs == ["given by hand", {"one.txt": "one"}, 3]


@pytest.mark.timeout(240)
def test_outputs_open_again_after_a_restart_and_new_runs_start(start_server):
    server = start_server()
    run = server.start("offloaded", "produce")
    assert server.finish(run)["phase"] == "SUCCEEDED"
    endpoint = (server.data / "flyte.yaml").read_text()
    server.stop()
    server.up()
    assert (server.data / "flyte.yaml").read_text() == endpoint, "the port is taken again"
    assert open_in_a_new_shell(server, run) == PRODUCED
    again = server.finish(run)
    assert (again["phase"], again["root"]["attempts"]) == ("SUCCEEDED", 1)
    assert server.go("hello", "mixed", "--n", "2")["outputs"] == [[4, 8]]
