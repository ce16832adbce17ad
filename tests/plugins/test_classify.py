"""What the end of a process means, row by row."""

import pytest
from flyteidl2.core import execution_pb2

from wingbeat.machine import ProcessState, ProcessStatus
from wingbeat.plugins.process.classify import broke_with_supervisor, classify_exit, read_error_document
from wingbeat.plugins.process.quantities import parse_quantity
from wingbeat.plugins.process.traceback import last_traceback


def document(*, recoverable=True, origin=execution_pb2.ExecutionError.USER, code="ValueError", message="boom") -> bytes:
    kind = execution_pb2.ContainerError.RECOVERABLE if recoverable else execution_pb2.ContainerError.NON_RECOVERABLE
    error = execution_pb2.ContainerError(code=code, message=message, kind=kind, origin=origin)
    return execution_pb2.ErrorDocument(error=error).SerializeToString()


def test_an_error_file_gives_code_kind_and_whether_to_retry():
    outcome = read_error_document(document())
    assert (outcome.error.code, outcome.error.kind, outcome.retryable) == ("ValueError", "USER", True)
    assert read_error_document(document(recoverable=False)).retryable is False
    assert read_error_document(document(origin=execution_pb2.ExecutionError.SYSTEM)).error.kind == "SYSTEM"


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b""])
def test_an_error_file_that_says_nothing_is_a_system_failure(data):
    outcome = read_error_document(data)
    assert (outcome.error.code, outcome.error.kind, outcome.retryable) == ("ErrorFileBadFormat", "SYSTEM", True)


ENDS = [
    (ProcessStatus(state=ProcessState.EXITED, exit_code=3), "ExitCode3", "USER"),
    (ProcessStatus(state=ProcessState.EXITED, exit_code=0), "OutputsMissing", "USER"),
    (ProcessStatus(state=ProcessState.EXITED, signal=11), "SIGSEGV", "USER"),
    (ProcessStatus(state=ProcessState.EXITED, signal=6), "SIGABRT", "USER"),
    (ProcessStatus(state=ProcessState.EXITED, signal=9), "ProcessKilled", "SYSTEM"),
    (ProcessStatus(state=ProcessState.EXITED, signal=15), "ProcessKilled", "SYSTEM"),
    (ProcessStatus(state=ProcessState.EXITED, signal=9, out_of_memory=True), "OOMKilled", "USER"),
    (ProcessStatus(state=ProcessState.EXITED, signal=15, killed="shutdown"), "ServerStopped", "SYSTEM"),
    (ProcessStatus(state=ProcessState.LOST), "ProcessLost", "SYSTEM"),
]


@pytest.mark.parametrize(("status", "code", "kind"), ENDS, ids=[row[1] for row in ENDS])
def test_an_end_without_files_is_classified_by_how_it_came(status, code, kind):
    outcome = classify_exit(status, memory_limit=200 * 2**20, tail=["last words"])
    assert (outcome.error.code, outcome.error.kind, outcome.retryable) == (code, kind, True)
    if code != "ServerStopped":
        assert "last words" in outcome.error.message


@pytest.mark.parametrize(
    ("state", "code", "broke"),
    [
        (ProcessState.LOST, "BrokenPipeError", True),
        (ProcessState.LOST, "ValueError", False),
        (ProcessState.EXITED, "BrokenPipeError", False),
    ],
)
def test_a_pipe_that_broke_with_the_supervisor_is_not_the_tasks_failure(state, code, broke):
    outcome = read_error_document(document(code=code))
    assert broke_with_supervisor(ProcessStatus(state=state), outcome) is broke


def test_a_start_that_was_too_slow_is_the_machines_fault():
    status = ProcessStatus(state=ProcessState.EXITED, exit_code=1)
    outcome = classify_exit(status, memory_limit=0, tail=["TimeoutError: Controller thread failed to start in time"])
    assert (outcome.error.code, outcome.error.kind) == ("StartTimeout", "SYSTEM")


def test_the_limit_is_named_when_memory_ran_out():
    status = ProcessStatus(state=ProcessState.EXITED, signal=9, out_of_memory=True)
    assert "200 MiB" in classify_exit(status, memory_limit=200 * 2**20, tail=[]).error.message


def test_the_last_traceback_is_found_without_the_frames_of_the_sdk():
    lines = [
        "Traceback (most recent call last):",
        '  File "x.py", line 1, in old',
        "KeyError: 'older'",
        "[r][a0] [flyte] ERROR Task failed with error: boom",
        "Traceback (most recent call last):",
        '  File "/v/site-packages/flyte/_task.py", line 711, in execute',
        "    v = await self.func(*args, **kwargs)",
        "        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        '  File "/data/attempts/r-a0-1-0-x/work/././mine.py", line 50, in step',
        '    raise RuntimeError("boom")',
        "RuntimeError: boom",
        "[flyte] WARNING Flyte runtime completed",
    ]
    assert last_traceback(lines) == "\n".join(
        [
            "Traceback (most recent call last):",
            '  File "mine.py", line 50, in step',
            '    raise RuntimeError("boom")',
            "RuntimeError: boom",
        ]
    )
    assert last_traceback(["nothing here"]) == ""


@pytest.mark.parametrize(
    ("text", "number"),
    [("2", 2), ("500m", 0.5), ("1Gi", 2**30), ("1.5G", 1.5e9), ("2e3", 2000), (".5", 0.5), ("1Ki", 1024)],
)
def test_quantities_are_those_of_kubernetes(text, number):
    assert parse_quantity(text) == number


@pytest.mark.parametrize("text", ["", "one", "1 Gb", "-1", "1mi", "1Gib"])
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(text)
