"""Every way to fail: the phase, the kind, the code, the number of attempts, and the user's own words and lines."""

import os
import signal

import pytest


def end(action):
    """How an action ended, and each of its attempts."""
    error = action["error"] or {"kind": "", "code": ""}
    return action["phase"], error["kind"], error["code"], action["attempts"]


def tried(action):
    return [(a["phase"], a["kind"], a["code"]) for a in action["each"]]


@pytest.mark.submits("failures", "raises")
def test_an_exception_fails_the_run_with_its_name_its_message_and_the_users_traceback(outcome):
    assert end(outcome.root) == ("FAILED", "USER", "FeatherError", 1)
    assert "no feather number 4" in outcome.error["message"]
    for text in (outcome.error["message"], outcome.logs()):
        assert "deep_in_the_nest" in text and 'failures.py", line' in text, text
    assert "about to look for a feather" in outcome.logs()
    assert outcome.failure()["code"] == "FeatherError"


@pytest.mark.submits("failures", "flaky", "--folder", "{folder}")
def test_a_task_that_fails_twice_and_then_succeeds_tells_of_its_three_attempts(outcome):
    assert outcome.outputs == ["succeeded at attempt 2"]
    assert end(outcome.root) == ("SUCCEEDED", "", "", 3)
    assert tried(outcome.root)[:2] == [("FAILED", "USER", "FeatherError")] * 2
    assert tried(outcome.root)[2][0] == "SUCCEEDED"
    assert [a["attempt"] for a in outcome.root["each"]] == [1, 2, 3]
    assert outcome.stamps("flaky") == 3
    for n in (1, 2):
        assert f"attempt {n - 1}" in outcome.logs(attempt=n)


@pytest.mark.submits("failures", "exhausted", "--folder", "{folder}")
def test_retries_that_are_used_up_end_with_the_last_error(outcome):
    assert end(outcome.root) == ("FAILED", "USER", "FeatherError", 3)
    assert tried(outcome.root) == [("FAILED", "USER", "FeatherError")] * 3
    assert "attempt 2" in outcome.error["message"]
    assert outcome.stamps("exhausted") == 3


@pytest.mark.submits("failures", "non_recoverable", "--folder", "{folder}")
def test_a_non_recoverable_error_is_not_tried_again(outcome):
    assert end(outcome.root) == ("FAILED", "USER", "NoSuchBird", 1)
    assert "this will never work" in outcome.error["message"]
    assert outcome.stamps("non_recoverable") == 1


@pytest.mark.submits("import_error", "main")
def test_a_module_that_does_not_load_fails_with_its_error(outcome):
    assert (outcome.phase, outcome.error["kind"]) == ("FAILED", "USER")
    assert "this module does not load in a task" in outcome.error["message"] + outcome.logs()
    assert "import_error" in outcome.error["message"]


@pytest.mark.submits("missing_package", "main")
def test_a_package_that_is_not_there_is_named(outcome):
    assert (outcome.phase, outcome.error["kind"]) == ("FAILED", "USER")
    assert "a_package_that_nobody_has" in outcome.error["message"]


@pytest.mark.submits("failures", "exits", "--folder", "{folder}")
def test_sys_exit_is_the_users_failure_with_its_number_and_is_tried_again(outcome):
    assert (outcome.phase, outcome.error["kind"], outcome.root["attempts"]) == ("FAILED", "USER", 2)
    assert "3" in outcome.error["code"] + outcome.error["message"]
    assert "leaving now" in outcome.logs()
    assert outcome.stamps("exits") == 2


@pytest.mark.submits("failures", "exits_hard", "--code", "9")
def test_a_process_that_ends_itself_without_a_word_fails_with_its_exit_code_and_last_lines(outcome):
    assert end(outcome.root) == ("FAILED", "USER", "ExitCode9", 1)
    assert "leaving without a word" in outcome.error["message"]


@pytest.mark.submits("failures", "segfault", "--folder", "{folder}")
def test_a_segfault_is_the_users_failure_and_named(outcome):
    assert end(outcome.root) == ("FAILED", "USER", "SIGSEGV", 2)
    assert tried(outcome.root) == [("FAILED", "USER", "SIGSEGV")] * 2
    assert "reading address zero" in outcome.error["message"]
    assert outcome.stamps("segfault") == 2


