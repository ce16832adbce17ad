from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from machine_support import Folders, ended, reached, until

from wingbeat.machine import LaunchError, ProcessState
from wingbeat.machine.facts import Facts, Request

SERVER = Path(__file__).with_name("server_process.py")


class Server:
    """A server in a process of its own."""

    def __init__(self, folders: Folders, point: str, launches: dict[str, list[str]]) -> None:
        where = {
            "root": str(folders.state.parent),
            "runtime": str(folders.runtime),
            "marker": folders.marker,
            "launches": launches,
        }
        self.process = subprocess.Popen(
            [sys.executable, str(SERVER), json.dumps(where), point], stdout=subprocess.PIPE, text=True
        )

    async def launched(self) -> None:
        assert self.process.stdout is not None
        line = ""
        while line != "launched\n":
            line = await asyncio.to_thread(self.process.stdout.readline)
            assert line, "the server ended"

    async def dead(self) -> None:
        assert await asyncio.to_thread(self.process.wait, 30) == -signal.SIGKILL

    async def kill(self) -> None:
        self.process.kill()
        await self.dead()


def stamp(folders: Folders) -> tuple[list[str], Path]:
    stamps = folders.state.parent / "stamps"
    return ["sh", "-c", f"echo ran >> {stamps}"], stamps


@pytest.mark.faults
@pytest.mark.parametrize("point", ["before-request", "before-zygote"])
async def test_killed_before_the_zygote_was_asked_it_runs_once_it_is_asked_for_again(
    folders: Folders, point: str
) -> None:
    argv, stamps = stamp(folders)
    await Server(folders, point, {"t1": argv}).dead()
    async with folders.running() as machine:
        assert (await machine.observe("t1")).state is ProcessState.UNKNOWN
        await machine.launch(folders.spec("t1", *argv))
        assert (await ended(machine, "t1")).exit_code == 0
        assert stamps.read_text() == "ran\n"


@pytest.mark.faults
async def test_killed_after_the_fork_and_before_the_answer_it_ran_once(folders: Folders) -> None:
    argv, stamps = stamp(folders)
    await Server(folders, "before-answer", {"t1": argv}).dead()
    async with folders.running() as machine:
        # Whether the zygote has read the request yet or not: asking again makes no second one.
        await machine.launch(folders.spec("t1", *argv))
        assert (await ended(machine, "t1")).exit_code == 0
        assert stamps.read_text() == "ran\n"


@pytest.mark.faults
async def test_a_killed_server_leaves_its_processes_to_the_next_one(folders: Folders) -> None:
    go = folders.state.parent / "go"
    wait = f"echo up; while [ ! -e {go} ]; do sleep 0.02; done; echo went on; exit 5"
    server = Server(folders, "run", {"long": ["sh", "-c", wait], "short": ["sh", "-c", "exit 4"]})
    await server.launched()
    await until(lambda: folders.output("long") and (folders.state / "short" / "exit.json").exists())
    await server.kill()
    async with folders.running() as machine:
        running = await machine.observe("long")
        assert running.state is ProcessState.RUNNING and running.pid > 0
        assert (await machine.observe("short")).exit_code == 4
        go.touch()
        assert (await ended(machine, "long")).exit_code == 5
        assert folders.output("long") == ["up", "went on"]


@pytest.mark.faults
async def test_what_ended_while_no_server_was_there_is_known_to_the_next(folders: Folders) -> None:
    go = folders.state.parent / "go"
    server = Server(folders, "run", {"t1": ["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.02; done; kill -9 $$"]})
    await server.launched()
    await until(lambda: (folders.state / "t1" / "start.json").exists())
    await server.kill()
    go.touch()
    await until(lambda: (folders.state / "t1" / "exit.json").exists())
    async with folders.running() as machine:
        status = await machine.observe("t1")
        assert (status.state, status.signal, status.killed) == (ProcessState.EXITED, 9, "")


