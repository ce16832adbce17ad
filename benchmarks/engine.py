"""The engine alone: the real controller, durable SQLite, records, outbox and one watcher, with a plugin that does
nothing. And one lone action at a time, beside the disk's own fsync."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from flyteidl2.core import tasks_pb2

from benchmarks.table import Row, percentile
from wingbeat.control.feed import Feed
from wingbeat.database import open_database
from wingbeat.engine import Controller, utc_now
from wingbeat.execution import TaskExecutionContext
from wingbeat.plugins import PluginRegistry, Transition
from wingbeat.resources import ActionRecord, ObjectMeta, OwnerReference, PluginPhase, RunId, TaskAction, TaskActionSpec
from wingbeat.resources.taskaction import (
    ANNOTATION_DEPTH,
    LABEL_ACTION,
    LABEL_DOMAIN,
    LABEL_ORG,
    LABEL_PROJECT,
    LABEL_RUN,
)
from wingbeat.server.app import configure_logging
from wingbeat.server.wiring import context_builder
from wingbeat.stores import SqlStore


class Noop:
    """Accepted, running, done: three status writes."""

    id = "noop"
    task_types = ("python",)
    state_version = 1

    async def handle(self, context: TaskExecutionContext) -> Transition:
        if context.state is None:
            return Transition(phase=PluginPhase.QUEUED, reason="accepted", state={"v": 1, "token": "t"}, again=True)
        if "ran" not in context.state or context.depth == 0:
            return Transition(
                phase=PluginPhase.RUNNING,
                reason="running",
                state={**context.state, "ran": True},
                again=context.depth > 0,  # the parent of them all goes on
                logs_available=True,
            )
        return Transition(phase=PluginPhase.SUCCESS, output_uri=context.paths.prefix, logs_available=True)

    async def abort(self, context: TaskExecutionContext) -> None:
        return None

    async def finalize(self, context: TaskExecutionContext) -> None:
        return None


def template() -> bytes:
    """About as large as the SDK's for a small task."""
    message = tasks_pb2.TaskTemplate(type="python")
    message.id.name, message.id.version = "bench.noop", "v1"
    message.container.image = "any"
    message.container.args.extend(["a0", *(f"--option-{i}={'x' * 60}" for i in range(20))])
    return bytes(message.SerializeToString(deterministic=True))


TEMPLATE = template()


def action_of(run: RunId, name: str, parent: TaskAction | None = None) -> tuple[TaskAction, ActionRecord]:
    id = run.action(name)
    labels = {LABEL_ORG: id.org, LABEL_PROJECT: id.project, LABEL_DOMAIN: id.domain, LABEL_RUN: id.run}
    owners = []
    if parent is not None:
        owners = [OwnerReference(name=parent.metadata.name, uid=parent.metadata.uid, controller=True)]
    spec = TaskActionSpec(
        run_name=run.run,
        project=run.project,
        domain=run.domain,
        action_name=name,
        parent_action_name=parent.spec.action_name if parent else "",
        task_type="python",
        short_name="noop",
        task_template=TEMPLATE,
        input_uri=f"/bench/runs/{run.run}/{name}/inputs.pb",
        run_output_base=f"/bench/runs/{run.run}",
    )
    metadata = ObjectMeta(
        name=id.object_name,
        labels={**labels, LABEL_ACTION: name},
        annotations={ANNOTATION_DEPTH: "1" if parent else "0"},
        owner_references=owners,
    )
    record = ActionRecord(id=id, parent=spec.parent_action_name, created_at=utc_now(), name="noop", task_type="python")
    record.input_uri, record.run_output_base = spec.input_uri, spec.run_output_base
    return TaskAction(metadata=metadata, spec=spec), record


