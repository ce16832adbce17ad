"""An open page is told what changes, soon but not too often, and costs nothing once it is closed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from wingbeat.resources import ActionId
from wingbeat.server.pages import live

from . import made
from .conftest import Served
from .made import P

RUNS = "/v2/domain/development/project/shop/runs"


class Stream:
    """Reads server-sent events."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.comments = 0
        self._lines = response.aiter_lines()

    async def next(self) -> tuple[str, Any, str]:
        """Name, data and id of the next event; "" and None at the end."""
        name, data, id = "", None, ""
        async for line in self._lines:
            field, _, value = line.partition(": ")
            if line.startswith(":"):
                self.comments += 1
            elif field == "event":
                name = value
            elif field == "data":
                data = json.loads(value)
            elif field == "id":
                id = value
            elif not line and name:
                return name, data, id
        return "", None, ""


@asynccontextmanager
async def opened(served: Served, path: str, **headers: str) -> AsyncIterator[Stream]:
    async with served.http.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-store"
        yield Stream(response)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def running(served: Served) -> ActionId:
    root = await served.make.root()
    await served.make.go(root, P.RUNNING)
    return root


async def now(served: Served) -> int:
    return served.db.revision


async def test_a_change_reaches_an_open_page(served: Served) -> None:
    root = await running(served)
    async with opened(served, f"{RUNS}/run-1/live?after={await now(served)}") as stream:
        await until(lambda: served.feed.watchers == 1)
        child = await served.make.action(root.run_id, "child", parent="a0", name="step")
        await served.make.go(child, P.FAILED, error=made.ErrorInfo(message="<b>no</b>", code="Boom"))
        seen = ""
        while "failed" not in seen:
            name, data, _ = await stream.next()
            assert name == "update"
            seen = data["rows"][-1][2]
        assert "&lt;b&gt;no" in seen
        assert "2 actions" in data["head"]
        assert any("1 failed" in html for _, html, _ in data["sums"])


async def test_a_page_that_connects_late_or_again_misses_nothing(served: Served) -> None:
    root = await running(served)
    seen_by_page = await now(served)
    first = await served.make.action(root.run_id, "one", parent="a0")
    async with opened(served, f"{RUNS}/run-1/live?after={seen_by_page}") as stream:
        _, data, id = await stream.next()
        assert [row[0] for row in data["rows"]] == [live.part_key("one")]
    await served.make.go(first, P.RUNNING)
    await served.make.action(root.run_id, "two", parent="a0")
    again = {"last-event-id": id}
    async with opened(served, f"{RUNS}/run-1/live?after={seen_by_page}", **again) as stream:
        _, data, _ = await stream.next()
        assert {row[0] for row in data["rows"]} == {live.part_key("one"), live.part_key("two")}


async def test_many_changes_come_in_few_updates_with_the_latest_state(served: Served) -> None:
    root = await running(served)
    clock = asyncio.get_running_loop().time
    async with opened(served, f"{RUNS}/run-1/live?after={await now(served)}") as stream:
        await until(lambda: served.feed.watchers == 1)
        begun = clock()
        children = [await served.make.action(root.run_id, f"c{index}", parent="a0", name="work") for index in range(60)]
        await asyncio.gather(*(served.make.go(child, P.SUCCEEDED) for child in children))
        updates = 0
        latest: dict[str, str] = {}
        while sum("succeeded" in html for html in latest.values()) < 60:
            _, data, _ = await stream.next()
            updates += 1
            latest.update((key, html) for key, _, html in data["rows"])
            assert len(data["rows"]) <= live.UPDATE_ROWS
        # 60 actions with 4 events each; a page is told at most four times a second.
        assert updates <= 2 + (clock() - begun) / live.LEAST_SECONDS


async def test_a_silent_stream_gives_signs_of_life(served: Served) -> None:
    await running(served)
    async with opened(served, f"{RUNS}/run-1/live?after={await now(served)}") as stream:
        reading = asyncio.ensure_future(stream.next())
        await until(lambda: stream.comments >= 2)
        reading.cancel()


