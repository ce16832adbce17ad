"""A run that says who and where it is; the same name is run in two projects at once."""

import time

import flyte
from stamps import count, stamp

env = flyte.TaskEnvironment(name="who")


@env.task
def child() -> str:
    return flyte.ctx().action.project


@env.task
def main(folder: str, others: int = 2) -> list[str]:
    """Waits until `others` runs are in here at the same time."""
    stamp(folder, "here")
    while count(folder, "here") < others:
        time.sleep(0.05)
    return [flyte.ctx().action.project, flyte.ctx().action.run_name, child()]
