"""A module that loads at the client and cannot be loaded in the task."""

import os

import flyte

env = flyte.TaskEnvironment(name="import_error")

if "ACTION_NAME" in os.environ:
    raise RuntimeError("this module does not load in a task")


@env.task
def main() -> int:
    return 1
