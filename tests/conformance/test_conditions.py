"""Runs that wait for a word from outside."""

import pytest

PAUSED = "PAUSED"


def paused_condition(server, run):
    """The name of the run's action that waits to be signalled."""
    return server.until(run, lambda seen: next((a["id"] for a in seen if a["phase"] == PAUSED), None))


@pytest.mark.submits("conditions", "main", "--kind", "int")
def test_a_condition_that_is_signalled_by_the_command_gives_its_value_to_the_task(server, started):
    ((run, _),) = started
    action = paused_condition(server, run)
    listed = server.flyte("get", "condition", run)
    assert "ask-int" in listed.flat
    refused = server.flyte("signal", "condition", run, action, "not-a-number", check=False)
    assert refused.code != 0
    said = server.flyte("signal", "condition", run, action, "42")
    assert "a int, please" in said.flat and "has been signaled" in said.flat
    seen = server.finish(run)
    assert seen["outputs"] == ["int=42"]
    (condition,) = [a for a in seen["actions"].values() if a["type"] == "CONDITION"]
    assert (condition["name"], condition["phase"], condition["parent"]) == ("ask-int", "SUCCEEDED", "a0")


@pytest.mark.submits("conditions", "main", "--kind", "bool")
@pytest.mark.submits("conditions", "main", "--kind", "float")
@pytest.mark.submits("conditions", "main", "--kind", "str")
def test_each_type_of_condition_takes_its_value(server, started):
    answers = [(True, "bool=True"), (2.5, "float=2.5"), ("go on", "str=go on")]
    for (run, _), (value, _) in zip(started, answers, strict=True):
        server.reader.ask("signal", run=run, action=paused_condition(server, run), value=value)
    for (run, _), (_, expected) in zip(started, answers, strict=True):
        assert server.finish(run)["outputs"] == [expected]


@pytest.mark.submits("conditions", "asks_again", "--folder", "{folder}")
def test_a_condition_that_an_earlier_attempt_made_gives_its_value_to_the_later_one(server, started):
    ((run, folder),) = started
    action = paused_condition(server, run)
    server.until(run, lambda seen: (folder / "asked-again").exists())
    server.reader.ask("signal", run=run, action=action, value=42)
    assert server.finish(run)["outputs"] == ["42"]


@pytest.mark.submits("conditions", "unanswered")
def test_a_condition_that_nobody_signals_times_out_in_its_task(outcome):
    assert outcome.outputs == ["ConditionTimedoutError"]
    (condition,) = [a for a in outcome.actions.values() if a["type"] == "CONDITION"]
    assert condition["phase"] == "TIMED_OUT"


@pytest.mark.submits("hello", "mixed", "--n", "3")
def test_signalling_what_is_not_a_condition_or_not_there_says_so(server, outcome):
    run = outcome.run
    assert "is not a signalable condition" in server.flyte("signal", "condition", run, "a0", "1", check=False).flat
    missing = server.flyte("signal", "condition", run, "nosuchaction", "1", check=False)
    assert missing.code != 0 and "nosuchaction" in missing.flat
