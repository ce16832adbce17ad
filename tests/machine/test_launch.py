from __future__ import annotations

from machine_support import Folders, ended

from wingbeat.machine import ProcessState


async def test_a_command_runs_and_its_exit_code_and_output_are_kept(folders: Folders) -> None:
    async with folders.running() as machine:
        await machine.launch(folders.spec("t1", "sh", "-c", "echo out; echo err >&2; exit 3"))
        status = await ended(machine, "t1")
        assert (status.state, status.exit_code, status.signal) == (ProcessState.EXITED, 3, None)
        assert sorted(folders.output("t1")) == ["err", "out"]
        assert [text for who, text in folders.log("t1") if who == "system"] == [
            f"attempt 1 started, pid {status.pid}",
            "ended with exit code 3",
        ]
