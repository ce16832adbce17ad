"""Tasks that start processes of their own: some ignore SIGTERM, some fork away from their parents and sessions."""

import asyncio
import os
import pathlib
import subprocess
import sys
import time

import flyte

env = flyte.TaskEnvironment(name="swarm", resources=flyte.Resources(cpu="10m"))

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
PLAIN = "import time; time.sleep(600)"


def stamp(folder: str, label: str) -> None:
    (pathlib.Path(folder) / f"{label}.{os.getpid()}").touch()


def fork_away() -> None:
    """A daemon: another session, another parent."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", PLAIN])
        os._exit(0)
    os.wait()


@env.task
def nest(folder: str, plain: int, stubborn: int, away: int) -> None:
    for _ in range(plain):
        subprocess.Popen([sys.executable, "-c", PLAIN])
    for _ in range(stubborn):
        subprocess.Popen([sys.executable, "-c", STUBBORN])
    for _ in range(away):
        fork_away()
    stamp(folder, "ready")
    time.sleep(600)


@env.task
async def main(folder: str, nests: int = 5, plain: int = 35, stubborn: int = 4, away: int = 1) -> None:
    """With the defaults: 5 tasks of 40 processes each and this one, over 200 in all."""
    await asyncio.gather(*(nest.aio(folder, plain, stubborn, away) for _ in range(nests)))
