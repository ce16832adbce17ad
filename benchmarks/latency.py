"""From a parent's call of a child to the child's first line of user code, with nothing else running.

That is the whole way: the SDK writes the inputs and asks, the server accepts, decides and forks, the child's runtime
comes up, loads the code and reads the inputs.
"""

from __future__ import annotations

import json

from benchmarks.fanout import recorded_launch
from benchmarks.floor import Floor
from benchmarks.serving import Server, folder
from benchmarks.table import Row, percentile


def measure(*, quick: bool) -> tuple[list[Row], list[str]]:
    rounds, count = (3, 10) if quick else (5, 40)
    middle, high, floor_middle, floor_high = [], [], [], []
    with folder() as home, Server(home) as server:
        server.wait_zygote()
        with Floor(home / "floor", recorded_launch(server)) as floor:
            for round in range(rounds):
                path = home / f"turns{round}.json"
                server.flyte_run(f"turns{round}", "fan", "turns", "--n", str(count), "--path", str(path))
                if server.wait_end(f"turns{round}", sign=path) != "SUCCEEDED":
                    raise RuntimeError(f"the run failed; see {home / 'server.log'}")
                waits = [wait * 1000 for wait in json.loads(path.read_text())]
                middle.append(percentile(waits, 0.5))
                high.append(percentile(waits, 0.95))
                lone = [floor.run(1) * 1000 for _ in range(count)]
                floor_middle.append(percentile(lone, 0.5))
                floor_high.append(percentile(lone, 0.95))
    return [
        Row("call to user code, p50", "ms", middle, floor_middle, "a whole process of the floor", "<= 80"),
        Row("call to user code, p95", "ms", high, floor_high, "a whole process of the floor"),
    ], []
