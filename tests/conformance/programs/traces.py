"""Traces that are replayed, not run, when their task is tried again."""

import flyte
from stamps import stamp

env = flyte.TaskEnvironment(name="traces")


@flyte.trace
async def draw(folder: str, n: int) -> int:
    stamp(folder, f"draw-{n}")
    return n * 10


@flyte.trace
async def refuse(folder: str) -> int:
    stamp(folder, "refuse")
    raise ValueError("this trace fails")


@env.task
async def child(folder: str, x: int) -> int:
    stamp(folder, "child")
    return x + 1


@env.task(retries=2)
async def main(folder: str) -> list[int]:
    stamp(folder, "main")
    drawn = [await draw(folder, n) for n in range(3)]
    drawn.append(await child(folder, 100))
    if flyte.ctx().attempt_number < 2:
        raise RuntimeError("again, please")
    return drawn


@env.task
async def failing(folder: str) -> str:
    try:
        await refuse(folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"
