"""Projects keep runs of the same name apart."""

import concurrent.futures
import json
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent


def test_two_runs_of_the_same_name_in_two_projects_go_on_at_once(server, tmp_path):
    def submit(project):
        server.flyte("create", "project", "--id", project, "--name", project.title())
        options = ("--project", project, "--domain", "development", "--name", "twin")
        return server.start("who", "main", "--folder", str(tmp_path), "--others", "2", options=options)

    def read(project):
        reader = (sys.executable, str(HERE / "readback.py"), str(server.data / "flyte.yaml"), "twin")
        result = server.run(*reader, "--wait", "--project", project)
        return json.loads(result.out.splitlines()[-1])

    projects = ["north", "south"]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        assert list(pool.map(submit, projects)) == ["twin", "twin"]
        for project, seen in zip(projects, pool.map(read, projects), strict=True):
            assert seen["outputs"] == [[project, "twin", project]]
            assert [(a["phase"], a["attempts"]) for a in seen["actions"].values()] == [("SUCCEEDED", 1)] * 2
    assert server.flyte("get", "project").flat.count("North") == 1
    assert "South" in server.flyte("get", "project", "south").flat
    assert "twin" in server.flyte("get", "run", "--project", "north", "--domain", "development").flat
    assert "twin" not in server.flyte("get", "run", "--limit", "200").flat


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
