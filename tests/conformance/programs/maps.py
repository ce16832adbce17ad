"""flyte.map with a limit, with partial arguments and with failing items; groups, nested too."""

import asyncio
import functools

import flyte

env = flyte.TaskEnvironment(name="maps")


@env.task
def add(x: int, y: int) -> int:
    return x + y


@env.task
def fussy(x: int) -> int:
    if x == 1:
        raise ValueError(f"{x} is refused")
    return x


@env.task
def limited(n: int = 4) -> tuple[list[int], list[int]]:
    return list(flyte.map(add, range(n), range(n), concurrency=2)), list(
        flyte.map(functools.partial(add, y=10), [1, 2])
    )


@env.task
def exceptions() -> list[str]:
    return [
        f"{type(r).__name__}:{r.code}" if isinstance(r, flyte.errors.RuntimeUserError) else str(r)
        for r in flyte.map(fussy, range(3), return_exceptions=True)
    ]


@env.task
async def groups() -> list[int]:
    with flyte.group("first"):
        first = await asyncio.gather(add.aio(1, 1), add.aio(2, 2))
    with flyte.group("second"):
        second = await add.aio(3, 3)
    return [*first, second, await add.aio(4, 4)]
