from __future__ import annotations

import asyncio
import time

from machine_support import Folders, reached, until

from wingbeat.machine import BudgetSettings, ProcessState

IGNORES = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(600)"
# Forks twice with a new session, drops the launch's variables, and ignores SIGTERM.
FORKS_AWAY = """
import os, signal, time, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("daemon", "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists("daemon"): time.sleep(0.01)
print("up", flush=True)
"""


async def running(folders: Folders, machine, token: str) -> None:  # type: ignore[no-untyped-def]
    await reached(machine, token, ProcessState.RUNNING)
    await until(lambda: "up" in folders.output(token))


async def test_a_process_is_asked_to_end_before_it_is_made_to(folders: Folders) -> None:
    code = """
import signal, sys, time
def bye(*_): print("saying goodbye"); sys.exit(0)
signal.signal(signal.SIGTERM, bye); print("up"); time.sleep(600)
"""
    async with folders.running() as machine:
        await machine.launch(folders.python("t1", code))
        await running(folders, machine, "t1")
        await machine.kill("t1", why="abort")
        status = await machine.observe("t1")
        assert (status.state, status.exit_code, status.killed) == (ProcessState.EXITED, 0, "abort")
        assert folders.output("t1") == ["up", "saying goodbye"]
        assert ("system", "ending it: abort") in folders.log("t1")


async def test_a_process_that_ignores_sigterm_is_gone_after_the_grace(folders: Folders) -> None:
    async with folders.running() as machine:
        await machine.launch(folders.python("t1", IGNORES))
        await running(folders, machine, "t1")
        start = time.monotonic()
        await machine.kill("t1", why="timeout", grace=0.4)
        assert 0.4 <= time.monotonic() - start < 5
        status = await machine.observe("t1")
        assert (status.state, status.signal, status.killed) == (ProcessState.EXITED, 9, "timeout")
        assert not folders.alive()


async def test_what_forked_away_is_reached_too(folders: Folders) -> None:
    async with folders.running() as machine:
        await machine.launch(folders.python("t1", FORKS_AWAY + "time.sleep(600)"))
        await running(folders, machine, "t1")
        assert folders.alive() == {"t1"}
        await machine.kill("t1", why="abort", grace=0.1)
        assert not folders.alive()


async def test_what_outlives_the_first_process_is_ended_before_its_end_is_told(folders: Folders) -> None:
    async with folders.running() as machine:
        await machine.launch(folders.python("t1", FORKS_AWAY))
        await until(lambda: "up" in folders.output("t1"))
        status = await machine.wait_ended("t1")
        assert (status.state, status.exit_code) == (ProcessState.EXITED, 0)
        assert not folders.alive()


async def test_a_waiting_launch_leaves_the_queue_and_never_starts(folders: Folders) -> None:
    async with folders.running(budget=BudgetSettings(cpus=1, memory=1 << 30)) as machine:
        await machine.launch(folders.spec("t1", "sleep", "60"))
        spec = folders.spec("t2", "sh", "-c", "echo ran")
        await machine.launch(spec)
        await machine.kill("t2", why="abort")
        status = await machine.observe("t2")
        assert (status.state, status.exit_code, status.pid, status.killed) == (ProcessState.EXITED, None, 0, "abort")
        await machine.kill("t1", why="abort")
        await machine.launch(spec)
        assert (await machine.observe("t2")).state is ProcessState.EXITED
        assert folders.output("t2") == []


async def test_killing_the_unknown_or_the_ended_changes_nothing(folders: Folders) -> None:
    async with folders.running() as machine:
        await machine.kill("never-heard-of", why="abort")
        assert not (folders.state / "never-heard-of").exists()
        await machine.launch(folders.spec("t1", "true"))
        before = await machine.wait_ended("t1")
        await machine.kill("t1", why="abort")
        assert await machine.observe("t1") == before


async def test_two_hundred_trees_are_gone_within_ten_seconds_stubborn_ones_and_daemons_included(
    folders: Folders,
) -> None:
    async with folders.running(budget=BudgetSettings(cpus=1000, memory=1 << 40, startups=16)) as machine:
        tokens = [f"t{number}" for number in range(200)]
        for number, token in enumerate(tokens):
            if number < 20:
                spec = folders.spec(token, "sh", "-c", "trap '' TERM; echo up; sleep 600 & while :; do wait; done")
            elif number < 25:
                spec = folders.spec(
                    token,
                    "sh",
                    "-c",
                    "setsid sh -c 'trap \"\" TERM; sleep 600 & echo up; while :; do wait; done' & sleep 600",
                )
            else:
                spec = folders.spec(token, "sh", "-c", "echo up; sleep 600")
            await machine.launch(spec)
        await until(lambda: all(folders.output(token) for token in tokens), 60)
        assert folders.alive() == set(tokens)
        start = time.monotonic()
        await asyncio.gather(*(machine.kill(token, why="abort", grace=1.0) for token in tokens))
        assert time.monotonic() - start < 10
        assert not folders.alive()
        states = {(await machine.observe(token)).state for token in tokens}
        assert states == {ProcessState.EXITED}
