"""Parents that wait for children that wait for children, under a budget that holds fewer than the depth."""

import asyncio
import threading

import flyte

env = flyte.TaskEnvironment(name="nesting", resources=flyte.Resources(cpu=1, memory="300Mi"))


@env.task
async def level(depth: int, width: int = 1) -> int:
    """The number of tasks below and with this one."""
    if depth == 0:
        return 1
    return 1 + sum(await asyncio.gather(*(level(depth - 1, width) for _ in range(width))))


@env.task
async def main(depth: int = 4, width: int = 1) -> int:
    return await level(depth, width)


@env.task
async def burning(depth: int = 2) -> int:
    """Burns a CPU on a thread of its own all the while its children run."""
    done = threading.Event()

    def burn() -> None:
        n = 0
        while not done.is_set():
            n += 1

    thread = threading.Thread(target=burn)
    thread.start()
    try:
        if depth == 0:
            return 1
        return 1 + sum(await asyncio.gather(burning(depth - 1), level(0)))
    finally:
        done.set()
        thread.join()
