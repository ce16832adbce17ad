"""What a plugin sees of the world: one attempt's context, its paths, its variables."""

from wingbeat.execution.context import TaskExecutionContext
from wingbeat.execution.environment import Contract, task_environment
from wingbeat.execution.paths import AttemptPaths, BadOutputBase, attempt_paths, output_prefix, shard
from wingbeat.execution.templates import per_retry_key, render

__all__ = [
    "AttemptPaths",
    "BadOutputBase",
    "Contract",
    "TaskExecutionContext",
    "attempt_paths",
    "output_prefix",
    "per_retry_key",
    "render",
    "shard",
    "task_environment",
]
