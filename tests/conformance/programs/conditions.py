"""Conditions: signalled from outside with each type, and one that nobody signals."""

import datetime
import pathlib

import flyte
import flyte.errors

env = flyte.TaskEnvironment(name="conditions")


@env.task
async def main(kind: str = "bool") -> str:
    data_type = {"bool": bool, "int": int, "float": float, "str": str}[kind]
    condition = await flyte.new_condition.aio(f"ask-{kind}", prompt=f"a {kind}, please", data_type=data_type)
    value = await condition.wait.aio()
    return f"{type(value).__name__}={value}"


@env.task
async def unanswered() -> str:
    condition = await flyte.new_condition.aio("nobody", timeout=datetime.timedelta(seconds=1))
    try:
        return f"answered {await condition.wait.aio()}"
    except flyte.errors.ConditionTimedoutError as error:
        return type(error).__name__


@env.task
async def aside() -> None:
    """Nothing; once it has ended, what was asked for before has been heard of."""


@env.task(retries=1)
async def asks_again(folder: str) -> str:
    """The first attempt fails while its condition waits; the second one meets it there, and leaves a stamp."""
    condition = await flyte.new_condition.aio("still-there", data_type=int)
    if flyte.ctx().attempt_number == 0:
        raise RuntimeError("on purpose, with the question asked")
    await aside()
    (pathlib.Path(folder) / "asked-again").touch()
    return f"{await condition.wait.aio()}"
