"""A wide fan-out of trivial children."""

import asyncio

import flyte

env = flyte.TaskEnvironment(name="fanout")


@env.task
async def one(i: int) -> int:
    return i


@env.task
async def main(n: int = 10) -> int:
    with flyte.group("wide"):
        return sum(await asyncio.gather(*(one(i) for i in range(n))))
