"""What the end of a task's process means: its error file first, then its outputs, then how it ended.

The SDK's runtime exits with 0 even when the task failed, so the files decide; the exit tells only where there is none.
"""

from __future__ import annotations

import signal as signals

import msgspec
from flyteidl2.core import execution_pb2
from google.protobuf.message import DecodeError

from wingbeat.machine import ProcessState, ProcessStatus
from wingbeat.resources import ErrorInfo, ErrorKind

TAIL_LINES = 20
SHUTDOWN = "shutdown"
"""Why the machine ended a process when the server was told to stop."""
_CRASHES = frozenset(
    {signals.SIGSEGV, signals.SIGABRT, signals.SIGBUS, signals.SIGFPE, signals.SIGILL, signals.SIGSYS, signals.SIGTRAP}
)
NO_SPACE = "No space left on device"
_LATE_START = "Controller thread failed to start in time"


class Outcome(msgspec.Struct, frozen=True):
    """`error` None is success."""

    error: ErrorInfo | None = None
    retryable: bool = False


def read_error_document(data: bytes) -> Outcome:
    """The outcome an `error.pb` tells of. One that cannot be read is a system failure."""
    document = execution_pb2.ErrorDocument()
    try:
        document.ParseFromString(data)
    except DecodeError as error:
        return _system("ErrorFileBadFormat", f"the task's error file cannot be decoded: {error}")
    if not document.HasField("error"):
        return _system("ErrorFileBadFormat", "the task's error file holds no error")
    container = document.error
    recoverable = container.kind == execution_pb2.ContainerError.RECOVERABLE
    kind = {
        execution_pb2.ExecutionError.USER: ErrorKind.USER,
        execution_pb2.ExecutionError.SYSTEM: ErrorKind.SYSTEM,
    }.get(container.origin, ErrorKind.USER)
    info = ErrorInfo(
        message=container.message or "the task failed without a message",
        code=container.code or "Unknown",
        kind=kind,
        recoverable=recoverable,
    )
    return Outcome(error=info, retryable=recoverable)


def classify_exit(status: ProcessStatus, *, memory_limit: int, tail: list[str]) -> Outcome:
    """The outcome of a process that left neither an error file nor outputs. `tail`: its last log lines."""
    last = "\n".join(tail)
    shown = f"\nlast lines of its log:\n{last}" if last else ""
    if status.out_of_memory:
        limit = f" of {memory_limit / 2**20:.0f} MiB" if memory_limit else ""
        message = f"the task used more memory than its limit{limit}; ask for more with flyte.Resources{shown}"
        return _user("OOMKilled", message)
    if status.killed == SHUTDOWN:
        return _system("ServerStopped", "the server was stopped while this attempt ran; it starts again")
    if status.disk_full:
        return disk_full()
    if status.state is ProcessState.LOST:
        return _system("ProcessLost", f"the task's process is gone and nobody saw how it ended{shown}")
    if status.signal is not None:
        name = signals.Signals(status.signal).name if status.signal in set(signals.Signals) else str(status.signal)
        if status.signal in _CRASHES:
            return _user(name, f"the task crashed with {name}{shown}")
        return _system("ProcessKilled", f"the task's process was ended by {name} from outside{shown}")
    if status.exit_code == 0:
        return _user(
            "OutputsMissing",
            f"the task's process ended with exit code 0 but wrote no outputs (did it call exit itself?){shown}",
        )
    if any(_LATE_START in line for line in tail):
        return _system("StartTimeout", f"the task's process was too slow to start on a busy machine{shown}")
    return _user(f"ExitCode{status.exit_code}", f"the task's process ended with exit code {status.exit_code}{shown}")


def broke_with_supervisor(status: ProcessStatus, outcome: Outcome) -> bool:
    """Whether the task failed only because it printed when its supervisor, which reads what it prints, had died."""
    error = outcome.error
    return status.state is ProcessState.LOST and error is not None and error.code == BrokenPipeError.__name__


def disk_full() -> Outcome:
    return _system(
        "DiskFull", "the disk was full when the task ended without outputs; it starts again once there is room"
    )


def _user(code: str, message: str) -> Outcome:
    return Outcome(error=ErrorInfo(message=message, code=code, kind=ErrorKind.USER), retryable=True)


def _system(code: str, message: str) -> Outcome:
    return Outcome(error=ErrorInfo(message=message, code=code, kind=ErrorKind.SYSTEM), retryable=True)
