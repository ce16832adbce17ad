from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import os

from machine_support import Folders, ended, until

from wingbeat.machine import LogLine, append_note, follow_log, log_files, read_log, remove_log


async def test_lines_come_with_the_time_at_which_they_were_written(folders: Folders) -> None:
    async with folders.running() as machine:
        before = dt.datetime.now(dt.UTC)
        await machine.launch(folders.spec("t1", "sh", "-c", "echo one; sleep 0.3; echo two"))
        await ended(machine, "t1")
        one, two = [line for line in read_log(folders.logs / "t1.log") if line.originator == "user"]
        assert before <= one.timestamp and dt.timedelta(seconds=0.25) < two.timestamp - one.timestamp


async def test_a_line_that_has_not_ended_is_shown_after_a_while_and_goes_on(folders: Folders) -> None:
    go = folders.state.parent / "go"
    async with folders.running() as machine:
        wait = f"printf 'name? '; while [ ! -e {go} ]; do sleep 0.02; done; echo Ada"
        await machine.launch(folders.spec("t1", "sh", "-c", wait))
        await until(lambda: folders.output("t1"))
        go.touch()
        await ended(machine, "t1")
        lines = [line for line in read_log(folders.logs / "t1.log") if line.originator == "user"]
        assert [(line.text, line.complete) for line in lines] == [("name? ", False), ("Ada", True)]


async def test_long_lines_and_strange_bytes_arrive_in_pieces_without_loss(folders: Folders) -> None:
    code = r"import os; os.write(1, b'x' * 100_000 + b'\n\n' + b'\xff\x00\r' + b'\n' + b'no end')"
    async with folders.running() as machine:
        await machine.launch(folders.python("t1", code))
        await ended(machine, "t1")
        lines = [line for line in read_log(folders.logs / "t1.log") if line.originator == "user"]
        assert all(len(line.text) <= 16 * 1024 for line in lines)
        text = "".join(line.text + ("\n" if line.complete else "") for line in lines)
        assert text == "x" * 100_000 + "\n\n\ufffd\x00\r\nno end\n"


async def test_a_log_over_its_limit_keeps_head_and_tail_and_says_where_it_was_cut(folders: Folders) -> None:
    code = "for number in range(40_000): print(f'line {number:06}')"
    async with folders.running() as machine:
        await machine.launch(folders.python("t1", code, log_limit=200_000))
        await ended(machine, "t1")
        size = sum(file.stat().st_size for file in log_files(folders.logs / "t1.log"))
        assert size < 210_000 + 3 * 65_536  # a piece ends with the block that fills it
        lines = list(read_log(folders.logs / "t1.log"))
        texts = [line.text for line in lines]
        cut = texts.index("... the log passed its limit; a part is missing here ...")
        assert lines[cut].originator == "system"
        assert texts[1] == "line 000000" and texts[-1] == "line 039999"
        numbers = [int(text[5:]) for text in texts if text.startswith("line ")]
        assert numbers == sorted(numbers)
        gaps = [later for earlier, later in itertools.pairwise(numbers) if later != earlier + 1]
        assert len(gaps) == 1
        remove_log(folders.logs / "t1.log")
        assert log_files(folders.logs / "t1.log") == []


async def test_followed_lines_come_while_it_runs_and_end_with_it(folders: Folders) -> None:
    go = folders.state.parent / "go"
    async with folders.running() as machine:
        wait = f"echo one; while [ ! -e {go} ]; do sleep 0.02; done; echo two"
        seen: list[LogLine] = []

        async def follow() -> None:
            async for line in follow_log(folders.logs / "t1.log", lambda: machine.wait_ended("t1")):
                seen.append(line)

        await machine.launch(folders.spec("t1", "sh", "-c", wait))
        task = asyncio.create_task(follow())
        await until(lambda: any(line.text == "one" for line in seen))
        assert not task.done()
        go.touch()
        await asyncio.wait_for(task, 10)
        assert [line.text for line in seen if line.originator == "user"] == ["one", "two"]


async def test_following_across_pieces_loses_nothing_that_is_still_there(folders: Folders) -> None:
    code = (
        "import time\nfor number in range(3000):\n  print(f'line {number:06}')\n  if number % 300 == 0: time.sleep(0.1)"
    )
    async with folders.running() as machine:
        seen: list[str] = []
        await machine.launch(folders.python("t1", code, log_limit=80_000))
        async for line in follow_log(folders.logs / "t1.log", lambda: machine.wait_ended("t1"), poll=0.02):
            seen.append(line.text)
        assert [text for text in seen if text.startswith("line")] == [f"line {number:06}" for number in range(3000)]


async def test_a_log_that_is_not_there_is_empty_and_can_be_followed(folders: Folders) -> None:
    path = folders.logs / "none.log"
    assert list(read_log(path)) == []

    async def at_once() -> None:
        return None

    assert [line async for line in follow_log(path, at_once)] == []
    append_note(path, "made by hand")
    assert [(line.originator, line.text) for line in read_log(path)] == [("system", "made by hand")]


async def test_a_full_or_closed_log_does_not_stop_the_process(folders: Folders) -> None:
    async with folders.running() as machine:
        spec = folders.spec("t1", "sh", "-c", "echo lost; echo done > proof", log_path="/dev/full/x.log")
        await machine.launch(spec)
        assert (await ended(machine, "t1")).exit_code == 0
        assert os.path.exists(folders.state / "t1" / "work" / "proof")  # noqa: PTH110