async def test_the_stream_of_a_run_ends_with_the_run(served: Served) -> None:
    root = await running(served)
    async with opened(served, f"{RUNS}/run-1/live?after={await now(served)}") as stream:
        await served.make.go(root, P.SUCCEEDED)
        names = []
        while (event := await stream.next())[0]:
            names.append(event[0])
        assert names[-1] == "over"
    assert served.feed.watchers == 0


async def test_a_closed_page_leaves_nothing_behind(served: Served) -> None:
    root = await running(served)
    async with opened(served, f"{RUNS}/run-1/live"), opened(served, f"{RUNS}/run-1/logs?i=a0&attempt=1"):
        await until(lambda: served.feed.watchers == 1 and served.make.logs.followers == 1)
    await until(lambda: served.feed.watchers == 0 and served.make.logs.followers == 0)
    await until(lambda: served.server.app.in_flight == 0)
    assert root


async def test_a_server_that_stops_ends_streams_at_once(served: Served) -> None:
    await running(served)
    async with opened(served, f"{RUNS}/run-1/live?after={await now(served)}") as stream:
        await until(lambda: served.feed.watchers == 1)
        async with asyncio.timeout(3):
            await served.server.stop(30)
        try:
            assert (await stream.next())[0] == ""
        except httpx.RemoteProtocolError:
            pass
    assert served.feed.watchers == 0


async def test_more_open_pages_than_the_limit_are_refused_in_words(served: Served, monkeypatch: Any) -> None:
    await running(served)
    monkeypatch.setattr(live, "MAX_STREAMS", 1)
    async with opened(served, f"{RUNS}/run-1/live"):
        response = await served.http.get(f"{RUNS}/run-1/live")
        assert response.status_code == 503
        assert "too many pages are open" in response.text


async def test_a_log_is_followed_to_its_end(served: Served) -> None:
    root = await running(served)
    logs = served.make.logs
    logs.write(root, 1, "before <i>")
    async with opened(served, f"{RUNS}/run-1/logs?i=a0&attempt=1") as stream:
        name, data, _ = await stream.next()
        assert (name, data["first"]) == ("lines", True)
        assert "before &lt;i&gt;" in data["html"]
        logs.write(root, 1, "\x1b[31mafter\x1b[0m")
        name, data, _ = await stream.next()
        assert (name, data["first"]) == ("lines", False)
        assert ">after\n<" in data["html"]
        logs.end(root, 1)
        assert (await stream.next())[0] == "over"


async def test_a_log_that_is_too_fast_costs_no_more_than_its_last_lines(served: Served) -> None:
    root = await running(served)
    logs = served.make.logs
    logs.write(root, 1, *(f"early {index}" for index in range(20)))
    async with opened(served, f"{RUNS}/run-1/logs?i=a0&attempt=1") as stream:
        await stream.next()
        logs.write(root, 1, *(f"line {index}" for index in range(20_000)))
        logs.end(root, 1)
        told = 0
        shown = 0
        while (event := await stream.next())[0] == "lines":
            shown += event[1]["html"].count('class="line"')
            if event[1]["note"]:
                told += int(event[1]["note"].split()[0].lstrip("(").replace(",", ""))
        assert shown + told == 20_000
        assert shown < 5_000


async def test_parts_of_the_page_are_json(served: Served) -> None:
    await made.failure(served.make)
    run = f"{RUNS}/brisk-heron-7"
    panel = await served.http.get(f"{run}/panel?i=train3b")
    assert panel.headers["content-type"] == "application/json"
    assert "depth must be positive" in panel.json()["html"]
    branch = await served.http.get(f"{run}/branch?i=a0&limit=50")
    assert 'data-limit="50"' in branch.json()["html"]
    assert (await served.http.get(f"{run}/panel?i=nothing")).status_code == 404
