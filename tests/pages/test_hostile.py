"""Whatever a task is called, says, logs or returns: the page shows it, and does nothing of what it says."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote

import pytest

from wingbeat.resources import ActionEvent, ErrorInfo, Reason, RunId
from wingbeat.server.pages import run as run_module

from . import made
from .conftest import Served
from .made import START, Maker, P

RUNS = "/v2/domain/development/project/shop/runs"
_KNOWN = (
    "a b bdi body code dd details div dl dt h1 h2 h3 h4 head header html iframe li link main meta nav ol p pre script "
    "section span summary table tbody td th thead time title tr ul"
)
ELEMENTS = frozenset(_KNOWN.split(" "))
NASTY = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)' x='",
    "javascript:alert(1)",
    "</pre></section></main><iframe src=//evil.example>",
    "<!--<svg/onload=alert(1)>",
    "</title><script>alert(1)</script>",
    "a\0b\x1b[31mred\x07",
    "invoice\u202egpj.exe\u2066\u200b",
    "&lt;script&gt;&#0;&amp;",
    "\ufeff`${alert(1)}`{{alert(1)}}",
)


class Checker(HTMLParser):
    """Fails on anything in a page that the server would not make."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ELEMENTS, tag
        if tag not in ("meta", "link"):
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), name
            assert name not in ("style", "srcdoc"), name
            if name in ("href", "src"):
                assert value is not None
                assert value[:1] in "/?#", value
                assert value[:2] != "//", value
        if tag == "script":
            assert dict(attrs)["src"].startswith("/v2/static/")  # type: ignore[union-attr]
        if tag == "iframe":
            assert dict(attrs)["sandbox"] == "allow-scripts"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_data(self, data: str) -> None:
        self.text += data


def check(html: str) -> str:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    for character in "\0\x1b\x07\u202e\u2066\u200b\ufeff":
        assert character not in html
    return checker.text


async def hostile(make: Maker, text: str, index: int = 0) -> RunId:
    """A run in which every text is `text`."""
    inputs = await make.inputs(f"evil-{index}", {"k" + text[:10].replace("\0", ""): "v" + text}, plain=text)
    root = await make.root(
        f"evil-{index}", name=text, input_uri=inputs, labels={"label": text, text: "x"}, created_by=text,
        environment=text, trigger_name=text, group=text, recovered_from=text,
    )  # fmt: skip
    report = make.storage.join(f"evil-{index}.html")
    await make.storage.put(report, f"<h1>{text}</h1>".encode())
    await make.go(root, P.RUNNING, reasons=(Reason(text, START, warning=True),))
    child = await make.action(
        root.run_id, "child" + text.replace("\0", ""), parent="a0", name=text, group=text, environment=text
    )
    await make.records.set_wait_reason(child, text)
    out = await make.outputs(f"evil-{index}", o0={text: [text]}, o1=made.file_literal(text), o2=text)
    error = ErrorInfo(message=f"Traceback\n{text}\n{text}", code=text, kind="USER")
    other = await make.action(root.run_id, "other", parent="a0", name=text)
    await make.go(other, P.FAILED, error=error, reasons=(Reason(text, START),), logs_available=True)
    stopped = await make.action(root.run_id, "stopped", parent="a0", name=text)
    await make.go(stopped, P.ABORTED, abort_reason=text, aborted_by=text)
    make.logs.write(root, 1, text, f"\x1b]8;;javascript:alert(1)\x1b\\{text}\x1b[0m")
    make.logs.write(other, 1, text, originator="system")
    await make.records.apply(
        [ActionEvent(id=root, attempt=1, phase=P.SUCCEEDED, occurred_at=START, output_uri=out, report_uri=report)]
    )
    return root.run_id


@pytest.mark.parametrize("index", range(len(NASTY)))
async def test_hostile_text_is_shown_and_stays_text(served: Served, index: int) -> None:
    text = NASTY[index]
    run = await hostile(served.make, text, index)
    base = f"{RUNS}/{run.run}"
    shown = check(await served.page(base))
    if text.isprintable():
        assert text in shown
    for page in ("/", RUNS, f"{base}?i=other", f"{base}?i=stopped", f"{base}?show=all", f"{base}?under=other"):
        check(await served.page(page))
    for part in ("panel?i=a0", "panel?i=other", "branch?i=a0"):
        check((await served.http.get(f"{base}/{part}")).json()["html"])
    root = await served.make.records.get(run.action("a0"))
    check(str(run_module.heading(root, {}, START)))


@pytest.mark.parametrize("text", NASTY)
async def test_hostile_addresses_get_harmless_answers(served: Served, text: str) -> None:
    await made.success(served.make)
    run = f"{RUNS}/calm-otter-12"
    name = quote(text, safe="")
    for path in (f"/{name}", f"{RUNS}/{name}", f"/v2/domain/{name}/project/{name}/runs",
                 f"/v2/domain/development/project/{name}/tasks/{name}", f"/v2/domain/x/project/y/apps/{name}",
                 f"{run}?i={name}", f"{run}?show={name}", f"{run}?under={name}", f"{RUNS}?show={name}&from={name}",
                 f"{run}?attempt={name}&limit={name}"):  # fmt: skip
        response = await served.http.get(path, headers={"accept": "text/html"})
        assert response.status_code in (200, 404)
        check(response.text)


async def test_a_report_is_served_apart_and_can_reach_nothing(served: Served) -> None:
    run = await hostile(served.make, NASTY[0])
    page = await served.page(f"{RUNS}/{run.run}")
    assert "<h1><script>" not in page
    report = await served.http.get(f"{RUNS}/{run.run}/report?i=a0&attempt=1")
    assert "<script>alert(1)</script>" in report.text
    policy = report.headers["content-security-policy"]
    directives = dict(part.strip().partition(" ")[::2] for part in policy.split(";"))
    assert directives["sandbox"] == "allow-scripts"
    assert directives["default-src"] == directives["connect-src"] == directives["form-action"] == "'none'"
    assert not any("'self'" in v or "http" in v for k, v in directives.items() if k != "frame-ancestors")


async def test_events_of_a_hostile_run_are_one_line_each(served: Served) -> None:
    root = await served.make.root("evil")
    await served.make.go(root, P.RUNNING)
    text = "x\n\nevent: over\ndata: {}\n\n<script>\r\n\u2028"
    await served.make.action(root.run_id, "child", parent="a0", name=text)
    events: list[Any] = []
    async with served.http.stream("GET", f"{RUNS}/evil/live?after=0") as response:
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                events.append(line)
            if line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
                check("".join(html for _, _, html in data["rows"]))
                break
    assert events == ["event: update"]


async def test_a_large_run_spec_or_error_does_not_make_a_large_page(served: Served) -> None:
    root = await served.make.root("large", input_uri=await served.make.inputs("large", x=["y" * 50_000] * 500))
    await served.make.go(root, P.FAILED, error=ErrorInfo(message="e" * 5_000_000, code="Big"))
    assert len(await served.page(f"{RUNS}/large")) < 1_500_000
