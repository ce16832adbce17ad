"""From an address to its page. Everything here only reads; nothing that is sent changes anything."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

from connectrpc.code import Code

from wingbeat.control import LogSource
from wingbeat.control.feed import Feed
from wingbeat.database import DatabaseUnavailable, Records
from wingbeat.resources import RunId
from wingbeat.server.asgi import ASGIApp, Receive, Scope, Send, respond_error
from wingbeat.server.pages import lists, live, logs, streams
from wingbeat.server.pages.markup import Html, tag
from wingbeat.server.pages.responses import (
    REPORT_POLICY,
    Answer,
    Problem,
    Request,
    json_answer,
    page_answer,
    read_request,
    text_answer,
    wants_html,
)
from wingbeat.server.pages.run import branch_part, chosen_action, panel_part, record_of, root_record, run_page
from wingbeat.server.pages.site import Site, document
from wingbeat.storage.protocol import ObjectMissing, OutsideStorage, Storage, StorageUnavailable

log = logging.getLogger(__name__)

FIRST_COMMAND = "flyte --endpoint {endpoint} --insecure run hello.py main"
Stream = Callable[[Receive, Send], Awaitable[None]]
MAX_REPORT = 64 * 1024 * 1024
"""Bytes."""


def utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def run_pages(
    records: Records,
    storage: Storage,
    log_source: LogSource,
    feed: Feed,
    *,
    org: str,
    endpoint: str,
    data_folder: str = "",
    first_command: str = "",
    clock: Callable[[], dt.datetime] = utc_now,
    heartbeat_seconds: float = 10.0,
) -> list[tuple[str, ASGIApp]]:
    """The pages, with their paths. `feed` must have been started. Mounted at the root, they also answer for every path
    that nothing else serves. `first_command` is shown to those who have not run anything yet."""
    site = Site(
        records, storage, log_source, feed, org=org, endpoint=endpoint, clock=clock, heartbeat_seconds=heartbeat_seconds
    )
    command = first_command or FIRST_COMMAND.format(endpoint=endpoint.partition("://")[2] or endpoint)
    pages = Pages(site, data_folder or storage.base_uri, command)
    return [("/", pages)]


class Pages:
    """The ASGI application of all pages."""

    def __init__(self, site: Site, data_folder: str, first_command: str) -> None:
        self._site = site
        self._data_folder = data_folder
        self._first_command = first_command
        self._assets = {asset.address: asset for asset in site.assets.values()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = scope["method"] == "HEAD"
        try:
            request = read_request(scope)
        except Problem as problem:
            return await self._problem(problem, wants_html(dict(scope["headers"]))).send(send, head=head)
        try:
            if request.method not in ("GET", "HEAD"):
                return await self._refuse(request, scope, send)
            answered = await self._answer(request, scope["path"])
            if isinstance(answered, Answer):
                return await answered.send(send, head=head)
            if head:
                return await Answer(b"", "text/event-stream").send(send, head=True)
            await answered(receive, send)
        except Problem as problem:
            await self._problem(problem, request.for_people).send(send, head=head)
        except DatabaseUnavailable as error:
            away = Problem(503, "The database cannot be used now", f"{error}. Load the page again to retry.")
            await self._problem(away, request.for_people).send(send, head=head)

    async def _refuse(self, request: Request, scope: Scope, send: Send) -> None:
        if request.headers.get(b"content-type", b"").startswith(b"application/"):
            # A client that calls a service which is not here; it reads errors in its own protocol.
            message = f"there is nothing at {scope['path'][:200]}"
            return await respond_error(scope, send, 404, Code.NOT_FOUND, message)
        text = f"pages are only read (GET); {request.method[:20]} is not offered here\n".encode()
        answer = Answer(text, "text/plain; charset=utf-8", status=405, more=((b"allow", b"GET, HEAD"),))
        return await answer.send(send)

    def _problem(self, problem: Problem, for_people: bool) -> Answer:
        if not for_people:
            detail = problem.detail if isinstance(problem.detail, str) else ""
            return text_answer(f"{problem.title}. {detail}".rstrip() + "\n", problem.status)
        words = problem.detail if isinstance(problem.detail, Html) else tag("bdi", problem.detail)
        page = document(self._site, problem.title, [], tag("h1", problem.title), tag("p", words),
                        tag("p", tag("a", "See the recent runs", href="/")))  # fmt: skip
        return page_answer(page, problem.status)

    async def _answer(self, request: Request, path: str) -> Answer | Stream:
        match request.segments:
            case () | ("v2",):
                return page_answer(await lists.home_page(self._site, request, self._data_folder, self._first_command))
            case ("v2", "static", _):
                if asset := self._assets.get(path):
                    return Answer(asset.body, asset.content_type, cache="public, max-age=31536000, immutable")
            case ("favicon.ico",):
                asset = self._site.assets["icon.svg"]
                return Answer(asset.body, asset.content_type, cache="public, max-age=86400")
            case ("v2", "domain", domain, "project", project, *rest):
                return await self._project(request, domain, project, rest)
        raise Problem(404, "There is no such page", "Links that the flyte command prints lead to pages below /v2.")

    async def _project(self, request: Request, domain: str, project: str, rest: list[str]) -> Answer | Stream:
        site = self._site
        match rest:
            case [] | ["runs"]:
                return page_answer(await lists.runs_page(site, request, domain, project))
            case ["runs", name, *part]:
                return await self._run(request, RunId(site.org, project, domain, name), part)
            case ["tasks", name]:
                return page_answer(await lists.task_page(site, request, domain, project, name))
            case [kind, *name] if kind in lists.THINGS:
                return page_answer(lists.thing_page(site, kind, domain, project, name))
        raise Problem(404, "There is no such page", f"Project {project} has pages for runs, tasks, apps and triggers.")

    async def _run(self, request: Request, run: RunId, part: list[str]) -> Answer | Stream:
        site = self._site
        match part:
            case []:
                return page_answer(await run_page(site, request, run))
            case ["panel"]:
                return json_answer(await panel_part(site, request, run))
            case ["branch"]:
                return json_answer(await branch_part(site, request, run))
            case ["live"]:
                await root_record(site, run)
                seen = request.headers.get(b"last-event-id", b"")
                after = int(seen) if seen.isdigit() else request.number("after", 0, most=2**62)
                return self._stream(live.run_events(site, run, after))
            case ["logs"]:
                record = await record_of(site, chosen_action(request, run))
                return self._stream(live.log_events(site, record.id, request.number("attempt", 1, least=1)))
            case ["logs.txt"]:
                return await self._raw_log(request, run)
            case ["report"]:
                try:
                    return await self._report(request, run)
                except Problem as problem:
                    # Shown inside of the page's frame, which whole pages refuse to be in.
                    answer = self._problem(problem, False)
                    return Answer(answer.body, answer.content_type, REPORT_POLICY, problem.status)
        raise Problem(404, "There is no such page", f"Run {run.run} has no page of this name.")

    def _stream(self, events: AsyncGenerator[streams.Event, None]) -> Stream:
        async def serve(receive: Receive, send: Send) -> None:
            try:
                with live.counted(self._site):
                    await streams.serve(events, receive, send)
            except live.Busy:
                await text_answer("too many pages are open; close some\n", 503).send(send)

        return serve

    async def _raw_log(self, request: Request, run: RunId) -> Stream:
        record = await record_of(self._site, chosen_action(request, run))
        pieces = logs.raw(self._site.logs, record.id, request.number("attempt", record.attempts, least=1))

        async def serve(receive: Receive, send: Send) -> None:
            await streams.serve_pieces(pieces, "text/plain; charset=utf-8", receive, send)

        return serve

    async def _report(self, request: Request, run: RunId) -> Answer:
        record = await record_of(self._site, chosen_action(request, run))
        number = request.number("attempt", record.attempts, least=1)
        attempts = await self._site.records.attempts(record.id)
        uri = next((a.report_uri for a in attempts if a.attempt == number), "")
        if not uri:
            raise Problem(404, "There is no report", f"Attempt {number} of action {record.id.action} made none.")
        try:
            body = await self._site.storage.get(uri, limit=MAX_REPORT)
        except ObjectMissing:
            raise Problem(404, "There is no report", f"The file {uri} is not there (any more).") from None
        except OutsideStorage as error:
            raise Problem(404, "The report is not shown", str(error)) from None
        except StorageUnavailable as error:
            raise Problem(503, "The storage cannot be read now", str(error)) from None
        except ValueError as error:
            raise Problem(404, "The report is too large to be shown", str(error)) from None
        return Answer(body, "text/html; charset=utf-8", REPORT_POLICY)
