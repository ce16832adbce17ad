"""Real Flyte tasks, run by the SDK's own `a0`."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from pathlib import Path

import pytest
from machine_support import Folders, ended, reached, until

from wingbeat.machine import LaunchSpec, LocalMachine, ProcessState

TASKS = """
import asyncio, os, sys, time
import flyte

env = flyte.TaskEnvironment(name="e")

@env.task
async def hello() -> int:
    import fsspec.config
    print("value", os.environ.get("VALUE"), "fsspec", fsspec.config.conf, "argv0", sys.argv[0], os.getcwd())
    import multiprocessing
    return 7

@env.task
def fails() -> int:
    raise ValueError("on purpose")

@env.task
def exits() -> int:
    print("no newline", end="")
    sys.stdout.flush()
    os._exit(9)

@env.task
def hangs() -> int:
    import atexit
    print("up")
    time.sleep(600)
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "code.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("tiny_tasks.py")
        entry.size = len(TASKS)
        archive.addfile(entry, io.BytesIO(TASKS.encode()))
    (tmp_path / "inputs.pb").write_bytes(b"")
    return path


def a0(folders: Folders, bundle: Path, token: str, task: str, module: str = "tiny_tasks", **env: str) -> LaunchSpec:
    root = bundle.parent
    out = root / "out" / token
    out.mkdir(parents=True)
    argv = f"""a0 --inputs {root}/inputs.pb --outputs-path {out} --version v1 --raw-data-path {root}/raw
        --checkpoint-path {out}/checkpoints --prev-checkpoint "" --run-name r1 --name {token}
        --run-start-time 2026-01-01T00:00:00Z --tgz {bundle} --dest .
        --resolver flyte._internal.resolvers.default.DefaultTaskResolver mod {module} instance {task}"""
    return folders.spec(
        token,
        *argv.split(),
        env={
            "PATH": os.environ["PATH"],
            "_U_EP_OVERRIDE": "http://127.0.0.1:1",
            "_U_INSECURE": "1",
            "_U_ORG_NAME": "local",
            "_U_RUN_BASE": f"{root}/base",
            "_U_USE_ACTIONS": "1",
            "FLYTE_INTERNAL_EXECUTION_PROJECT": "flytesnacks",
            "FLYTE_INTERNAL_EXECUTION_DOMAIN": "development",
            "RUN_NAME": "r1",
            "ACTION_NAME": token,
            "FSSPEC_FILE": '{"auto_mkdir": true}',
            **env,
        },
    )


def outputs(bundle: Path, token: str) -> list[str]:
    return sorted(path.name for path in (bundle.parent / "out" / token).iterdir())


@pytest.mark.parametrize("mode", ["zygote", "spawn"])
async def test_a_task_runs_and_fails_the_same_forked_or_in_a_fresh_interpreter(
    folders: Folders, bundle: Path, mode: str
) -> None:
    async with folders.running(mode=mode) as machine:
        hello = await machine.warm(sys.executable)
        assert hello["mode"] == ("fork" if mode == "zygote" else "spawn")
        await machine.launch(a0(folders, bundle, "good", "hello", VALUE="41"))
        await machine.launch(a0(folders, bundle, "bad", "fails"))
        await machine.launch(a0(folders, bundle, "gone", "exits"))
        await machine.launch(a0(folders, bundle, "missing", "hello", module="no_such_module"))
        for token, code, files in (
            ("good", 0, ["outputs.pb"]),
            ("bad", 0, ["error.pb"]),
            ("gone", 9, []),
            ("missing", 1, ["error.pb"]),
        ):
            status = await ended(machine, token, 60)
            assert (token, status.exit_code, outputs(bundle, token)) == (token, code, files)
        line = next(text for text in folders.output("good") if text.startswith("value"))
        assert line.startswith("value 41 fsspec {'file': {'auto_mkdir': True}} argv0 ")
        assert line.endswith(str(folders.state / "good" / "work"))
        assert any("on purpose" in text for text in folders.output("bad"))
        assert "no newline" in folders.output("gone")


async def test_a_forked_task_follows_its_own_environment_not_the_zygotes(folders: Folders, bundle: Path) -> None:
    async with folders.running(mode="zygote", interpreter_env={"VALUE": "of the zygote"}) as machine:
        await machine.launch(a0(folders, bundle, "t1", "hello", FSSPEC_MEMORY='{"x": 1}'))
        assert (await ended(machine, "t1")).exit_code == 0
        line = next(text for text in folders.output("t1") if text.startswith("value"))
        assert "value None fsspec {'file': {'auto_mkdir': True}, 'memory': {'x': 1}}" in line


async def test_a_variable_that_only_a_new_interpreter_follows_gets_one(folders: Folders, bundle: Path) -> None:
    async with folders.running(mode="zygote") as machine:
        await machine.launch(a0(folders, bundle, "t1", "hello", PYTHONHASHSEED="7"))
        assert (await ended(machine, "t1")).exit_code == 0
        assert (
            "system",
            "started with a fresh interpreter, because the environment sets PYTHONHASHSEED",
        ) in folders.log("t1")


async def test_a_forked_task_is_killed_and_carries_its_token_though_it_never_ran_exec(
    folders: Folders, bundle: Path
) -> None:
    async with folders.running(mode="zygote") as machine:
        await machine.launch(a0(folders, bundle, "t1", "hangs"))
        await until(lambda: "up" in folders.output("t1"))
        assert folders.alive() == {"t1"}
        await machine.kill("t1", why="abort")
        status = await machine.observe("t1")
        assert (status.state, status.signal) == (ProcessState.EXITED, 15)


async def test_an_sdk_whose_internals_changed_is_spawned_and_that_is_said(folders: Folders, bundle: Path) -> None:
    # A sitecustomize-like preload is not possible from outside; a preloaded module that starts a thread is.
    extra = bundle.parent / "extra"
    extra.mkdir()
    (extra / "starts_a_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True, name='mine').start()\n"
    )
    settings = {"interpreter_env": {"PYTHONPATH": str(extra)}, "preload": ["starts_a_thread"]}
    async with folders.running(mode="zygote", **settings) as machine:
        hello = await machine.warm(sys.executable)
        assert hello["mode"] == "spawn"
        assert "2 threads are running (MainThread, mine), and only one may when forking" in hello["why"]
        await machine.launch(a0(folders, bundle, "t1", "hello"))
        assert (await ended(machine, "t1", 60)).exit_code == 0
        assert outputs(bundle, "t1") == ["outputs.pb"]


async def test_a_forked_task_is_ready_when_its_runtime_is_and_frees_its_turn_to_start(
    folders: Folders, bundle: Path
) -> None:
    machine: LocalMachine
    from wingbeat.machine import BudgetSettings

    async with folders.running(mode="zygote", budget=BudgetSettings(cpus=4, memory=1 << 32, startups=1)) as machine:
        await machine.launch(a0(folders, bundle, "t1", "hangs"))
        await machine.launch(a0(folders, bundle, "t2", "hello"))
        assert (await ended(machine, "t2")).exit_code == 0
        assert (await reached(machine, "t1", ProcessState.RUNNING)).pid > 0
