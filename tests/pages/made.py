"""Runs made up for tests and for looking at pages: real records in a real database, files in a real storage."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from flyteidl2.core.literals_pb2 import Literal
from flyteidl2.task.common_pb2 import Inputs, Outputs

from wingbeat.control import LogLine
from wingbeat.database import Records
from wingbeat.resources import (
    ActionEvent,
    ActionId,
    ActionPhase,
    ActionRecord,
    CacheStatus,
    ErrorInfo,
    Reason,
    RunId,
    TaskId,
)
from wingbeat.storage import FolderStorage

START = dt.datetime(2031, 5, 6, 7, 8, 9, tzinfo=dt.UTC)
P = ActionPhase


class MemoryLogs:
    """Logs that a test writes to, and ends."""

    def __init__(self) -> None:
        self.texts: dict[tuple[ActionId, int], list[LogLine]] = {}
        self.ended: set[tuple[ActionId, int]] = set()
        self.changed = asyncio.Event()
        self.followers = 0

    def write(self, id: ActionId, attempt: int, *texts: str, originator: str = "user") -> None:
        self.texts.setdefault((id, attempt), []).extend(LogLine(START, originator, text) for text in texts)
        self.changed.set()

    def end(self, id: ActionId, attempt: int) -> None:
        self.ended.add((id, attempt))
        self.changed.set()

    async def available(self, id: ActionId, attempt: int) -> bool:
        return (id, attempt) in self.texts

    async def read(self, id: ActionId, attempt: int, *, follow: bool) -> AsyncIterator[LogLine]:
        key = (id, attempt)
        at = 0
        self.followers += follow
        try:
            while True:
                self.changed.clear()
                batch = self.texts.get(key, [])[at:]
                at += len(batch)
                for line in batch:
                    yield line
                if batch:
                    continue
                if not follow or key in self.ended:
                    return
                await self.changed.wait()
        finally:
            self.followers -= follow


def literal(value: Any) -> Literal:
    """A literal of a plain Python value; dicts become msgpack, as dataclasses do."""
    made = Literal()
    if isinstance(value, Literal):
        return value
    if value is None:
        made.scalar.none_type.SetInParent()
    elif isinstance(value, bool):
        made.scalar.primitive.boolean = value
    elif isinstance(value, int):
        made.scalar.primitive.integer = value
    elif isinstance(value, float):
        made.scalar.primitive.float_value = value
    elif isinstance(value, str):
        made.scalar.primitive.string_value = value
    elif isinstance(value, list):
        made.collection.SetInParent()
        made.collection.literals.extend(literal(each) for each in value)
    else:
        made.scalar.binary.value = msgspec.msgpack.encode(value)
        made.scalar.binary.tag = "msgpack"
    return made


def file_literal(uri: str) -> Literal:
    made = Literal()
    made.scalar.blob.uri = uri
    return made


class Maker:
    """Makes runs. Times go on by themselves unless `at` says seconds since START."""

    def __init__(self, records: Records, storage: FolderStorage, logs: MemoryLogs) -> None:
        self.records = records
        self.storage = storage
        self.logs = logs

    def run_id(self, name: str, project: str = "shop", domain: str = "development") -> RunId:
        return RunId("local", project, domain, name)

    async def action(
        self,
        run: RunId,
        action: str,
        *,
        parent: str = "",
        at: float = 0.0,
        phase: ActionPhase | None = None,
        **fields: Any,
    ) -> ActionId:
        id = run.action(action)
        title = fields.pop("name", action)
        record = ActionRecord(
            id=id,
            parent=parent,
            name=title,
            task=TaskId("local", run.project, run.domain, f"env.{title}", "v1"),
            task_type="python",
            created_at=START + dt.timedelta(seconds=at),
            **fields,
        )
        await self.records.insert(record)
        if phase is not None:
            await self.go(id, phase, at=at)
        return id

    async def root(self, run_name: str = "run-1", **fields: Any) -> ActionId:
        run = self.run_id(run_name, fields.pop("project", "shop"))
        fields = {"name": "main", "created_by": "ada", "source": 2, **fields}
        return await self.action(run, "a0", **fields)

    async def go(
        self, id: ActionId, phase: ActionPhase, *, at: float = 0.0, took: float = 1.0, attempt: int = 1, **fields: Any
    ) -> None:
        """Bring an action to `phase` the way it would get there."""
        begin = START + dt.timedelta(seconds=at)
        way = [P.QUEUED] if phase in (P.QUEUED, P.WAITING_FOR_RESOURCES) else [P.QUEUED, P.INITIALIZING]
        if phase.terminal or phase is P.RUNNING:
            way.append(P.RUNNING)
        if phase not in way:
            way.append(phase)
        events = []
        for index, each in enumerate(way):
            last = each is phase
            when = begin + dt.timedelta(seconds=took if each.terminal else 0.02 * index)
            events.append(ActionEvent(id=id, attempt=attempt, phase=each, occurred_at=when, **(fields if last else {})))
        await self.records.apply(events)

    async def inputs(self, uri: str, context: dict[str, str] | None = None, **values: Any) -> str:
        message = Inputs()
        for name, value in values.items():
            message.literals.add(name=name).value.CopyFrom(literal(value))
        for key, text in (context or {}).items():
            message.context.add(key=key, value=text)
        full = self.storage.join(uri, "inputs.pb")
        await self.storage.put(full, message.SerializeToString())
        return full

    async def outputs(self, uri: str, **values: Any) -> str:
        message = Outputs()
        for name, value in values.items():
            message.literals.add(name=name).value.CopyFrom(literal(value))
        prefix = self.storage.join(uri)
        await self.storage.put(prefix + "/outputs.pb", message.SerializeToString())
        return prefix


TRACEBACK = """Traceback (most recent call last):
  File "/home/ada/shop/flow.py", line 41, in train
    model = fit(rows, depth=depth)
            ^^^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/shop/flow.py", line 17, in fit
    raise ValueError(f"depth must be positive, not {depth}")
