"""This computer: zygotes, sessions, limits, the budget of CPU, memory and GPU, log files. For tasks and apps alike."""

from wingbeat.machine.budget import Budget, BudgetSettings
from wingbeat.machine.local import LocalMachine
from wingbeat.machine.logs import LogLine, append_note, follow_log, log_files, read_log, remove_log, tail_log
from wingbeat.machine.protocol import LaunchError, LaunchSpec, Machine, ProcessState, ProcessStatus

__all__ = [
    "Budget",
    "BudgetSettings",
    "LaunchError",
    "LaunchSpec",
    "LocalMachine",
    "LogLine",
    "Machine",
    "ProcessState",
    "ProcessStatus",
    "append_note",
    "follow_log",
    "log_files",
    "read_log",
    "remove_log",
    "tail_log",
]
