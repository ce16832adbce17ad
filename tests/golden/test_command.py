"""What the `flyte` command prints when the server refuses: each file in expected/ says what, which thing, what next."""

import re

import pytest

GOOD = ("--n", "3", "--words", '["a"]')
LONG = "a" * 31

REFUSED = {
    "unknown-project": ("run", "--project", "nowhere", "mistakes.py", "main", *GOOD),
    "unknown-domain": ("run", "--domain", "moon", "mistakes.py", "main", *GOOD),
    "unknown-task": ("run", "deployed-task", "plain.nobody"),
    "unknown-version": ("run", "deployed-task", "nightly.tidy:v99"),
    "long-run-name": ("run", "--name", LONG, "mistakes.py", "main", *GOOD),
    "upper-case-run-name": ("run", "--name", "Report", "mistakes.py", "main", *GOOD),
    "leading-digit-run-name": ("run", "--name", "2024-report", "mistakes.py", "main", *GOOD),
    "taken-run-name": ("run", "--name", "taken", "mistakes.py", "main", *GOOD),
    "missing-input": ("run", "mistakes.py", "main", "--n", "3"),
    "wrong-type": ("run", "mistakes.py", "main", "--n", "three", "--words", '["a"]'),
    "wrong-json-type": ("run", "mistakes.py", "main", "--n", "3", "--words", '{"a": 1}'),
    "raw-data-outside": ("run", "--raw-data-path", "/elsewhere", "mistakes.py", "main", *GOOD),
    "other-python": ("run", "mistakes.py", "with_old_python"),
    "missing-packages": ("run", "mistakes.py", "with_packages"),
    "apt-layer": ("run", "mistakes.py", "with_tools"),
    "recover": ("rerun", "taken", "--recover"),
    "unknown-run": ("get", "run", "no-such-run"),
}


# What the client stores before it asks for the run itself.
BEFOREHAND = {
    "missing-packages": ("uploads/", "offloaded-inputs/"),
    "apt-layer": ("uploads/", "offloaded-inputs/"),
    "other-python": ("offloaded-inputs/",),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_shown_in_words_and_leaves_nothing(server, golden, name):
    with server.unchanged(*BEFOREHAND.get(name, ())):
        result = server.flyte(*REFUSED[name])
    golden(name, result)
    # `flyte rerun` ends with 0 when it was refused.
    assert result.code != 0 or REFUSED[name][0] == "rerun"


def test_a_trigger_is_kept_and_said_to_be_not_scheduled_yet(server, golden):
    deployed = server.flyte("deploy", "--version", "v1", "nightly.py", "env")
    assert deployed.code == 0
    golden("trigger-listed", server.flyte("get", "trigger"))
    shown = server.flyte("get", "trigger", "nightly.tidy", "at-night")
    golden("trigger-shown", "\n".join(line for line in shown.text.splitlines() if "description" in line))
    log = (server.data / "server.log").read_text()
    assert "trigger at-night of task nightly.tidy is not scheduled yet" in log


def test_a_condition_with_a_webhook_fails_and_says_why(server, golden):
    assert server.flyte("run", "--name", "hooked", "mistakes.py", "with_webhook").code == 0
    assert server.phase_at_the_end("hooked") == "ACTION_PHASE_FAILED"
    error = shown_error(server, "hooked", "a0")
    condition = re.search(r"condition action (\w+)", error)
    assert condition, error
    golden("condition-webhook", shown_error(server, "hooked", condition[1]))


def shown_error(server, run, action):
    """The part of an action that tells its error, as `flyte get action` shows it."""
    shown = server.flyte("get", "action", run, action).text
    error = re.search(r"'errorInfo': \{(.*?)\n *\}", shown, re.DOTALL)
    assert error, shown
    return error[1]


@pytest.mark.parametrize("task", ["with_secret", "with_secret_file"])
def test_a_run_that_asks_for_what_there_is_not_fails_in_words(server, golden, task):
    name = task.replace("_", "-")
    assert server.flyte("run", "--name", name, "mistakes.py", task).code == 0
    assert server.phase_at_the_end(name) == "ACTION_PHASE_FAILED"
    golden(name, shown_error(server, name, "a0"))
