"""Bounds on time: each attempt's run time, and all attempts together."""

import time
from datetime import timedelta

import flyte
import flyte.errors
from stamps import stamp

env = flyte.TaskEnvironment(name="timeouts")


@env.task(timeout=flyte.Timeout(max_runtime=timedelta(seconds=2)), retries=1)
def endless(folder: str) -> None:
    stamp(folder, "endless")
    print("sleeping past the bound", flush=True)
    time.sleep(600)


@env.task(timeout=flyte.Timeout(deadline=timedelta(seconds=3)), retries=100)
def late(folder: str) -> None:
    stamp(folder, "late")
    time.sleep(600)


@env.task(timeout=60)
def in_time() -> str:
    return "in time"


@env.task
async def catches(folder: str) -> str:
    try:
        await endless.aio(folder)
    except flyte.errors.TaskTimeoutError as error:
        return type(error).__name__
    return "nothing was raised"
