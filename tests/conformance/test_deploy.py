"""Tasks that are deployed: listed, run by their names, called by other tasks, with triggers that are kept."""

import pytest


@pytest.fixture(scope="module")
def deployed(server):
    """The version that was deployed."""
    version = "v1"
    result = server.flyte("deploy", "--version", version, "deployed.py", "env")
    assert "deployed.main" in result.flat and "deployed.dawn" in result.flat
    return version


def test_a_deployed_task_runs_by_its_name(server, deployed):
    result = server.flyte("run", "--name", "by-name", "deployed-task", "deployed.main", "--x", "5")
    assert "by-name" in result.flat
    seen = server.finish("by-name")
    assert seen["outputs"] == [12]
    assert [(a["name"], a["phase"], a["attempts"]) for a in seen["actions"].values() if a["parent"]] == [
        ("deployed.double", "SUCCEEDED", 1)
    ]


def test_a_deployed_task_runs_by_its_version_with_its_defaults(server, deployed):
    server.flyte("run", "--name", "by-version", "deployed-task", f"deployed.main:{deployed}")
    assert server.finish("by-version")["outputs"] == [42]


def test_deployed_tasks_are_listed_and_shown(server, deployed):
    listed = server.flyte("get", "task")
    for name in ("deployed.main", "deployed.double", "deployed.dawn"):
        assert name in listed.flat
    shown = server.flyte("get", "task", "deployed.main", deployed)
    assert "deployed.main" in shown.flat and deployed in shown.flat


def test_deploying_the_same_version_again_changes_nothing(server, deployed):
    assert server.flyte("deploy", "--version", deployed, "deployed.py", "env").code == 0


def test_another_task_calls_a_deployed_one(server, deployed):
    seen = server.go("referring", "main", "--x", "8")
    assert seen["outputs"] == [16]
    assert [(a["name"], a["phase"]) for a in seen["actions"].values() if a["parent"]] == [
        ("deployed.double", "SUCCEEDED")
    ]


def test_the_trigger_of_a_deployed_task_is_kept_and_shown(server, deployed):
    listed = server.flyte("get", "trigger")
    assert "at-dawn" in listed.flat and "deployed.dawn" in listed.flat
    shown = server.flyte("get", "trigger", "deployed.dawn", "at-dawn")
    assert "0 6 * * *" in shown.text


def test_a_task_or_version_that_was_never_deployed_is_named(server, deployed):
    missing = server.flyte("run", "deployed-task", "deployed.nobody", check=False)
    assert missing.code != 0 and "deployed.nobody" in missing.flat
    missing = server.flyte("run", "deployed-task", "deployed.main:v99", check=False)
    assert missing.code != 0 and "v99" in missing.flat


@pytest.mark.submits("hello", "main", "--n", "3", options=("--name", "for-commands", "--label", "bird=wren"))
def test_a_finished_run_is_run_again_with_the_same_and_with_other_inputs(server, outcome):
    first = outcome.run
    assert outcome.outputs == [5]
    server.flyte("rerun", first, "--name", "again-same")
    server.flyte("rerun", first, "--name", "again-other", "--n", "5")
    assert server.finish("again-same")["outputs"] == [5]
    assert server.finish("again-other")["outputs"] == [30]
