"""The pages in a real browser: live without losing one's place, usable by keyboard, and closed to hostile HTML."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from wingbeat.resources import ErrorInfo
from wingbeat.server.pages import lists

from . import browser, made
from .conftest import Served
from .made import P
from .test_hostile import NASTY, hostile

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(browser.find() is None, reason="no Chromium here (apt-get install chromium)"),
]
RUNS = "/v2/domain/development/project/shop/runs"


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[browser.Tab]:
    async with browser.started(tmp_path / "profile") as started:
        yield await started.tab()


async def test_a_run_updates_by_itself_and_the_reader_stays_where_they_were(served: Served, tab: browser.Tab) -> None:
    run = await made.fan_out(served.make, size=60)
    await tab.size(1100, 500)
    await tab.go(f"{served.url}{RUNS}/{run.run}?i=prepare")
    await tab.until("document.querySelectorAll('#tree .row').length > 20")
    # The reader closes a branch of an action, scrolls, and reads one action.
    await tab.run("document.querySelector('#tree li.group ul details').open = false; scrollTo(0, 300)")
    place = await tab.run("scrollY")
    assert place > 0
    await served.make.go(
        run.action("sq00015"), P.FAILED, attempt=2, took=9, error=ErrorInfo(message="late", code="Late")
    )
    child = await served.make.action(run, "publish", parent="a0", name="publish", at=20)
    await tab.until("document.body.textContent.includes('publish')")
    await served.make.go(child, P.RUNNING)
    await tab.until("[...document.querySelectorAll('.row')].some(r => /running[^]*publish/.test(r.textContent))")
    assert await tab.run("scrollY") == place
    assert await tab.run("document.querySelector('#tree li.group ul details').open") is False
    assert await tab.run("document.querySelector('#action .panel').dataset.i") == "prepare"
    await served.make.go(run.action("a0"), P.SUCCEEDED, took=30)
    await tab.until("document.querySelector('h1').textContent.includes('succeeded')")
    assert tab.complaints == []


async def test_a_first_child_and_a_whole_fan_out_appear_live(served: Served, tab: browser.Tab) -> None:
    root = await served.make.root("grows")
    await served.make.go(root, P.RUNNING)
    await tab.go(f"{served.url}{RUNS}/grows")
    for index in range(45):
        await served.make.action(root.run_id, f"n{index:02d}", parent="a0", name="work", at=1 + index)
    await tab.until("document.querySelector('#tree').textContent.includes('work × 45')")
    assert await tab.run("document.querySelectorAll('#tree .group .row').length") == 20
    await tab.run("document.querySelector('#tree a.more').click()")
    await tab.until("document.querySelectorAll('#tree .group .row').length === 45")
    assert await tab.run("location.search") == ""
    # Once asked for, they stay when more come.
    await served.make.action(root.run_id, "n99", parent="a0", name="work", at=99)
    await tab.until("document.querySelectorAll('#tree .group .row').length === 46")
    assert tab.complaints == []


async def test_an_action_is_chosen_with_the_keyboard_and_the_way_back_works(served: Served, tab: browser.Tab) -> None:
    run = await made.failure(served.make)
    await tab.go(f"{served.url}{RUNS}/{run.run}")
    await tab.run("document.querySelector('a[data-choose=train3b]').focus()")
    await tab.key("Enter", 13)
    await tab.until("document.querySelector('#action .panel').dataset.i === 'train3b'")
    assert await tab.run("location.search") == "?i=train3b"
    assert "depth must be positive" in await tab.run("document.querySelector('#action').textContent")
    assert await tab.run("document.activeElement.id") == "action"
    assert await tab.run("document.querySelectorAll('a[aria-current]').length") == 1
    await tab.run("history.back()")
    await tab.until("document.querySelector('#action .panel').dataset.i === 'a0'")
    assert tab.complaints == []


async def test_a_log_grows_while_it_is_read(served: Served, tab: browser.Tab) -> None:
    root = await served.make.root("talks")
    await served.make.go(root, P.RUNNING)
    served.make.logs.write(root, 1, "first line")
    await tab.go(f"{served.url}{RUNS}/talks")
    await tab.until("document.querySelector('pre.log')?.textContent.includes('first line')")
    served.make.logs.write(root, 1, *(f"line {index}" for index in range(200)))
    await tab.until("document.querySelector('pre.log').textContent.includes('line 199')")
    assert await tab.run("document.querySelector('pre.log').textContent.split('first line').length") == 2
    assert await tab.run("(l => l.scrollHeight - l.scrollTop - l.clientHeight < 5)(document.querySelector('pre.log'))")
    # Who reads further up is not pulled down.
    await tab.run("document.querySelector('pre.log').scrollTop = 0")
    served.make.logs.write(root, 1, "one more")
    await tab.until("document.querySelector('pre.log').textContent.includes('one more')")
    assert await tab.run("document.querySelector('pre.log').scrollTop") == 0
    # Lines that come after the action was seen to end are not lost.
    await served.make.go(root, P.SUCCEEDED, logs_available=True)
    await tab.until("document.querySelector('#action h2').textContent.includes('succeeded')")
    served.make.logs.write(root, 1, "last words")
    served.make.logs.end(root, 1)
    await tab.until("document.querySelector('pre.log').textContent.includes('last words')")
    await tab.until("!document.querySelector('pre.log').dataset.stream")
    assert "✓" in await tab.run("document.title")
    assert tab.complaints == []


async def test_lists_refresh(served: Served, tab: browser.Tab, monkeypatch: Any) -> None:
    monkeypatch.setattr(lists, "POLL_SECONDS", 1)
    await tab.go(f"{served.url}/")
    assert "No runs yet" in await tab.run("document.body.textContent")
    await served.make.root("appears")
    await tab.until("document.body.textContent.includes('appears')")
    assert tab.complaints == []


async def test_without_script_the_whole_page_is_there(served: Served, tab: browser.Tab) -> None:
    run = await made.failure(served.make)
    await tab.call("Emulation.setScriptExecutionDisabled", value=True)
    await tab.call("Page.navigate", url=f"{served.url}{RUNS}/{run.run}?i=train3b")
    await tab.until("document.readyState === 'complete' && location.search === '?i=train3b'")
    text = await tab.run("document.body.innerText")
    for part in ("brisk-heron-7", "load", "publish", "Attempt 2", "depth must be positive", "2031-05-06 07:08:09 UTC"):
        assert part in text


async def test_a_phone_needs_no_sideways_scrolling(served: Served, tab: browser.Tab) -> None:
    await made.fan_out(served.make, size=30)
    await made.failure(served.make)
    await made.success(served.make)
    await tab.size(390, 800)
    for path in ("/", RUNS, f"{RUNS}/quiet-crane-3", f"{RUNS}/brisk-heron-7?i=train3b", f"{RUNS}/calm-otter-12"):
        await tab.go(f"{served.url}{path}")
        assert await tab.run("document.documentElement.scrollWidth") <= 390, path


async def test_nothing_hostile_runs_or_leaves(served: Served, tab: browser.Tab) -> None:
    for index, text in enumerate(NASTY):
        run = await hostile(served.make, text, index)
        for part in ("", "?i=other", "?show=all"):
            await tab.go(f"{served.url}{RUNS}/{run.run}{part}")
            assert await tab.run("document.querySelector('h1') !== null && !document.querySelector('img, svg')")
    assert tab.dialogs == 0
    # The only complaint there may be is on what a report tried.
    assert [c for c in tab.complaints if "sandbox" not in c] == []


async def test_a_report_draws_but_reaches_neither_the_page_nor_the_server(
    served: Served, tab: browser.Tab, monkeypatch: Any
) -> None:
    asked: list[str] = []
    serve = served.server.app._serve

    async def noted(app: Any, scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"] + "?" + scope["query_string"].decode())
        await serve(app, scope, receive, send)

    monkeypatch.setattr(served.server.app, "_serve", noted)
    root = await served.make.root("reports")
    report = served.make.storage.join("report.html")
    await served.make.storage.put(
        report,
        f"""<body><script>
        const tries = [
          () => parent.document.body.append("STOLEN"),
          () => parent === window || (top.location = "{served.url}/?tried=top"),
          () => fetch("{served.url}/?tried=fetch"), () => navigator.sendBeacon("{served.url}/?tried=beacon"),
          () => new Image().src = "{served.url}/?tried=image", () => open("{served.url}/?tried=popup"),
          () => new EventSource("{served.url}/?tried=events"), () => localStorage.setItem("a", "b"),
          () => {{ const f = document.createElement("form"); f.action = "{served.url}/?tried=form";
                   document.body.append(f); f.submit(); }},
          () => {{ const f = document.createElement("iframe"); f.src = "{served.url}/?tried=frame";
                   document.body.append(f); }},
          () => alert("hello"),
        ];
        for (const each of tries) try {{ each(); }} catch {{}}
        document.body.append("drawn");
        parent.postMessage("drawn", "*");
        </script>""".encode(),
    )
    await served.make.go(root, P.SUCCEEDED, report_uri=report)
    await tab.call(
        "Page.addScriptToEvaluateOnNewDocument",
        source="addEventListener('message', (e) => { window.heard = [e.data, e.origin]; })",
    )
    await tab.go(f"{served.url}{RUNS}/reports")
    await tab.run("document.querySelector('iframe').scrollIntoView()")
    await tab.until("window.heard")
    assert await tab.run("window.heard") == ["drawn", "null"]
    await tab.run("new Promise((done) => requestIdleCallback(done))")
    assert [path for path in asked if "tried" in path] == []
    assert any("/reports/report?" in path for path in asked)
    assert "STOLEN" not in await tab.run("document.body.textContent")
    assert await tab.run("location.pathname") == f"{RUNS}/reports"
    assert tab.dialogs == 0
    # Alone in a tab of its own it is no better off.
    await tab.go(f"{served.url}{RUNS}/reports/report?i=a0&attempt=1")
    await tab.until("document.body.textContent.includes('drawn')")
    await asyncio.gather(*(served.http.get("/healthz") for _ in range(3)))
    assert [path for path in asked if "tried" in path] == []
