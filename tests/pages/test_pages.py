"""What people find behind the links."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import quote

import httpx
import pytest

from wingbeat.resources import ActionEvent, ActionPhase, ActionType, ErrorInfo

from . import made
from .conftest import Served
from .made import START, P

RUNS = "/v2/domain/development/project/shop/runs"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data: 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'"
)


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


async def test_the_home_page_tells_where_things_are_and_how_to_start(served: Served) -> None:
    page = text_of(await served.page("/"))
    assert "http://127.0.0.1:8090" in page
    assert served.make.storage.base_uri in page
    assert "flyte --endpoint 127.0.0.1:8090 --insecure run hello.py main" in page
    assert "No runs yet" in page


async def test_the_home_page_lists_runs_of_all_projects_newest_first(served: Served) -> None:
    await served.make.root("older", at=0)
    await served.make.root("newer", project="lab", at=5)
    page = await served.page("/")
    assert 0 < page.index(">newer<") < page.index(">older<")
    assert "/v2/domain/development/project/lab/runs/newer" in page


async def test_a_finished_run_shows_who_when_and_what(served: Served) -> None:
    await made.success(served.make)
    page = await served.page(f"{RUNS}/calm-otter-12")
    text = text_of(page)
    assert "ada from the command line" in text
    assert "2031-05-06 07:08:09 UTC" in text
    assert "4.3 s" in text
    assert "team=ml" in text
    assert "from the cache" in text
    assert "put in the cache" in text
    assert "data-live" not in page


async def test_an_action_shows_its_values_log_reasons_and_report(served: Served) -> None:
    await made.success(served.make)
    page = await served.page(f"{RUNS}/calm-otter-12")
    text = text_of(page)
    for part in ("Oslo", "&quot;name&quot;: &quot;Ada&quot;", "/data/raw/model.bin", "loading 3 files", "done in 0.2 s",
                 "started as process 4711", "team"):  # fmt: skip
        assert part in text, part
    assert "\x1b" not in page
    assert 'sandbox="allow-scripts"' in page


async def test_a_failed_action_shows_each_attempt_with_its_traceback(served: Served) -> None:
    await made.failure(served.make)
    page = await served.page(f"{RUNS}/brisk-heron-7?i=train3b")
    text = text_of(page)
    assert "Attempt 1" in text
    assert "Attempt 2" in text
    assert page.count("in fit\n") >= 2
    assert "no attempt is left" in text
    assert "Aborted: its parent failed" in text
    assert "fitting 12000 rows" in text
    first = text_of(await served.page(f"{RUNS}/brisk-heron-7?i=train3b&attempt=1"))
    assert "fitting 12000 rows" not in first
    assert (text_of(page).count("tried again"), "may be retried" in page) == (1, False)


async def test_the_link_to_an_action_that_the_client_prints_opens_it(served: Served) -> None:
    await made.failure(served.make)
    page = await served.page(f"{RUNS}/brisk-heron-7?i=load77")
    assert 'aria-label="Action load"' in page
    missing = await served.page(f"{RUNS}/brisk-heron-7?i=nothing")
    assert "The run has no action" in missing


async def test_an_action_that_waits_says_why(served: Served) -> None:
    await made.fan_out(served.make, size=10)
    page = text_of(await served.page(f"{RUNS}/quiet-crane-3?i=sq00009"))
    assert "Waits: 8 of 8 CPUs are taken; starts when one is free" in page


async def test_a_condition_shows_its_question_and_its_answer(served: Served) -> None:
    from flyteidl2.workflow.run_definition_pb2 import ConditionAction

    root = await served.make.root("asks")
    digest = await served.make.records.put_blob(
        ConditionAction(name="approve", prompt="Publish <now>?", description="The model is good.").SerializeToString()
    )
    id = await served.make.action(
        root.run_id, "approve", parent="a0", action_type=ActionType.CONDITION, spec_digest=digest
    )
    await served.make.go(id, P.PAUSED)
    waiting = await served.page(f"{RUNS}/asks?i=approve")
    assert "Publish &lt;now&gt;?" in waiting
    assert "flyte signal condition" in waiting
    answer = made.literal(True).SerializeToString()
    await served.make.records.apply(
        [ActionEvent(id=id, attempt=1, phase=P.SUCCEEDED, occurred_at=START, value=answer, signalled_by="grace")]
    )
    answered = text_of(await served.page(f"{RUNS}/asks?i=approve"))
    assert "Answered: true by grace" in answered


async def test_a_run_of_thousands_of_actions_is_a_small_page_that_leads_to_all_of_them(served: Served) -> None:
    root = await served.make.root("big")
    records = []
    for index in range(3_000):
        records.append(
            made.ActionRecord(id=root.run_id.action(f"n{index:04d}"), parent="a0", name="work", created_at=START)
        )
    await served.db.write(lambda c: [made_insert(c, record) for record in records])
    page = await served.page(f"{RUNS}/big")
    assert len(page) < 150_000
    assert "work" in page
    assert "× 3,000" in text_of(page)
    assert "Show more (2,980 not shown)" in page
    more = await served.page(f"{RUNS}/big?under=a0&limit=100")
    assert more.count('class="row"') == 101
    seen: set[str] = set()
    for start in range(0, 3_100, 100):
        listed = await served.page(f"{RUNS}/big?show=all&from={start}")
        seen.update(re.findall(r'data-choose="(\w+)"', listed))
    assert len(seen) == 3_001


def made_insert(c: object, record: made.ActionRecord) -> None:
    from wingbeat.database import insert_record

    insert_record(c, record)  # type: ignore[arg-type]


async def test_groups_and_fan_outs_are_folded_where_they_begin(served: Served) -> None:
    await made.fan_out(served.make, size=40)
    page = text_of(await served.page(f"{RUNS}/quiet-crane-3"))
    assert "group squares × 40" in page
    assert page.index("prepare") < page.index("group squares") < page.index("approve")
    assert "Show more (20 not shown)" in page


async def test_levels_beyond_what_fits_stay_closed_with_a_link_to_them(served: Served) -> None:
    root = await served.make.root("wide")
    for index in range(70):
        child = await served.make.action(root.run_id, f"c{index:02d}", parent="a0", name=f"c{index:02d}", at=index)
        await served.make.action(root.run_id, f"g{index:02d}", parent=child.action, name="leaf", at=index)
    page = await served.page(f"{RUNS}/wide")
    assert page.count("data-lazy") == 11
    assert "under=c69" in page
    below = await served.page(f"{RUNS}/wide?under=c69")
    assert 'data-choose="g69"' in below
    assert 'data-choose="c01"' not in below
    part = (await served.http.get(f"{RUNS}/wide/branch?i=c69")).json()
    assert 'data-choose="g69"' in part["html"]


async def test_lists_can_be_narrowed_to_a_state(served: Served) -> None:
    await made.success(served.make)
    await made.failure(served.make)
    both = await served.page(RUNS)
    assert "calm-otter-12" in both
    assert "brisk-heron-7" in both
    failed = await served.page(f"{RUNS}?show=failed")
    assert "calm-otter-12" not in failed
    assert "brisk-heron-7" in failed
    actions = await served.page(f"{RUNS}/brisk-heron-7?show=aborted")
    assert actions.count('class="row"') == 1


async def test_lists_of_runs_have_pages(served: Served) -> None:
    for index in range(55):
        await served.make.root(f"r{index:02d}", at=index)
    first = await served.page(RUNS)
    assert "1 to 50 of 55" in first
    second = await served.page(f"{RUNS}?from=50")
    assert "51 to 55 of 55" in second
    assert ">r04<" in second


async def test_a_task_lists_its_runs(served: Served) -> None:
    await made.success(served.make)
    page = await served.page("/v2/domain/development/project/shop/tasks/env.main")
    assert "calm-otter-12" in page
    none = await served.page("/v2/domain/development/project/shop/tasks/env.unknown")
    assert "No run was started with this task" in none


@pytest.mark.parametrize(
    ("kind", "text"),
    [("apps/shop", "does not serve apps yet"), ("triggers/env.main/nightly", "does not schedule them yet"),
     ("artifacts/model", "does not keep them yet"), ("tracked-runs/r1", "does not take reports yet"), ("apps", "Apps")],
)  # fmt: skip
async def test_what_is_not_there_yet_says_so(served: Served, kind: str, text: str) -> None:
    assert text in text_of(await served.page(f"/v2/domain/development/project/shop/{kind}"))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (f"{RUNS}/nothing", "There is no run nothing"),
        (f"{RUNS}/nothing/live", "There is no run nothing"),
        (f"{RUNS}/nothing/panel", "There is no action a0"),
        (f"{RUNS}?show=happy", "Runs can be listed by"),
        ("/v2/domain/development/project/shop/gadgets", "has pages for runs, tasks, apps and triggers"),
        ("/elsewhere", "There is no such page"),
        (f"{RUNS}/a%00b", "a name in it that nothing can have"),
        ("/v2/static/none.js", "There is no such page"),
    ],
)
async def test_what_does_not_exist_is_a_404_with_words(served: Served, path: str, words: str) -> None:
    for accept in ("text/html", "*/*"):
        response = await served.http.get(path, headers={"accept": accept})
        assert response.status_code == 404
        assert words in text_of(response.text)
        assert response.headers["content-type"].startswith("text/html" if accept == "text/html" else "text/plain")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_pages_are_only_read(served: Served, method: str) -> None:
    await made.success(served.make)
    before = await served.page(RUNS)
    for path in ("/", f"{RUNS}/calm-otter-12", f"{RUNS}/calm-otter-12/live"):
        response = await served.http.request(method, path)
        assert response.status_code == 405
        assert response.headers["allow"] == "GET, HEAD"
    assert await served.page(RUNS) == before


async def test_head_answers_without_a_body(served: Served) -> None:
    await made.success(served.make)
    for path in ("/", f"{RUNS}/calm-otter-12", f"{RUNS}/calm-otter-12/logs?attempt=1"):
        response = await served.http.head(path)
        assert response.status_code == 200
        assert response.content == b""


async def test_every_answer_forbids_what_it_does_not_need(served: Served) -> None:
    await made.success(served.make)
    run = f"{RUNS}/calm-otter-12"
    page = await served.page(run)
    assets = re.findall(r'(?:href|src)="(/v2/static/[^"]+)"', page)
    assert len(assets) == 3
    for path in ("/", run, RUNS, f"{RUNS}/nothing"):
        headers = (await served.http.get(path, headers={"accept": "text/html"})).headers
        assert headers["content-security-policy"].startswith(POLICY)
    for path in ("/", run, f"{run}/panel", f"{run}/branch", f"{run}/report", f"{run}/logs.txt", *assets):
        headers = (await served.http.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
    assert not re.search(r"<style|<script(?![^>]* src=)|\son\w+=|\sstyle=", page)


async def test_assets_may_be_kept_for_ever_and_pages_not_at_all(served: Served) -> None:
    response = await served.http.get("/")
    assert response.headers["cache-control"] == "no-store"
    asset = re.findall(r'src="(/v2/static/[^"]+\.js)"', response.text)[0]
    assert "immutable" in (await served.http.get(asset)).headers["cache-control"]


async def test_the_database_away_is_said_in_words(served: Served) -> None:
    await served.db.close()
    response = await served.http.get("/", headers={"accept": "text/html"})
    assert response.status_code == 503
    assert "The database cannot be used now" in response.text


async def test_values_that_are_gone_broken_or_outside_are_said_to_be(served: Served) -> None:
    make = served.make
    broken = make.storage.join("broken.pb")
    await make.storage.put(broken, b"\xff\xff\xff")
    for name, uri, words in (
        ("gone", make.storage.join("gone.pb"), "There is no file"),
        ("broken", broken, "cannot be decoded"),
        ("outside", "/etc/passwd", "Not shown"),
    ):
        await make.root(name, input_uri=uri)
        page = text_of(await served.page(f"{RUNS}/{name}"))
        assert words in page
        assert "root:" not in page


async def test_the_raw_log_is_text(served: Served) -> None:
    run = await made.success(served.make)
    served.make.logs.write(run.action("a0"), 1, *[f"line {index} <b>" for index in range(3_000)])
    response = await served.http.get(f"{RUNS}/calm-otter-12/logs.txt?i=a0&attempt=1")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert "sandbox" in response.headers["content-security-policy"]
    assert response.text.splitlines()[-1] == "line 2999 <b>"
    page = await served.page(f"{RUNS}/calm-otter-12")
    assert "The last 500 lines" in page
    assert "line 2999 &lt;b&gt;" in page
    assert "line 2400 " not in page


async def test_a_name_with_every_odd_character_is_one_name(served: Served) -> None:
    odd = "a/b?c=d&e#f%2Fg \"'<é>;"
    root = await served.make.root(odd)
    child = await served.make.action(root.run_id, "x/../y?z", parent="a0", name="odd")
    await served.make.go(child, ActionPhase.FAILED, error=ErrorInfo(message="no"))
    page = await served.page(f"{RUNS}/{quote(odd, safe='')}?i={quote('x/../y?z', safe='')}")
    assert "x/../y?z" in page
    for link in re.findall(r'href="(/v2/domain[^"#]*)', page):
        address = link.replace("&amp;", "&").replace("&#x27;", "'")
        assert (await served.http.get(address)).status_code == 200, address


async def test_a_report_that_is_not_there_says_so_within_its_frame(served: Served) -> None:
    root = await served.make.root("plain")
    gone = served.make.storage.join("gone.html")
    await served.make.go(root, P.SUCCEEDED, report_uri=gone)
    outside = await served.make.root("outside")
    await served.make.go(outside, P.SUCCEEDED, report_uri="/etc/passwd")
    for name, words in (("plain", "is not there"), ("outside", "The report is not shown")):
        response = await served.http.get(f"{RUNS}/{name}/report?i=a0", headers={"accept": "text/html"})
        assert response.status_code == 404
        assert words in response.text
        assert "frame-ancestors 'self'" in response.headers["content-security-policy"]


async def test_a_client_of_a_service_that_is_not_here_gets_an_error_that_it_can_read(served: Served) -> None:
    path = "/grpc.health.v1.Health/Check"
    connect = await served.http.post(path, json={})
    assert connect.status_code == 404
    assert connect.json() == {"code": "not_found", "message": f"there is nothing at {path}"}
    async with httpx.AsyncClient(base_url=served.url, http1=False, http2=True, trust_env=False) as http2:
        grpc = await http2.post(path, content=b"\0\0\0\0\0", headers={"content-type": "application/grpc"})
        assert grpc.status_code == 200
        assert grpc.headers["content-type"] == "application/grpc"


async def test_pages_and_streams_come_over_http2_too(served: Served) -> None:
    root = await served.make.root("over two")
    await served.make.go(root, P.RUNNING)
    address = f"{RUNS}/over%20two"
    async with httpx.AsyncClient(base_url=served.url, http1=False, http2=True, trust_env=False) as http2:
        page = await http2.get(address, headers={"accept": "text/html"})
        assert page.http_version == "HTTP/2"
        assert "over two" in page.text
        async with http2.stream("GET", f"{address}/live?after=0") as response:
            lines = response.aiter_lines()
            async for line in lines:
                if line.startswith("data: "):
                    break
            assert served.feed.watchers == 1
    async with asyncio.timeout(10):
        while served.feed.watchers:
            await asyncio.sleep(0.01)
