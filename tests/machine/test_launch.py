from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from machine_support import GIB, Folders, action, ended, reached, until

from wingbeat.machine import BudgetSettings, LaunchError, LaunchSpec, ProcessState
from wingbeat.resources import ActionId


async def test_a_command_runs_and_its_exit_code_and_output_are_kept(folders: Folders) -> None:
    async with folders.running() as machine:
        await machine.launch(folders.spec("t1", "sh", "-c", "echo out; echo err >&2; exit 3"))
        status = await ended(machine, "t1")
        assert (status.state, status.exit_code, status.signal) == (ProcessState.EXITED, 3, None)
        assert status.started_at is not None and status.ended_at is not None and status.started_at <= status.ended_at
        assert status.max_rss > 0
        assert sorted(folders.output("t1")) == ["err", "out"]
        assert [text for who, text in folders.log("t1") if who == "system"] == [
            f"attempt 1 started, pid {status.pid}",
            "ended with exit code 3",
        ]


async def test_a_process_gets_its_environment_and_nothing_of_the_servers(folders: Folders) -> None:
    code = """
import json, os, resource
print(json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "leader": os.getsid(0) == os.getpid(),
    "stdin": os.read(0, 1).decode(), "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
    "oom": int(open("/proc/self/oom_score_adj").read()), "fds": sorted(map(int, os.listdir("/proc/self/fd")))[:-1]}))
"""
    async with folders.running() as machine:
        spec = folders.python("t1", code, env={"ONE": "1 = é"}, secret_env={"PASSWORD": "hunter2"})
        await machine.launch(spec)
        assert (await ended(machine, "t1")).exit_code == 0
        seen = json.loads(folders.output("t1")[0])
        env = seen["env"]
        assert env.pop("PATH").split(":")[0] == str(Path(sys.executable).parent)
        assert Path(env.pop("HOME")).is_dir()
        env.pop("LC_CTYPE", None)  # the interpreter's own
        assert env == {
            "ONE": "1 = é",
            "PASSWORD": "hunter2",
            "PYTHONUNBUFFERED": "1",
            "WINGBEAT_TOKEN": "t1",
            "WINGBEAT_DATA": folders.marker,
        }
        assert seen["cwd"] == str(folders.state / "t1" / "work")
        assert (seen["leader"], seen["stdin"], seen["core"], seen["oom"]) == (True, "", 0, 500)
        assert seen["fds"] == [0, 1, 2]
        written = [file.read_bytes() for file in folders.state.rglob("*") if file.is_file()]
        assert written and not any(b"hunter2" in content for content in written)


async def test_a_token_is_started_once_however_often_it_is_asked_for(folders: Folders) -> None:
    stamps = folders.state.parent / "stamps"
    async with folders.running() as machine:
        spec = folders.spec("t1", "sh", "-c", f"echo ran >> {stamps}")
        await machine.launch(spec)
        await machine.launch(spec)
        await ended(machine, "t1")
        await machine.launch(spec)
        assert (await machine.observe("t1")).state is ProcessState.EXITED
        assert stamps.read_text() == "ran\n"


async def test_what_cannot_be_run_says_so_and_ends_as_a_shell_would(folders: Folders) -> None:
    async with folders.running() as machine:
        await machine.launch(folders.spec("t1", "no-such-program"))
        assert (await ended(machine, "t1")).exit_code == 127
        assert "cannot run 'no-such-program': No such file or directory" in folders.output("t1")[0]


async def test_an_end_by_a_signal_is_told_apart_from_an_exit(folders: Folders) -> None:
    async with folders.running() as machine:
        await machine.launch(folders.spec("t1", "sh", "-c", "kill -SEGV $$"))
        status = await ended(machine, "t1")
        assert (status.exit_code, status.signal, status.killed, status.out_of_memory) == (None, 11, "", False)
        assert ("system", "ended by signal 11 (SIGSEGV)") in folders.log("t1")


