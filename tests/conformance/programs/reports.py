"""Reports: replaced, logged to and flushed, with a tab; by an async and a sync task, and by one that then fails."""

import flyte
import flyte.report

env = flyte.TaskEnvironment(name="reports")


@env.task(report=True)
async def main(word: str = "plumage") -> str:
    await flyte.report.replace.aio(f"<h1>{word}</h1>")
    await flyte.report.flush.aio()
    tab = flyte.report.get_tab("more")
    tab.log("<p>in a tab</p>")
    await flyte.report.log.aio("<p>later</p>", do_flush=True)
    return word


@env.task(report=True)
def sync(word: str = "nest") -> str:
    flyte.report.log(f"<h2>{word}</h2>", do_flush=True)
    return word


@env.task(report=True)
async def then_fails() -> str:
    await flyte.report.log.aio("<p>before the fall</p>", do_flush=True)
    raise ValueError("after the report")
