"""What all pages share: what they read from, their addresses, and the frame around them."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from wingbeat.control import LogSource
from wingbeat.control.feed import Feed
from wingbeat.database import Records
from wingbeat.resources import ActionId, RunId, TaskId
from wingbeat.server.pages.markup import Child, Html, join, path, query, tag, visible
from wingbeat.storage.protocol import Storage

STATIC = Path(__file__).with_name("static")
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


class Asset(msgspec.Struct, frozen=True):
    body: bytes
    content_type: str
    address: str
    """With a digest of the content, so that browsers may keep it for ever."""


def _load() -> dict[str, Asset]:
    found = {}
    for file in sorted(STATIC.iterdir()):
        if file.suffix in _TYPES:
            body = file.read_bytes()
            name = f"{file.stem}.{hashlib.sha256(body).hexdigest()[:12]}{file.suffix}"
            found[file.name] = Asset(body, _TYPES[file.suffix], path("v2", "static", name))
    return found


class Site:
    """The things pages are made from."""

    def __init__(
        self,
        records: Records,
        storage: Storage,
        logs: LogSource,
        feed: Feed,
        *,
        org: str,
        endpoint: str,
        clock: Callable[[], dt.datetime],
        heartbeat_seconds: float,
    ) -> None:
        self.records = records
        self.storage = storage
        self.logs = logs
        self.feed = feed
        self.org = org
        self.endpoint = endpoint
        self.now = clock
        self.heartbeat_seconds = heartbeat_seconds
        self.assets = _load()
        self.streams = 0
        """Open streams of events."""


def project_path(domain: str, project: str, *rest: str) -> str:
    return path("v2", "domain", domain, "project", project, *rest)


def runs_path(domain: str, project: str) -> str:
    return project_path(domain, project, "runs")


def run_path(run: RunId, *rest: str) -> str:
    return project_path(run.domain, run.project, "runs", run.run, *rest)


def action_path(id: ActionId, *rest: str, attempt: int | None = None) -> str:
    """The page of a run with one of its actions chosen; with `rest`, a part of it."""
    return run_path(id.run_id, *rest) + query(i=id.action, attempt=attempt)


def task_path(task: TaskId) -> str:
    return project_path(task.domain, task.project, "tasks", task.name)


def page_title(title: str) -> str:
    return visible(f"{title} · Wingbeat")


def document(site: Site, title: str, crumbs: list[tuple[str, str]], *main: Child, **data: str | int | None) -> Html:
    """A whole page. `crumbs` are (text, address) from the home page down; `data` are data attributes of the main part,
    which the script reads."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", page_title(title)),
        tag("link", rel="icon", href=site.assets["icon.svg"].address, type="image/svg+xml"),
        tag("link", rel="stylesheet", href=site.assets["pages.css"].address),
        tag("script", type="module", src=site.assets["pages.js"].address),
    )
    trail = tag(
        "nav",
        tag("ol", [tag("li", tag("a", text, href=address)) for text, address in [("Wingbeat", "/"), *crumbs]]),
        aria_label="Where you are",
    )
    status = tag("p", id="live", role="status", hidden=True)
    body = tag(
        "body",
        tag("a", "Skip to the content", href="#main", class_="skip"),
        tag("header", trail, status, class_="top"),
        tag("main", join(*main), id="main", **{f"data_{k}": v for k, v in data.items()}),
    )
    return join(Html("<!doctype html>\n"), tag("html", head, body, lang="en"))
