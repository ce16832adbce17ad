"""`open_outputs.py CONFIG RUN`: the contents of a run's outputs, its root's report and its actions, as JSON."""

import asyncio
import json
import pathlib
import sys
import tempfile

import flyte
import flyte.io
import pandas as pd
from flyte import remote

flyte.io.DataFrame  # noqa: B018  # outputs of this type can be read only where it was looked at once


async def content(value):
    if isinstance(value, flyte.io.File):
        return pathlib.Path(await value.download()).read_text()
    if isinstance(value, flyte.io.Dir):
        with tempfile.TemporaryDirectory() as target:
            root = pathlib.Path(await value.download(target))
            return {f.name: f.read_text() for f in sorted(root.rglob("*")) if f.is_file()}
    if isinstance(value, flyte.io.DataFrame):
        return (await value.open(pd.DataFrame).all())["n"].tolist()
    return value


async def main(config: str, name: str) -> None:
    await flyte.init_from_config.aio(config)
    run = await remote.Run.get.aio(name)
    await run.wait.aio(quiet=True)
    actions = {}
    async for action in remote.Action.listall.aio(for_run_name=name):
        details = await remote.ActionDetails.get_details.aio(action.action_id)
        task = (details.task_name or "").rsplit(".", 1)[-1]
        actions[task] = {"id": details.name, "phase": details.phase.name, "attempts": details.attempts,
                         "cache": details.pb2.status.cache_status}  # fmt: skip
        if details.pb2.HasField("error_info"):
            actions[task]["error"] = details.pb2.error_info.message
    outputs, report = [], ""
    if actions and run.phase == "succeeded":
        run = await remote.Run.get.aio(name)
        outputs = [await content(v) for v in await run.outputs.aio()]
        if "main" in actions:
            report = str(await (await remote.Action.get.aio(run_name=name, name="a0")).get_report.aio())
    print(json.dumps({"phase": run.phase, "outputs": outputs, "report": report, "actions": actions}))


asyncio.run(main(*sys.argv[1:]))