@pytest.mark.faults
async def test_a_kill_that_the_server_did_not_live_to_finish_is_finished_by_the_next(folders: Folders) -> None:
    server = Server(folders, "run", {"t1": ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"]})
    await server.launched()
    await until(lambda: folders.output("t1"))
    await server.kill()
    Facts(folders.state, "t1").write_kill("abort", grace=0.1)
    async with folders.running() as machine:
        status = await ended(machine, "t1")
        assert (status.state, status.killed) == (ProcessState.EXITED, "abort")
        assert not folders.alive()


@pytest.mark.faults
async def test_with_server_and_zygote_killed_nothing_runs_on_and_the_launch_is_lost(folders: Folders) -> None:
    server = Server(folders, "run", {"t1": ["sh", "-c", "echo up; sleep 600"]})
    await server.launched()
    await until(lambda: folders.output("t1"))
    await server.kill()
    os.kill(zygote_pid(folders), signal.SIGKILL)
    async with folders.running() as machine:
        status = await machine.observe("t1")
        assert (status.state, status.reason) == (ProcessState.LOST, "its supervisor is gone, so it was ended")
        assert not folders.alive()
        await machine.launch(folders.spec("t1", "sh", "-c", "echo again"))
        assert (await machine.observe("t1")).state is ProcessState.LOST
        assert "again" not in folders.output("t1")


@pytest.mark.faults
async def test_when_the_zygote_dies_its_children_end_as_lost_and_the_next_launch_has_a_new_one(
    folders: Folders,
) -> None:
    async with folders.running() as machine:
        await machine.launch(folders.spec("t1", "sh", "-c", "echo up; setsid sleep 600 & sleep 600"))
        await reached(machine, "t1", ProcessState.RUNNING)
        await until(lambda: folders.output("t1"))
        os.kill(zygote_pid(folders), signal.SIGKILL)
        status = await ended(machine, "t1")
        assert (status.state, status.reason) == (ProcessState.LOST, "its supervisor died, so it was ended")
        assert not folders.alive()
        await machine.launch(folders.spec("t2", "true"))
        assert (await ended(machine, "t2")).exit_code == 0


@pytest.mark.faults
async def test_a_zygote_that_is_stuck_keeps_no_server_from_stopping_and_goes_with_it(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wingbeat.machine.local.PROMPT_SECONDS", 0.5)
    monkeypatch.setattr("wingbeat.machine.zygotes.PROMPT_SECONDS", 0.5)
    monkeypatch.setattr("wingbeat.machine.local.EXIT_SECONDS", 0.5)
    machine = folders.machine()
    await machine.start()
    await machine.launch(folders.spec("t1", "sh", "-c", "echo up; sleep 600"))
    await until(lambda: folders.output("t1"))
    os.kill(zygote_pid(folders), signal.SIGSTOP)
    # One that it knows, and one that it has not begun.
    await machine.launch(folders.spec("t2", "sleep", "600"))
    await reached(machine, "t2", ProcessState.STARTING)
    await asyncio.wait_for(machine.stop(keep=False), 15)
    assert not folders.processes()


@pytest.mark.faults
async def test_a_zygote_that_does_not_come_up_keeps_no_server_from_stopping(folders: Folders) -> None:
    machine = folders.machine()
    await machine.start()
    warming = asyncio.create_task(machine.warm(sys.executable))
    await until(lambda: machine._zygotes._booting)
    os.kill(next(iter(machine._zygotes._booting.values())).pid, signal.SIGSTOP)
    await asyncio.wait_for(machine.stop(keep=False), 5)
    with pytest.raises(LaunchError, match="ended with status -9"):
        await warming
    assert not folders.processes()


async def test_a_request_of_before_the_last_boot_may_have_run_and_is_lost(folders: Folders) -> None:
    facts = Facts(folders.state, "t1")
    facts.write_request(folders.spec("t1", "true"))
    request = facts.request()
    assert isinstance(request, Request)
    request.boot = "another-boot"
    facts._write("request.json", request)
    async with folders.running() as machine:
        assert (await machine.observe("t1")).state is ProcessState.LOST


async def test_a_server_that_lets_go_keeps_everything_running(folders: Folders) -> None:
    first = folders.machine()
    await first.start()
    await first.launch(folders.spec("t1", "sh", "-c", "echo up; sleep 600"))
    await until(lambda: folders.output("t1"))
    await first.stop(keep=True)
    assert folders.alive() == {"t1"}
    async with folders.running() as second:
        assert (await second.observe("t1")).state is ProcessState.RUNNING
        await second.kill("t1", why="abort")
        assert not folders.alive()


async def test_an_abandoned_zygote_ends_by_itself_once_it_has_no_children(folders: Folders) -> None:
    machine = folders.machine(orphan_seconds=0.2)
    await machine.start()
    await machine.launch(folders.spec("t1", "sleep", "1"))
    await reached(machine, "t1", ProcessState.RUNNING)
    pid = zygote_pid(folders)
    zygote = machine._zygotes.all()[0]
    await machine.stop(keep=True)
    assert zygote.process is not None
    assert await asyncio.to_thread(zygote.process.wait, 30) == 0
    assert (folders.state / "t1" / "exit.json").exists()
    assert not list(folders.runtime.glob("*.sock"))
    assert not Path(f"/proc/{pid}").exists()


async def test_a_task_that_no_server_comes_back_for_is_ended_and_the_next_server_knows(folders: Folders) -> None:
    first = folders.machine(orphan_seconds=0.5)
    await first.start()
    await first.launch(folders.spec("t1", "sleep", "600"))
    await reached(first, "t1", ProcessState.RUNNING)
    await until(lambda: folders.alive())
    await first.stop(keep=True)
    await until(lambda: not folders.alive())
    async with folders.running() as later:
        assert (await later.observe("t1")).state in (ProcessState.EXITED, ProcessState.LOST)
    assert ("system", "no server came back for this task, so it was ended") in folders.log("t1")
    # Its zygote ends by itself too, in its own time.
    await until(lambda: not folders.processes())


async def test_a_zygote_of_another_configuration_keeps_its_children_and_ends_after_them(folders: Folders) -> None:
    first = folders.machine(interpreter_env={"OLD": "1"})
    await first.start()
    go = folders.state.parent / "go"
    await first.launch(folders.spec("t1", "sh", "-c", f"while [ ! -e {go} ]; do sleep 0.02; done"))
    await reached(first, "t1", ProcessState.RUNNING)
    old = first._zygotes.all()[0]
    await first.stop(keep=True)
    async with folders.running() as second:
        await second.launch(folders.spec("t2", "true"))
        await ended(second, "t2")
        assert len(list(folders.runtime.glob("*.sock"))) == 2
        assert (await second.observe("t1")).state is ProcessState.RUNNING
        go.touch()
        assert (await ended(second, "t1")).exit_code == 0
        assert old.process is not None
        assert await asyncio.to_thread(old.process.wait, 30) == 0


def zygote_pid(folders: Folders) -> int:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"zygote.py" in command and folders.marker.encode() in command:
                return int(entry.name)
    raise AssertionError("there is no zygote")