async def test_every_change_of_state_is_told(folders: Folders) -> None:
    told: list[ActionId] = []
    async with folders.running() as machine:
        machine.on_change(told.append)
        await machine.launch(folders.spec("t1", "cat", "/dev/null"))
        await ended(machine, "t1")
        await until(lambda: len(told) >= 2)
        assert set(told) == {action("t1")}


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (
            {"memory": 5 * GIB},
            "ResourcesExceedMachine",
            "asks for 5 GiB of memory, and this machine gives its tasks 4 GiB",
        ),
        ({"gpus": 2}, "ResourcesExceedMachine", "asks for 2 GPUs, and this machine has none"),
        ({"interpreter": "/no/python"}, "InterpreterNotFound", "no Python to run it at /no/python"),
        ({"interpreter": "/bin/false"}, "InterpreterNotUsable", "/bin/false ended with status 1"),
        ({"token": "../x"}, "InvalidToken", "cannot be the name of a launch"),
        ({"argv": ()}, "InvalidCommand", "no command"),
    ],
)
async def test_a_launch_that_can_never_work_is_refused_in_words(
    folders: Folders, change: dict[str, object], code: str, words: str
) -> None:
    async with folders.running() as machine:
        fields = {name: getattr(folders.spec("t1", "true"), name) for name in LaunchSpec.__struct_fields__}
        with pytest.raises(LaunchError) as refused:
            await machine.launch(LaunchSpec(**{**fields, **change}))
        assert refused.value.code == code
        assert words in refused.value.message
        assert (await machine.observe("t1")).state is ProcessState.UNKNOWN


async def test_more_cpus_than_there_are_run_with_all_of_them_and_the_status_says_so(folders: Folders) -> None:
    async with folders.running(budget=BudgetSettings(cpus=2, memory=GIB)) as machine:
        await machine.launch(folders.spec("t1", "sleep", "60", cpus=4))
        status = await reached(machine, "t1", ProcessState.RUNNING)
        assert status.reason == "asks for 4 CPUs and gets the 2 CPUs that this machine has"


async def test_a_process_waits_for_its_share_and_says_for_what(folders: Folders) -> None:
    async with folders.running(budget=BudgetSettings(cpus=1, memory=GIB)) as machine:
        await machine.launch(folders.spec("t1", "sleep", "60"))
        await machine.launch(folders.spec("t2", "true"))
        assert await machine.observe("t2") == await reached(machine, "t2", ProcessState.WAITING)
        assert (await machine.observe("t2")).reason == "waits for 1 CPU: 1 of 1 in use by r1/t1"
        machine.set_waiting(action("t1"), True)
        assert (await ended(machine, "t2")).exit_code == 0
        assert (await machine.observe("t1")).state is ProcessState.RUNNING


async def test_a_forgotten_launch_leaves_nothing_unless_its_work_is_kept_and_that_is_bounded(folders: Folders) -> None:
    async with folders.running(kept_work=2) as machine:
        for token in ("t1", "t2", "t3", "t4"):
            await machine.launch(folders.spec(token, "sh", "-c", "echo x > made-by-me"))
            await ended(machine, token)
        await machine.forget("t1")
        assert (await machine.observe("t1")).state is ProcessState.UNKNOWN
        for token in ("t2", "t3", "t4"):
            await machine.forget(token, keep_work=True)
        await machine.forget("never-heard-of")
        assert [path.name for path in folders.state.iterdir()] == ["+kept"]
        assert sorted(path.name for path in (folders.state / "+kept").iterdir()) == ["t3", "t4"]
        assert (folders.state / "+kept" / "t4" / "made-by-me").read_text() == "x\n"


async def test_a_running_launch_cannot_be_forgotten(folders: Folders) -> None:
    async with folders.running() as machine:
        await machine.launch(folders.spec("t1", "sleep", "60"))
        with pytest.raises(RuntimeError, match="t1 has not ended"):
            await machine.forget("t1")


async def test_folders_and_sockets_are_for_their_owner_only(folders: Folders) -> None:
    async with folders.running() as machine:
        await machine.warm(sys.executable)
        sockets = list(folders.runtime.glob("*.sock"))
        assert [path.stat().st_mode & 0o777 for path in (folders.state, folders.runtime, *sockets)] == [
            0o700,
            0o700,
            0o600,
        ]
