"""What a fixture holds: a task that succeeds, one that fails, and one that needs a secret."""

import os

import flyte

env = flyte.TaskEnvironment(name="keepsakes", secrets=[flyte.Secret(key="nest-key", as_env_var="NEST_KEY")])


@env.task
def add(x: int, y: int) -> int:
    print("adding")
    return x + y


@env.task
def fail(word: str) -> int:
    raise ValueError(f"no {word} today")


@env.task
def tell() -> str:
    return os.environ["NEST_KEY"]
