"""Isolated fan-out: N trivial SDK tasks, each a process of its own, against the fork floor of the same run."""

from __future__ import annotations

import itertools
import json
import statistics
from typing import Any

from benchmarks.floor import Floor
from benchmarks.processes import cpu_seconds
from benchmarks.serving import Server, folder
from benchmarks.table import Row

NAMES = itertools.count()


def recorded_launch(server: Server) -> dict[str, Any]:
    """How a trivial child of the SDK is called here, by having one run that tells."""
    path = server.home / "launch.json"
    server.flyte_run("remember", "fan", "remember", "--path", str(path))
    if server.wait_end("remember") != "SUCCEEDED":
        raise RuntimeError(f"the first run failed; see {server.home / 'server.log'}")
    launch: dict[str, Any] = json.loads(path.read_text())
    return launch


def fan_out(server: Server, count: int) -> dict[str, Any]:
    """Seconds for `count` children of one parent, and CPU seconds of server, bulk data process and zygote."""
    name = f"wide{next(NAMES)}"
    path = server.home / f"{name}.json"
    zygote = server.wait_zygote()
    others = [pid for pid in server.processes() if pid not in (server.pid, zygote)]
    pids = ",".join(str(pid) for pid in [server.pid, zygote, *others])
    server.flyte_run(name, "fan", "wide", "--n", str(count), "--path", str(path), "--pids", pids)
    phase = server.wait_end(name, sign=path)
    if phase != "SUCCEEDED":
        raise RuntimeError(f"the fan-out ended as {phase}; see {server.home / 'server.log'}")
    return dict(json.loads(path.read_text()))


def measure(*, quick: bool) -> tuple[list[Row], list[str]]:
    small, rounds, large = (40, 3, 0) if quick else (100, 5, 1000)
    with folder() as home, Server(home) as server:
        server.wait_zygote()
        launch = recorded_launch(server)
        ours, floors, wider, cpu, zygote, own = [], [], [], [], [], []
        with Floor(home / "floor", launch) as floor:
            floor.run(4)
            fan_out(server, 4)
            for _ in range(rounds):
                result = fan_out(server, small)
                ours.append(small / result["seconds"])
                cpu.append(result["cpu"][0] / small * 1000)
                zygote.append(result["cpu"][1] / small * 1000)
                before = cpu_seconds(floor.pid)
                floors.append(small / floor.run(small))
                own.append((cpu_seconds(floor.pid) - before) / small * 1000)
                wider.append(small / floor.run(small, 4))
            rows = [
                Row(f"fan-out of {small}", "tasks/s", ours, floors, "fork floor, 2 at a time", ">= 0.75"),
                Row(f"fan-out of {small}", "tasks/s", ours, wider, "fork floor, 4 at a time"),
                Row("server's own CPU", "ms/task", cpu, [], "", "<= 10"),
                Row("zygote's own CPU", "ms/task", zygote, own, "the floor's zygote"),
            ]
            if large:
                floor_before = large / 2 / floor.run(large // 2)
                result = fan_out(server, large)
                floor_after = large / 2 / floor.run(large // 2)
                floor_rate = statistics.mean([floor_before, floor_after])
                rate = large / result["seconds"]
                rows += [
                    Row(
                        f"fan-out of {large}",
                        "tasks/s",
                        [rate],
                        [floor_rate],
                        "fork floor, half before, half after",
                        ">= 0.75",
                    ),
                    Row(f"server's own CPU, {large}", "ms/task", [result["cpu"][0] / large * 1000], [], "", "<= 10"),
                ]
    return rows, []
