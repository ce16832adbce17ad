"""Every way to fail that a user's task has, one task each."""

import ctypes
import os
import signal
import sys
import time

import flyte
import flyte.errors
from stamps import count, stamp

env = flyte.TaskEnvironment(name="failures")
idle = flyte.TaskEnvironment(name="idle", resources=flyte.Resources(cpu="10m"))
small = flyte.TaskEnvironment(name="small", resources=flyte.Resources(cpu="100m", memory="250Mi"), depends_on=[env])


class FeatherError(Exception):
    """An error type of the user's own."""


def deep_in_the_nest(x: int) -> int:
    raise FeatherError(f"no feather number {x}")


@env.task
def raises(x: int = 4) -> int:
    print("about to look for a feather", flush=True)
    return deep_in_the_nest(x)


@env.task(retries=2)
def flaky(folder: str) -> str:
    stamp(folder, "flaky")
    if flyte.ctx().attempt_number < 2:
        raise FeatherError(f"attempt {flyte.ctx().attempt_number}")
    return f"succeeded at attempt {flyte.ctx().attempt_number}"


@env.task(retries=2)
def exhausted(folder: str) -> None:
    stamp(folder, "exhausted")
    raise FeatherError(f"attempt {flyte.ctx().attempt_number}")


@env.task(retries=3)
def non_recoverable(folder: str) -> None:
    stamp(folder, "non_recoverable")
    raise flyte.errors.NonRecoverableError("this will never work", code="NoSuchBird")


@env.task(retries=1)
def exits(folder: str, code: int = 3) -> None:
    stamp(folder, "exits")
    print("leaving now", flush=True)
    sys.exit(code)


@env.task
def exits_hard(code: int = 9) -> None:
    print("leaving without a word", flush=True)
    os._exit(code)


@env.task(retries=1)
def segfault(folder: str) -> None:
    stamp(folder, "segfault")
    print("reading address zero", flush=True)
    ctypes.string_at(0)


@small.task(retries=1)
def out_of_memory(folder: str) -> int:
    stamp(folder, "out_of_memory")
    print("filling up", flush=True)
    held = []
    while len(held) < 128:  # never more than a GiB, should nobody stop it
        held.append(bytearray(os.urandom(1) * (8 * 1024 * 1024)))
        time.sleep(0.02)
    return len(held)


@env.task
def killed(folder: str) -> str:
    """Kills itself as somebody else would, the first time only."""
    stamp(folder, "killed")
    if count(folder, "killed") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"launch {count(folder, 'killed')}, attempt {flyte.ctx().attempt_number}"


@idle.task
def waits_to_be_killed(folder: str) -> str:
    """Says its process id; the test kills it."""
    stamp(folder, f"pid-{os.getpid()}")
    first = count(folder, "pid-*") == 1
    while first:
        time.sleep(0.1)
    return "launched again"


@env.task
def bad_output() -> int:
    return "not a number"  # type: ignore[return-value]


@env.task
async def catches() -> str:
    try:
        await raises.aio(8)
    except flyte.errors.RuntimeUserError as error:
        return f"{type(error).__name__}|{error.code}|{error}"
    return "nothing was raised"


@env.task
async def child_fails() -> int:
    return await raises.aio(5)


@env.task
async def catches_memory(folder: str) -> str:
    try:
        await out_of_memory.aio(folder)
    except flyte.errors.OOMError as error:
        return f"OOMError|{error.code}"
    return "nothing was raised"
