"""A task that runs another that was deployed before."""

import flyte
import flyte.remote

env = flyte.TaskEnvironment(name="referring")


@env.task
async def main(x: int = 5) -> int:
    task = flyte.remote.Task.get("deployed.double", auto_version="latest")
    return int(await task(x=x))
