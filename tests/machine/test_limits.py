from __future__ import annotations

import os

import pytest
from machine_support import Folders, ended, reached

from wingbeat.machine import ProcessState
from wingbeat.machine.limits import ControlGroups

MIB = 1 << 20
HUNGRY = """
import sys, time
held = []
try:
    for _ in range(60):
        held.append(bytearray(10 * 1024 * 1024)); time.sleep(0.02)
    print("had it all")
except MemoryError:
    print("caught it")
time.sleep(600)
"""
# The memory is used by a grandchild that forked away, not by the first process.
HUNGRY_GRANDCHILD = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
{chr(10).join("        " + line for line in HUNGRY.strip().splitlines())}
    os._exit(0)
time.sleep(600)
"""


def modes() -> list[str]:
    return ["watchdog", "cgroup"] if ControlGroups.find("probe") else ["watchdog"]


@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("code", [HUNGRY, HUNGRY_GRANDCHILD], ids=["itself", "grandchild"])
async def test_passing_the_memory_limit_ends_the_whole_tree_as_out_of_memory(
    folders: Folders, mode: str, code: str
) -> None:
    async with folders.running(memory_limits=mode) as machine:
        await machine.launch(folders.python("t1", code, memory_limit=100 * MIB))
        status = await ended(machine, "t1", 30)
        assert status.state is ProcessState.EXITED
        assert status.out_of_memory and status.killed == ""
        assert ("system", "killed: out of memory (limit 100 MiB)") in folders.log("t1")
        assert folders.output("t1") == []
        assert not folders.alive()


@pytest.mark.parametrize("mode", modes())
async def test_below_its_limit_a_process_runs_to_its_end(folders: Folders, mode: str) -> None:
    async with folders.running(memory_limits=mode) as machine:
        await machine.launch(folders.python("t1", "x = bytearray(50_000_000); print('ok')", memory_limit=200 * MIB))
        status = await ended(machine, "t1")
        assert (status.exit_code, status.out_of_memory) == (0, False)


async def test_with_limits_off_nothing_is_ended(folders: Folders) -> None:
    async with folders.running(memory_limits="off") as machine:
        await machine.launch(folders.python("t1", "x = bytearray(50_000_000); print('ok')", memory_limit=20 * MIB))
        assert (await ended(machine, "t1")).exit_code == 0


@pytest.mark.skipif(os.geteuid() != 0 or "cgroup" not in modes(), reason="NOT RUN: no writable memory control group")
async def test_control_groups_are_removed_with_the_launch_and_the_last_server(folders: Folders) -> None:
    groups = ControlGroups.find(folders.marker)
    assert groups is not None
    async with folders.running(memory_limits="cgroup") as machine:
        await machine.launch(folders.spec("t1", "sleep", "600", memory_limit=100 * MIB))
        await reached(machine, "t1", ProcessState.RUNNING)
        assert groups.folder("t1").is_dir()
        await machine.kill("t1", why="abort")
        assert (await machine.observe("t1")).out_of_memory is False
    assert not groups.parent.exists()
