"""From exec to a server that takes work, with an empty data folder and with 100,000 finished actions in it."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from flyteidl2.task.common_pb2 import Inputs
from flyteidl2.workflow.run_service_pb2 import GetRunDetailsRequest, GetRunDetailsResponse

from benchmarks.engine import action_of
from benchmarks.serving import Server, folder, run_identifier
from benchmarks.table import Row
from wingbeat.database import Connection, open_database
from wingbeat.engine import utc_now
from wingbeat.resources import ActionEvent, ActionPhase, Condition, RunId, TaskActionStatus
from wingbeat.resources.taskaction import FINALIZER, LABEL_COMPLETED_TIME, LABEL_TERMINATION_STATUS
from wingbeat.stores import SqlStore
from wingbeat.stores.sql.objects import encode_for_patch

PER_RUN = 1000
NAMES = itertools.count()


async def fill(database: Path, count: int) -> None:
    """`count` finished actions, in runs of 1,000, as the engine leaves them."""
    db = await open_database(database)
    store = SqlStore(db)
    at = utc_now()

    done = TaskActionStatus(conditions=[Condition(type="Succeeded", status="True", reason="Completed")])
    done.conditions[0].last_transition_time = at
    encoded, _ = encode_for_patch(done)

    def begin(c: Connection, run: RunId, name: str, parent: Any = None) -> Any:
        action, record = action_of(run, name, parent)
        action.metadata.labels[LABEL_TERMINATION_STATUS] = "terminated"
        action.metadata.labels[LABEL_COMPLETED_TIME] = at.strftime("%Y-%m-%d.%H-%M")
        action.metadata.finalizers = [FINALIZER]
        return store.objects.create(c, action, record, b"spec")

    def end(c: Connection, action: Any) -> None:
        event = ActionEvent(id=action.id, attempt=1, phase=ActionPhase.SUCCEEDED, occurred_at=at, output_uri="/o")
        version = action.metadata.resource_version
        store.objects.patch_status(c, action.id, encoded, True, version, [event], None)

    def finish_run(c: Connection, run: RunId) -> None:
        root = begin(c, run, "a0")
        for i in range(PER_RUN - 1):
            end(c, begin(c, run, f"c{i}", root))
        end(c, root)

    for number in range(count // PER_RUN):
        run = RunId("local", "default", "development", f"old{number}")
        await db.write(lambda c, run=run: finish_run(c, run))
    store.close()
    await db.close()


def imports() -> float:
    """Seconds that a fresh Python takes to import what the server is made of, and nothing more."""
    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", "import wingbeat.server.app, wingbeat.cli"], check=True)
    return time.monotonic() - begin


def once(server: Server) -> tuple[float, float]:
    """Seconds to /readyz, and to the first accepted run."""
    begin = server.exec()
    ready = server.wait_ready() - begin
    accepted = server.create_run(f"first{next(NAMES)}") - begin
    return ready, accepted


def spec_of(server: Server, run: str) -> Any:
    request = GetRunDetailsRequest(run_id=run_identifier(run))
    answer = server.call("flyteidl2.workflow.RunService/GetRunDetails", request.SerializeToString())
    return GetRunDetailsResponse.FromString(answer).details.action.task


def text_input(value: str) -> Any:
    inputs = Inputs()
    named = inputs.literals.add(name="path")
    named.value.scalar.primitive.string_value = value
    return inputs


def user_code(server: Server, spec: Any) -> float:
    """Seconds from exec until the first line of user code of a run that is submitted at once."""
    begin, wall = server.exec(), time.time()
    server.wait_ready()
    name = f"code{next(NAMES)}"
    path = server.home / name
    server.create_run(name, spec, text_input(str(path)))
    while not path.exists() or not path.read_text():
        if time.monotonic() - begin > 60:
            raise RuntimeError("no user code within 60 s")
        time.sleep(0.005)
    return float(path.read_text()) - wall


def measure(*, quick: bool) -> tuple[list[Row], list[str]]:
    rounds, old = (3, 2000) if quick else (10, 100_000)
    ready, accepted, floor, full_ready, full_accepted, code = [], [], [], [], [], []
    with folder() as home, folder() as full_home:
        begin = dt.datetime.now()
        full = Server(full_home)
        full.up()
        full.stop()
        asyncio.run(fill(full.data / "wingbeat.db", old))
        filled = (dt.datetime.now() - begin).total_seconds()
        server = Server(home)
        with server:
            server.flyte_run("stamp", "fan", "stamp", "--path", str(home / "stamp"))
            server.wait_end("stamp")
            spec = spec_of(server, "stamp")
        for _ in range(rounds):
            for which, readies, accepts in ((server, ready, accepted), (full, full_ready, full_accepted)):
                a, b = once(which)
                readies.append(a)
                accepts.append(b)
                which.stop()
            floor.append(imports())
            code.append(user_code(server, spec))
            server.stop()
    return [
        Row("exec to /readyz", "s", ready, floor, "a Python that imports it"),
        Row("exec to an accepted run", "s", accepted, floor, "a Python that imports it", "<= 1.5"),
        Row(f"exec to /readyz, {old:,} actions", "s", full_ready, ready, "with none"),
        Row(f"exec to an accepted run, {old:,} actions", "s", full_accepted, accepted, "with none", "<= 1.5"),
        Row("exec to user code, cold zygote", "s", code),
    ], [f"making the {old:,} finished actions took {filled:.0f} s"]
