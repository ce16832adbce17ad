"""A task to deploy, with a schedule."""

import flyte

env = flyte.TaskEnvironment(name="nightly")


@env.task(triggers=flyte.Trigger(name="at-night", automation=flyte.Cron("0 3 * * *"), description="tidies up"))
def tidy(n: int = 1) -> int:
    return n
