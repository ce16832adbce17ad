"""What a task knows of its run, and what goes down to its children."""

import pytest


@pytest.mark.submits("contexts", "main")
def test_custom_context_goes_down_to_children_and_their_children(outcome):
    assert outcome.outputs == [{"team": "birds", "colour": "blue"}, {"team": "birds", "colour": "red"}, {}]


@pytest.mark.submits("contexts", "about", options=("--name", "about-itself"))
def test_a_task_knows_its_run_its_action_its_project_and_its_environment(outcome):
    about = outcome.outputs[0]
    assert outcome.run == "about-itself"
    assert about["run"] == "about-itself"
    assert (about["action"], about["attempt"], about["variable"]) == ("a0", "0", "yes")
    configuration = (outcome.server.data / "flyte.yaml").read_text()
    for key in ("project", "domain", "org"):
        assert f"{key}: {about[key]}" in configuration


@pytest.mark.submits("contexts", "variables", options=("--env", "GREETING=hello there", "--name", "with-env"))
def test_variables_of_a_run_reach_the_root_and_its_children(outcome):
    assert outcome.outputs == [["hello there", "hello there", "yes"]]


@pytest.mark.submits("reports", "main", "--word", "plumage")
@pytest.mark.submits("reports", "sync")
def test_reports_are_read_back_by_the_client(outcomes):
    replaced, logged = outcomes
    text = replaced.server.reader.ask("report", run=replaced.run)
    assert "<h1>plumage</h1>" in text and "in a tab" in text and "later" in text
    assert "<h2>nest</h2>" in logged.server.reader.ask("report", run=logged.run)


@pytest.mark.submits("reports", "then_fails")
def test_the_report_of_a_failed_task_is_kept(outcome):
    assert (outcome.phase, outcome.error["code"]) == ("FAILED", "ValueError")
    assert "before the fall" in outcome.server.reader.ask("report", run=outcome.run)
