"""The tasks that the programs run through the real SDK."""

import asyncio
import json
import os
import pathlib
import sys
import time

import flyte

env = flyte.TaskEnvironment(name="fan")


def cpu(pids: str) -> float:
    """CPU seconds of all these processes."""
    ticks = 0
    for pid in filter(None, pids.split(",")):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@env.task
async def one(i: int) -> int:
    return i


@env.task
async def now(i: int) -> float:
    """When the user's code began."""
    return time.time()


@env.task
async def launch(path: str) -> int:
    """Keep how this process was called."""
    pathlib.Path(path).write_text(json.dumps({"argv": sys.argv, "env": dict(os.environ)}))
    return 0


@env.task
async def stamp(path: str) -> int:
    pathlib.Path(path).write_text(str(time.time()))
    return 0


@env.task
async def remember(path: str) -> int:
    """Have a child whose start the fork floor repeats."""
    await launch(path)
    return 0


@env.task
async def wide(n: int, path: str, pids: str) -> int:
    """`n` children; how long they took and what the processes `pids` used meanwhile, into `path`."""
    begin, used = time.monotonic(), [cpu(pid) for pid in pids.split(",")]
    total = sum(await asyncio.gather(*(one(i) for i in range(n))))
    taken = time.monotonic() - begin
    used = [cpu(pid) - before for pid, before in zip(pids.split(","), used, strict=True)]
    pathlib.Path(path).write_text(json.dumps({"seconds": taken, "cpu": used}))
    return total


@env.task
async def turns(n: int, path: str) -> int:
    """`n` children one after the other; from the call to the child's first line, in seconds, into `path`."""
    waits = []
    for i in range(n):
        begin = time.time()
        waits.append(await now(i) - begin)
    pathlib.Path(path).write_text(json.dumps(waits))
    return n
