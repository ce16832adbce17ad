"""What each reading command of the CLI prints."""

import pytest

FINISHED = pytest.mark.submits("hello", "main", "--n", "3", options=("--name", "for-commands", "--label", "bird=wren"))


@pytest.fixture
def run(outcomes):
    """The finished run with children and logs that FINISHED asks for."""
    assert outcomes[0].outputs == [5]
    return outcomes[0].run


def test_whoami_answers(server):
    result = server.flyte("whoami")
    assert result.code == 0 and "subject" in result.text.lower()


@FINISHED
def test_get_run_lists_and_shows_runs(server, run):
    assert run in server.flyte("get", "run").flat
    shown = server.flyte("get", "run", run)
    assert run in shown.flat and "succeeded" in shown.flat.lower() and "hello.main" in shown.flat


@FINISHED
def test_get_run_filters_by_phase_task_and_label(server, run):
    chosen = ("--in-phase", "succeeded", "--task-name", "hello.main", "--with-label", "bird=wren")
    assert run in server.flyte("get", "run", "--limit", "200", *chosen).flat
    for one in ({"in_phase": ["succeeded"]}, {"task_name": "hello.main"}, {"with_labels": {"bird": "wren"}}):
        assert run in server.reader.ask("runs", **one), one
    for other in ({"in_phase": ["aborted"]}, {"task_name": "hello.nobody"}, {"with_labels": {"bird": "rook"}}):
        assert run not in server.reader.ask("runs", **other), other


@FINISHED
def test_get_action_lists_and_shows_actions(server, run):
    listed = server.flyte("get", "action", run)
    assert "a0" in listed.flat and listed.flat.count("square") == 3
    shown = server.flyte("get", "action", run, "a0")
    assert "hello.main" in shown.flat and "succeeded" in shown.flat.lower()


@FINISHED
def test_get_io_shows_inputs_and_outputs_of_a_run_and_of_an_action(server, run):
    shown = server.flyte("get", "io", run)
    assert "n" in shown.flat and "3" in shown.flat and "5" in shown.flat
    child = next(a["id"] for a in server.details(run)["actions"].values() if a["parent"])
    shown = server.reader.ask("io", run=run, action=child)
    assert shown["outputs"] == [shown["inputs"]["x"] ** 2]


@FINISHED
def test_get_logs_prints_what_the_task_printed(server, run):
    assert "squares: [0, 1, 4]" in server.flyte("get", "logs", run).text
    assert "squares: [0, 1, 4]" in server.flyte("get", "logs", run, "a0", "--filter-system", "--attempt", "1").text


@pytest.mark.submits("failures", "raises")
def test_get_logs_of_a_failed_attempt_hold_the_users_traceback(server, outcome):
    assert outcome.phase == "FAILED"
    text = server.flyte("get", "logs", outcome.run).text
    assert "about to look for a feather" in text
    assert "deep_in_the_nest" in text and "FeatherError" in text


def test_follow_streams_the_logs_of_a_run_until_its_end(server):
    result = server.flyte("run", "--follow", "--name", "followed", "hello.py", "main", "--n", "4")
    assert "squares: [0, 1, 4, 9]" in result.text
    assert server.details("followed")["outputs"] == [14]


def test_follow_of_a_failing_run_shows_its_error(server):
    result = server.flyte("run", "--follow", "failures.py", "raises", check=False)
    assert "no feather number 4" in result.flat


@FINISHED
def test_the_code_of_a_run_is_read_back(server, run, tmp_path):
    server.flyte("get", "code", run, "--dest", str(tmp_path))
    (found,) = tmp_path.rglob("hello.py")
    assert "def square" in found.read_text()


@FINISHED
def test_a_run_or_action_that_does_not_exist_is_named(server, run):
    for command in (("get", "run", "nosuchrun"), ("get", "logs", "nosuchrun"),
                    ("get", "action", run, "nosuchaction")):  # fmt: skip
        result = server.flyte(*command, check=False)
        assert result.code != 0 and command[-1] in result.flat, (command, result.text)
    assert "there is no run 'nosuchrun'" in server.flyte("rerun", "nosuchrun", check=False).flat  # it exits with 0


def test_inputs_that_are_missing_or_of_the_wrong_type_never_become_a_run(server):
    missing = server.flyte("run", "simple_types.py", "extremes", check=False)
    assert missing.code != 0 and "--big" in missing.flat
    wrong = server.flyte("run", "simple_types.py", "no_value", "--n", "many", check=False)
    assert wrong.code != 0 and "many" in wrong.flat
