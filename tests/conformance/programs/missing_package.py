"""A package that the client has and the task's Python has not."""

import os

import flyte

if "ACTION_NAME" in os.environ:
    import a_package_that_nobody_has  # noqa: F401

env = flyte.TaskEnvironment(name="missing_package")


@env.task
def main() -> int:
    return 1