ValueError: depth must be positive, not -3
"""


REPORT = b"""<h1>Report</h1><p style="color:teal">Sales by city</p>
<script>document.body.append("drawn")</script>"""


async def success(make: Maker, name: str = "calm-otter-12") -> RunId:
    """Three steps with inputs, outputs, a report and a log."""
    root = await make.root(
        name,
        input_uri=await make.inputs(f"{name}/a0", {"team": "ml"}, city="Oslo", depth=3, ratio=0.25, tags=["a", "b"]),
        labels={"team": "ml", "purpose": "demo"},
    )
    run = root.run_id
    await make.go(root, P.RUNNING, at=0.2)
    for index, (title, cache) in enumerate(
        [("load", CacheStatus.HIT), ("train", CacheStatus.POPULATED), ("report", 0)]
    ):
        step = await make.action(run, f"{title}1f9c", parent="a0", name=title, at=1.0 + index)
        await make.go(step, P.SUCCEEDED, at=1.0 + index, took=0.8, cache_status=cache)
    report = make.storage.join(name, "report.html")
    await make.storage.put(
        report, b"<h1>Report</h1><p style='color:teal'>Sales by city</p><script>document.body.append('drawn')</script>"
    )
    out = await make.outputs(
        f"{name}/out",
        o0={"name": "Ada", "scores": [1.5, 2.5], "nested": {"ok": True, "none": None}},
        o1=42,
        o2=file_literal("/data/raw/model.bin"),
        o3="two\nlines",
    )
    await make.go(
        root,
        P.SUCCEEDED,
        took=4.3,
        output_uri=out,
        report_uri=report,
        logs_available=True,
        reasons=(Reason("started as process 4711", START), Reason("the process ended", START)),
    )
    make.logs.write(root, 1, "forked from the warm interpreter", originator="system")
    make.logs.write(root, 1, "loading 3 files", "\x1b[32mdone\x1b[0m in 0.2 s", "10%\r50%\r100%")
    return run


async def failure(make: Maker, name: str = "brisk-heron-7") -> RunId:
    """A step that fails twice and takes the run with it."""
    root = await make.root(name, input_uri=await make.inputs(f"{name}/a0", depth=-3))
    run = root.run_id
    await make.go(root, P.RUNNING, at=0.1)
    load = await make.action(run, "load77", parent="a0", name="load", at=0.5)
    await make.go(load, P.SUCCEEDED, at=0.5, took=0.4)
    train = await make.action(run, "train3b", parent="a0", name="train", at=1.0)
    error = ErrorInfo(message=TRACEBACK, code="ValueError", kind="USER", recoverable=True)
    await make.go(train, P.FAILED, at=1.0, took=2.0, error=error, final=False)
    await make.go(
        train,
        P.FAILED,
        at=4.0,
        took=2.0,
        attempt=2,
        error=error,
        logs_available=True,
        reasons=(Reason("no attempt is left", START, warning=True),),
    )
    wait = await make.action(run, "publish", parent="a0", name="publish", at=1.1)
    await make.go(wait, P.ABORTED, at=1.1, took=5.0, abort_reason="its parent failed", aborted_by="wingbeat")
    await make.go(root, P.FAILED, took=6.4, error=error, logs_available=True)
    make.logs.write(train, 2, "fitting 12000 rows with depth -3", *TRACEBACK.splitlines())
    return run


async def fan_out(make: Maker, name: str = "quiet-crane-3", size: int = 200, failed: int = 3) -> RunId:
    """A running parent with a group, a fan-out without one, and steps before and after."""
    root = await make.root(name)
    run = root.run_id
    await make.go(root, P.RUNNING, at=0.1)
    first = await make.action(run, "prepare", parent="a0", at=0.2)
    await make.go(first, P.SUCCEEDED, at=0.2, took=0.3)
    error = ErrorInfo(message=TRACEBACK, code="ValueError", kind="USER")
    for index in range(size):
        at = 1 + index * 0.01
        child = await make.action(run, f"sq{index:05d}", parent="a0", name="square", group="squares", at=at)
        if index < failed:
            await make.go(child, P.FAILED, at=at, took=1.5, error=error)
        elif index < size * 0.6:
            await make.go(child, P.SUCCEEDED, at=at, took=1.5)
        elif index < size * 0.7:
            await make.go(child, P.RUNNING, at=at)
        else:
            await make.records.set_wait_reason(child, "8 of 8 CPUs are taken; starts when one is free")
    for index in range(3):
        nested = await make.action(run, f"nest{index}", parent="sq00010", name="part", at=2 + index)
        await make.go(nested, P.SUCCEEDED, at=2 + index)
    last = await make.action(run, "approve", parent="a0", at=9, name="approve")
    await make.go(last, P.PAUSED, at=9)
    return run
