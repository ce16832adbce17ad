"""A sync fan-out by flyte.map, and its async twin by asyncio.gather."""

import asyncio

import flyte

env = flyte.TaskEnvironment(name="hello")


@env.task
def square(x: int) -> int:
    return x * x


@env.task
async def cube(x: int) -> int:
    return x**3


@env.task
def main(n: int = 3) -> int:
    squares = list(flyte.map(square, range(n)))
    print(f"squares: {squares}")
    return sum(squares)


@env.task
async def main_async(n: int = 3) -> list[int]:
    return list(await asyncio.gather(*(cube(x) for x in range(n))))


@env.task
async def mixed(n: int = 3) -> list[int]:
    """An async parent of sync and async children."""
    first = await square.aio(n)
    return [first, await cube(n)]
