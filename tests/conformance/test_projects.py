"""Projects keep runs of the same name apart."""

import json
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent


def test_two_runs_of_the_same_name_in_two_projects_go_on_at_once(server, tmp_path):
    for project in ("north", "south"):
        server.flyte("create", "project", "--id", project, "--name", project.title())
    listed = server.flyte("get", "project")
    assert "north" in listed.flat and "south" in listed.flat
    assert "North" in server.flyte("get", "project", "north").flat

    for project in ("north", "south"):
        options = ("--project", project, "--domain", "development", "--name", "twin")
        assert server.start("who", "main", "--folder", str(tmp_path), "--others", "2", options=options) == "twin"
    for project in ("north", "south"):
        reader = (sys.executable, str(HERE / "readback.py"), str(server.data / "flyte.yaml"), "twin")
        result = server.run(*reader, "--wait", "--project", project)
        seen = json.loads(result.out.splitlines()[-1])
        assert seen["outputs"] == [[project, "twin", project]]
        assert [(a["phase"], a["attempts"]) for a in seen["actions"].values()] == [("SUCCEEDED", 1)] * 2
        assert "twin" in server.flyte("get", "run", "--project", project, "--domain", "development").flat


@pytest.mark.submits("simple_types", "no_value", options=("--name", "taken"))
def test_a_name_that_is_taken_is_refused_and_the_first_run_is_left_alone(server, outcome):
    assert outcome.run == "taken"
    second = server.flyte("run", "--name", "taken", "simple_types.py", "no_value", check=False)
    assert second.code != 0
    assert "taken" in second.flat and "exists" in second.flat
    assert server.details("taken")["phase"] == "SUCCEEDED"


def test_a_project_that_does_not_exist_is_named(server):
    refused = server.flyte("run", "--project", "nowhere", "simple_types.py", "no_value", check=False)
    assert refused.code != 0 and "nowhere" in refused.flat
