"""Tasks that ask for what there is not, and one that is fine if it is called as it wants."""

import asyncio

import flyte

env = flyte.TaskEnvironment(name="plain")
base = flyte.Image.from_debian_base()
packages = flyte.TaskEnvironment(name="packages", image=base.with_pip_packages("no-such-package-at-all>=3"))
system = flyte.TaskEnvironment(name="system", image=base.with_apt_packages("no-such-tool"))
older = flyte.TaskEnvironment(name="older", image="ghcr.io/flyteorg/flyte:py3.7-v2.0.0")
secretive = flyte.TaskEnvironment(name="secretive", secrets=[flyte.Secret(key="no-such-secret")])
mounting = flyte.TaskEnvironment(name="mounting", secrets=[flyte.Secret(key="key", mount="/etc/flyte/secrets")])
hooked = flyte.TaskEnvironment(name="hooked")


@env.task
def main(n: int, words: list[str]) -> int:
    return n


@env.task
async def slow() -> None:
    await asyncio.sleep(600)


@packages.task
def with_packages() -> None: ...


@system.task
def with_tools() -> None: ...


@older.task
def with_old_python() -> None: ...


@secretive.task
def with_secret() -> None: ...


@mounting.task
def with_secret_file() -> None: ...


@hooked.task
async def with_webhook() -> None:
    hook = flyte.ConditionWebhook(url="https://example.com/hook")
    condition = await flyte.new_condition.aio("ask", webhook=hook)
    await condition.wait.aio()
