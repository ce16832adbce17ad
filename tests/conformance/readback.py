"""What the SDK reads back, as JSON: the client's eyes of these tests.

`readback.py CONFIG RUN [--wait] [--project P]` prints one run. `readback.py CONFIG --serve [--project P]` answers
requests (one JSON object a line on stdin) as they can be answered, many at once: starting a client for each question
costs more than the question. Only the SDK's public objects are used, so this is what a user would see.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pathlib
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import flyte
import flyte.io
from flyte import remote
from flyteidl2.common import phase_pb2
from flyteidl2.workflow import run_definition_pb2

flyte.io.DataFrame  # noqa: B018  # outputs of this type can be read only where it was looked at once
KINDS = {0: "", 1: "USER", 2: "SYSTEM"}


def plain(value: Any) -> Any:
    """JSON where it is JSON already, else what Python shows."""
    try:
        return json.loads(json.dumps(value))
    except TypeError:
        return repr(value)


def phase_name(number: int) -> str:
    return phase_pb2.ActionPhase.Name(number).removeprefix("ACTION_PHASE_")


def shown(details: remote.ActionDetails) -> dict[str, Any]:
    pb = details.pb2
    return {
        "id": details.name,
        "name": details.task_name or pb.metadata.trace.name or pb.metadata.condition.name,
        "parent": pb.metadata.parent,
        "group": pb.metadata.group,
        "type": run_definition_pb2.ActionType.Name(pb.metadata.action_type).removeprefix("ACTION_TYPE_"),
        "phase": details.phase.name,
        "attempts": details.attempts,
        "cache": pb.status.cache_status,
        "error": {
            "code": pb.error_info.code,
            "kind": KINDS.get(pb.error_info.kind, "?"),
            "message": pb.error_info.message,
        }
        if pb.HasField("error_info")
        else None,
        "abort_reason": pb.abort_info.reason,
        "duration_ms": pb.status.duration_ms,
        "each": [
            {
                "attempt": a.attempt,
                "phase": phase_name(a.phase),
                "code": a.error_info.code,
                "kind": KINDS.get(a.error_info.kind, "?"),
                "message": a.error_info.message,
                "logs": a.logs_available,
                "phases": [phase_name(t.phase) for t in a.phase_transitions],
                "reasons": [e.message for e in a.cluster_events],
            }
            for a in pb.attempts
        ],
    }


async def details(run: str, wait: bool = False) -> dict[str, Any]:
    """A run, its outputs and every one of its actions."""
    it = await remote.Run.get.aio(run)
    if wait:
        await it.wait.aio(quiet=True)
    actions: dict[str, Any] = {}
    async for action in remote.Action.listall.aio(for_run_name=run):
        full = await remote.ActionDetails.get_details.aio(action.action_id)
        actions[full.name] = shown(full)
    root = actions["a0"]
    outputs: Any = None
    if root["phase"] == "SUCCEEDED":
        it = await remote.Run.get.aio(run)
        outputs = [plain(v) for v in await it.outputs.aio()]
    return {"run": run, "phase": root["phase"], "outputs": outputs, "root": root, "actions": actions}


async def summary(run: str, wait: bool = False) -> dict[str, Any]:
    """Counts only, by one listing: for runs of very many actions."""
    it = await remote.Run.get.aio(run)
    if wait:
        await it.wait.aio(quiet=True)
    phases: Counter[str] = Counter()
    attempts: Counter[str] = Counter()
    async for action in remote.Action.listall.aio(for_run_name=run):
        phases[action.phase.name] += 1
        attempts[str(action.pb2.status.attempts)] += 1
    it = await remote.Run.get.aio(run)
    outputs = [plain(v) for v in await it.outputs.aio()] if it.action.phase.name == "SUCCEEDED" else None
    return {"run": run, "phase": it.action.phase.name, "outputs": outputs, "phases": phases, "attempts": attempts}


async def actions(run: str) -> list[dict[str, Any]]:
    """The actions so far, without waiting for anything."""
    return [
        {"id": a.name, "phase": a.phase.name, "type": a.pb2.metadata.action_type, "task": a.task_name}
        async for a in remote.Action.listall.aio(for_run_name=run)
    ]


async def runs(**filters: Any) -> list[str]:
    """The names of the runs that `Run.listall` finds with these filters."""
    return [r.name async for r in remote.Run.listall.aio(limit=500, **filters)]


async def logs(run: str, action: str = "a0", attempt: int | None = None, user_only: bool = False) -> str:
    it = await remote.Action.get.aio(run_name=run, name=action)
    return "".join([line async for line in it.get_logs.aio(attempt=attempt, filter_system=user_only)])


async def report(run: str, action: str = "a0", attempt: int | None = None) -> str:
    it = await remote.Action.get.aio(run_name=run, name=action)
    return str(await it.get_report.aio(attempt=attempt))


async def io(run: str, action: str = "a0") -> dict[str, Any]:
    it = await remote.ActionDetails.get.aio(run_name=run, name=action)
    given, made = await it.inputs(), await it.outputs()
    return {"inputs": {k: plain(v) for k, v in given.items()}, "outputs": [plain(v) for v in made]}


async def opened(run: str) -> list[Any]:
    """Outputs with their contents: files as text, folders as {name: text}, data frames as lists of rows."""
    import pandas as pd

    it = await remote.Run.get.aio(run)
    result: list[Any] = []
    for value in await it.outputs.aio():
        if isinstance(value, flyte.io.File):
            result.append(pathlib.Path(await value.download()).read_text())
        elif isinstance(value, flyte.io.Dir):
            with tempfile.TemporaryDirectory() as target:
                root = pathlib.Path(await value.download(target))
                result.append({f.name: f.read_text() for f in sorted(root.rglob("*")) if f.is_file()})
        elif isinstance(value, flyte.io.DataFrame):
            frame = await value.open(pd.DataFrame).all()
            result.append(json.loads(frame.to_json(orient="values")))
        else:
            result.append(plain(value))
    return result


async def failure(run: str) -> dict[str, Any]:
    """What `raise_for_status` raises, with the class that the SDK made of it."""
    it = await remote.Run.get.aio(run)
    try:
        await it.raise_for_status.aio()
    except Exception as error:
        return {"class": type(error).__name__, "code": getattr(error, "code", ""), "message": str(error)}
    return {"class": "", "code": "", "message": ""}


async def signal(run: str, action: str, value: Any) -> None:
    it = await remote.Action.get.aio(run_name=run, name=action)
    await remote.Condition(pb2=it.pb2).signal.aio(value)


OPERATIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    f.__name__: f for f in (details, summary, actions, logs, report, io, opened, failure, signal, runs)
}


async def answer(request: dict[str, Any]) -> None:
    number, operation = request.pop("id"), request.pop("op")
    try:
        reply = {"id": number, "value": await OPERATIONS[operation](**request)}
    except Exception:
        reply = {"id": number, "error": traceback.format_exc()}
    print(json.dumps(reply), flush=True)


async def serve() -> None:
    loop = asyncio.get_running_loop()
    tasks = set()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        task = loop.create_task(answer(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("run", nargs="?")
    parser.add_argument("--op", default="details")
    parser.add_argument("--wait", action="store_true")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--project")
    given = parser.parse_args()
    await flyte.init_from_config.aio(given.config, project=given.project)
    if given.serve:
        await serve()
    else:
        more = {"wait": True} if given.wait else {}
        print(json.dumps(await OPERATIONS[given.op](given.run, **more)))


if __name__ == "__main__":
    asyncio.run(main())
