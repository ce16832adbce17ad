"""Cached tasks: the second run is a hit; another input, another version or no cache is not."""

import flyte
from stamps import stamp

env = flyte.TaskEnvironment(name="cached")


@env.task(cache="auto")
def slow_square(x: int, folder: str) -> int:
    stamp(folder, "slow_square")
    return x * x


@env.task(cache=flyte.Cache(behavior="override", version_override="v1", ignored_inputs=("folder",)))
def ignoring(x: int, folder: str) -> int:
    stamp(folder, "ignoring")
    return -x


@env.task
def main(folder: str, x: int = 6) -> list[int]:
    return [slow_square(x, folder), slow_square(x + 1, folder), ignoring(x, folder)]


@env.task(cache="auto")
def root(folder: str, x: int = 2) -> int:
    stamp(folder, "root")
    return x + 1