@pytest.mark.submits("failures", "out_of_memory", "--folder", "{folder}")
def test_more_memory_than_the_limit_is_told_as_such_and_tried_again(outcome):
    assert end(outcome.root) == ("FAILED", "USER", "OOMKilled", 2)
    assert "250 MiB" in outcome.error["message"]
    assert "filling up" in outcome.logs()
    assert outcome.stamps("out_of_memory") == 2
    assert outcome.failure()["class"] == "OOMError"


@pytest.mark.submits("failures", "catches_memory", "--folder", "{folder}")
def test_a_parent_catches_the_out_of_memory_error_of_its_child(outcome):
    assert outcome.outputs == ["OOMError|OOMKilled"]


@pytest.mark.slow
def test_the_watchdog_ends_a_task_over_its_memory_where_there_are_no_cgroups(start_server, tmp_path):
    server = start_server("--memory-limits", "watchdog")
    seen = server.go("failures", "out_of_memory", "--folder", str(tmp_path))
    assert end(seen["root"]) == ("FAILED", "USER", "OOMKilled", 2)
    assert "250 MiB" in seen["root"]["error"]["message"]


@pytest.mark.submits("failures", "killed", "--folder", "{folder}")
def test_a_process_that_is_killed_is_launched_again_and_costs_no_retry(outcome):
    assert outcome.outputs == ["launch 2, attempt 0"]
    assert outcome.stamps("killed") == 2


@pytest.mark.submits("failures", "waits_to_be_killed", "--folder", "{folder}")
def test_a_process_killed_from_outside_is_launched_again(server, started):
    ((run, folder),) = started
    server.until(run, lambda _: list(folder.glob("pid-*")))
    (mark,) = folder.glob("pid-*")
    pid = int(mark.name.removeprefix("pid-").split(".")[0])
    os.kill(pid, signal.SIGKILL)
    seen = server.finish(run)
    assert seen["outputs"] == ["launched again"]
    assert len(list(folder.glob("pid-*"))) == 2


@pytest.mark.submits("failures", "bad_output")
def test_an_output_of_another_type_than_declared_is_the_users_failure(outcome):
    assert (outcome.phase, outcome.error["kind"]) == ("FAILED", "USER")
    assert "not a number" in outcome.error["message"]


@pytest.mark.submits("failures", "catches")
def test_a_parent_catches_the_failure_of_its_child(outcome):
    kind, code, message = outcome.outputs[0].split("|")
    assert (kind, code) == ("RuntimeUserError", "FeatherError")
    assert "no feather number 8" in message
    assert [end(a) for a in outcome.named("raises")] == [("FAILED", "USER", "FeatherError", 1)]


@pytest.mark.submits("failures", "child_fails")
def test_the_failure_of_a_child_that_nobody_catches_fails_its_parent(outcome):
    assert end(outcome.root) == ("FAILED", "USER", "FeatherError", 1)
    assert "no feather number 5" in outcome.error["message"]


@pytest.mark.submits("timeouts", "endless", "--folder", "{folder}")
def test_an_attempt_over_its_run_time_is_ended_and_tried_again(outcome):
    assert outcome.phase == "TIMED_OUT"
    assert (outcome.error["code"], outcome.root["attempts"]) == ("MAX_RUNTIME_EXCEEDED", 2)
    assert [a["phase"] for a in outcome.root["each"]] == ["TIMED_OUT", "TIMED_OUT"]
    # Both attempts were started; on a busy machine the bound may pass before one of them has come to user code.
    assert 1 <= outcome.stamps("endless") <= 2
    assert "sleeping past the bound" in outcome.logs()


@pytest.mark.submits("timeouts", "late", "--folder", "{folder}")
def test_the_deadline_ends_the_action_whatever_retries_remain(outcome):
    assert (outcome.phase, outcome.error["code"]) == ("TIMED_OUT", "DEADLINE_EXCEEDED")
    assert outcome.stamps("late") <= 1


@pytest.mark.submits("timeouts", "in_time")
def test_a_task_within_its_bound_is_left_alone(outcome):
    assert outcome.outputs == ["in time"]


@pytest.mark.submits("timeouts", "catches", "--folder", "{folder}")
def test_a_parent_catches_the_timeout_of_its_child(outcome):
    assert outcome.outputs == ["MaxRuntimeExceededError"]
