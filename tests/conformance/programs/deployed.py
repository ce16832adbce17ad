"""A task to deploy, with a trigger, that is then run by its name and found from another task."""

from datetime import datetime

import flyte
import flyte.remote

env = flyte.TaskEnvironment(name="deployed")


@env.task
def double(x: int) -> int:
    return x * 2


@env.task
def main(x: int = 20, y: int = 2) -> int:
    return double(x) + y


@env.task(
    triggers=flyte.Trigger(
        name="at-dawn", automation=flyte.Cron("0 6 * * *"), inputs={"when": flyte.TriggerTime, "x": 3}
    )
)
def dawn(when: datetime, x: int = 1) -> str:
    return f"{when.isoformat()} {x}"
