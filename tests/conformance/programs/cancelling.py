"""Children that are cancelled by their parent, while others go on."""

import asyncio

import flyte

env = flyte.TaskEnvironment(name="cancelling", resources=flyte.Resources(cpu="10m"))


@env.task
async def sleeper(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return f"slept {seconds}"


@env.task
async def quick(x: int) -> int:
    return x + 1


@env.task
async def main() -> list[str]:
    slow = asyncio.create_task(sleeper(600.0))
    first = await quick(1)
    slow.cancel()
    seen = []
    try:
        await slow
    except asyncio.CancelledError:
        seen.append("cancelled")
    return [*seen, str(first), str(await quick(2))]


@env.task
async def sleeping_tree(n: int = 2) -> list[str]:
    return list(await asyncio.gather(*(sleeper(600.0 + i) for i in range(n))))