class Rig:
    """Everything between the services and the plugin."""

    def __init__(self, home: Path, plugin: Any = None) -> None:
        self._home = home
        self._plugin = plugin or Noop()

    async def __aenter__(self) -> Rig:
        self.db = await open_database(self._home / "wingbeat.db")
        self.store = SqlStore(self.db)
        self.controller = Controller(
            self.store,
            PluginRegistry([self._plugin]),
            context_builder(root="/bench", raw_data_prefix="/bench/raw"),
        )
        await self.controller.start()
        self.feed = Feed(self.db)
        self.feed.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.feed.close()
        await self.controller.stop()
        self.store.close()
        await self.db.close()

    async def root(self, name: str) -> TaskAction:
        run = RunId("local", "default", "development", name)
        action, record = action_of(run, "a0")
        return await self.store.create(action, record=record, spec=b"spec")

    async def create(self, parent: TaskAction, name: str) -> None:
        action, record = action_of(parent.id.run_id, name, parent)
        await self.store.create(action, record=record, spec=b"spec")

    async def many(self, run: str, count: int, side_by_side: int = 64) -> float:
        """Seconds from the first create until a watcher of the parent has seen all children succeed."""
        parent = await self.root(run)
        left = {f"c{i}" for i in range(count)}
        subscription = self.feed.children(parent.id)
        begin = time.perf_counter()

        async def creator(first: int) -> None:
            for i in range(first, count, side_by_side):
                await self.create(parent, f"c{i}")

        creators = [asyncio.create_task(creator(first)) for first in range(side_by_side)]
        with subscription:
            while left:
                for record in await subscription.take(30):
                    if record.phase.terminal:
                        left.discard(record.id.action)
        await asyncio.gather(*creators)
        return time.perf_counter() - begin

    async def lone(self, run: str, count: int) -> list[float]:
        """Milliseconds from create to seen as succeeded, one action at a time."""
        parent = await self.root(run)
        subscription = self.feed.children(parent.id)
        result = []
        with subscription:
            for i in range(count):
                begin = time.perf_counter()
                await self.create(parent, f"c{i}")
                done = False
                while not done:
                    done = any(r.phase.terminal and r.id.action == f"c{i}" for r in await subscription.take(30))
                result.append((time.perf_counter() - begin) * 1000)
                await asyncio.sleep(0.002)
        return result


def fsyncs(home: Path, count: int) -> list[float]:
    """Milliseconds of a 4 KiB append that is made durable."""
    result = []
    with open(home / "fsync", "ab", buffering=0) as file:
        for _ in range(count):
            begin = time.perf_counter()
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
            result.append((time.perf_counter() - begin) * 1000)
    return result


async def sqlite_floor(home: Path, count: int) -> float:
    """Seconds for six durable writes of about an action's size for each of `count`, grouped as they come, 64 actions
    at once: what is left when nothing is decided, encoded or told."""
    db = await open_database(home / "floor.db")
    await db.write(lambda c: c.execute("CREATE TABLE IF NOT EXISTS floor (id TEXT PRIMARY KEY, body BLOB)") and None)
    body = os.urandom(1500)
    sql = "INSERT INTO floor VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET body = excluded.body"

    async def worker(first: int) -> None:
        for i in range(first, count, 64):
            for _ in range(6):
                await db.write(lambda c, i=i: c.execute(sql, (f"{i:08}", body)))

    begin = time.perf_counter()
    await asyncio.gather(*(worker(first) for first in range(64)))
    taken = time.perf_counter() - begin
    await db.write(lambda c: c.execute("DROP TABLE floor") and None)
    await db.close()
    return taken


async def _measure(quick: bool) -> list[Row]:
    count, rounds, lone = (500, 3, 50) if quick else (2000, 5, 200)
    rates, floors, cpu, mine, disk, extra = [], [], [], [], [], []
    with tempfile.TemporaryDirectory(prefix="wingbeat-bench-") as name:
        home = Path(name)
        async with Rig(home) as rig:
            await rig.many("warm", 100)
            for round in range(rounds):
                used = time.process_time()
                rates.append(count / await rig.many(f"many{round}", count))
                cpu.append((time.process_time() - used) / count * 1000)
                floors.append(count / await sqlite_floor(home, count))
                disk.append(percentile(fsyncs(home, lone), 0.99))
                mine.append(percentile(await rig.lone(f"lone{round}", lone), 0.99))
                extra.append(mine[-1] - disk[-1])
    return [
        Row("create to seen as done", "actions/s", rates, floors, "6 plain grouped writes each", "2,000/s"),
        Row("CPU, engine and creators", "ms/action", cpu),
        Row("a lone action, p99", "ms", mine, disk, "one fsync, p99"),
        Row("  beyond the fsync", "ms", extra, [], "", "<= 10"),
    ]


def measure(*, quick: bool) -> tuple[list[Row], list[str]]:
    # As the server does it, into nothing.
    configure_logging("info", "json")
    logging.getLogger().handlers[:] = [logging.StreamHandler(open(os.devnull, "w"))]  # noqa: SIM115
    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_measure(quick)), []
    except ImportError:
        return asyncio.run(_measure(quick)), []
