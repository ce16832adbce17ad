"""A run of many actions that stamp their starts and ends: plain ones, flaky ones that are retried, and nested ones.

Each action appends to a file of its own in `folder`, one line an event: `<start|end> <attempt> <pid> <monotonic ns>`.
"""

import asyncio
import os
import pathlib
import time

import flyte

env = flyte.TaskEnvironment(name="flock", resources=flyte.Resources(cpu="250m"))


class Stamped:
    def __init__(self, folder: str) -> None:
        context = flyte.ctx()
        self.attempt = int(os.environ["FLYTE_ATTEMPT_NUMBER"])
        self.path = pathlib.Path(folder) / context.action.name

    def write(self, event: str) -> None:
        line = f"{event} {self.attempt} {os.getpid()} {time.monotonic_ns()}\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(handle, line.encode())
        os.close(handle)

    def __enter__(self) -> "Stamped":
        self.write("start")
        return self

    def __exit__(self, *_: object) -> None:
        self.write("end")


@env.task
def leaf(i: int, folder: str, seconds: float) -> int:
    with Stamped(folder):
        time.sleep(seconds)
        return i


@env.task(retries=2)
def flaky(i: int, folder: str, seconds: float) -> int:
    """Fails at its first attempt, by its own fault."""
    with Stamped(folder) as stamped:
        time.sleep(seconds)
        if stamped.attempt == 0:
            raise RuntimeError(f"flaky {i} fails at first")
        return i


@env.task
async def nested(i: int, folder: str, seconds: float) -> int:
    """Is worth `i`, by way of three children."""
    with Stamped(folder):
        return i + sum(await asyncio.gather(*(leaf.aio(v, folder, seconds) for v in (-1, 0, 1))))


@env.task
async def main(folder: str, n: int = 300, seconds: float = 0.01) -> int:
    """`n` actions with this one: a tenth of them flaky, as many nested ones (with their children)."""
    with Stamped(folder):
        left, calls, i = n - 1, [], 0
        while left > 0:
            if i % 7 == 3 and left >= 4:
                calls.append(nested(i, folder, seconds))
                left -= 4
            elif i % 7 == 5:
                calls.append(flaky.aio(i, folder, seconds))
                left -= 1
            else:
                calls.append(leaf.aio(i, folder, seconds))
                left -= 1
            i += 1
        return sum(await asyncio.gather(*calls))


def expected(n: int) -> int:
    left, total, i = n - 1, 0, 0
    while left > 0:
        left -= 4 if i % 7 == 3 and left >= 4 else 1
        total += i
        i += 1
    return total


@env.task
def patient(folder: str, gate: str) -> int:
    """Its pid, once there is a file at `gate`."""
    with Stamped(folder):
        while not pathlib.Path(gate).exists():
            time.sleep(0.05)
        return os.getpid()


@env.task
async def waiting(folder: str, gate: str, n: int = 2) -> list[int]:
    """Waits for children that take their time: its watch is open all the while."""
    with Stamped(folder):
        return list(await asyncio.gather(*(patient.aio(folder, gate) for _ in range(n))))
