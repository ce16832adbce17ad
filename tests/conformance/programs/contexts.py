"""Custom context goes down to children; the task's own context tells of its run."""

import os

import flyte

env = flyte.TaskEnvironment(name="contexts", env_vars={"FROM_ENVIRONMENT": "yes"})


@env.task
def leaf() -> dict[str, str]:
    return dict(flyte.get_custom_context())


@env.task
def middle() -> dict[str, str]:
    return leaf()


@env.task
def main() -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    with flyte.custom_context(team="birds", colour="blue"):
        inner = middle()
        with flyte.custom_context(colour="red"):
            over = leaf()
    return inner, over, leaf()


@env.task
def about() -> dict[str, str]:
    context = flyte.ctx()
    return {
        "run": context.action.run_name,
        "action": context.action.name,
        "project": context.action.project,
        "domain": context.action.domain,
        "org": context.action.org,
        "attempt": str(context.attempt_number),
        "variable": os.environ["FROM_ENVIRONMENT"],
    }


@env.task
def variable(name: str) -> str:
    return os.environ.get(name, "(none)")


@env.task
def variables() -> list[str]:
    return [os.environ.get("GREETING", "(none)"), variable("GREETING"), variable("FROM_ENVIRONMENT")]
