"""Answers of pages, each with the headers that keep it harmless."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from wingbeat.server.asgi import Scope, Send
from wingbeat.server.pages.markup import Html

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data: 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval' data: blob:; "
    "style-src 'unsafe-inline' data:; img-src data: blob:; font-src data:; media-src data: blob:; worker-src blob:; "
    "connect-src 'none'; frame-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""A report may draw and compute. It has an origin of its own that nobody else has, and reaches no network."""
DATA_POLICY = "default-src 'none'; sandbox; frame-ancestors 'none'"
"""For what is no page: JSON, text, streams."""

MAX_QUERY = 8_000
MAX_NAME = 500


class Request(msgspec.Struct, frozen=True):
    """What a page looks at of a request."""

    method: str
    segments: tuple[str, ...]
    """Of the path, decoded one by one: an encoded slash does not end a segment."""
    query: dict[str, str]
    headers: dict[bytes, bytes]

    def number(self, name: str, default: int, *, least: int = 0, most: int = 1_000_000) -> int:
        """A number of the query within its bounds; the default where there is none or no number."""
        try:
            return min(most, max(least, int(self.query.get(name, ""))))
        except ValueError:
            return default

    @property
    def for_people(self) -> bool:
        return wants_html(self.headers)


def wants_html(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser asks, on behalf of a reader."""
    return b"text/html" in headers.get(b"accept", b"")


class Problem(Exception):
    """No page, and why, in words for people."""

    def __init__(self, status: int, title: str, detail: str | Html) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.detail = detail


def read_request(scope: Scope) -> Request:
    """Raises Problem for names that nothing can have."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    segments = tuple(
        unquote_to_bytes(part).decode("utf-8", "replace") for part in raw.split(b"?")[0].split(b"/") if part
    )
    if any(len(s) > MAX_NAME or any(c < " " or c == "\x7f" for c in s) for s in segments):
        raise Problem(404, "There is no such page", "The address has a name in it that nothing can have.")
    text = bytes(scope.get("query_string", b""))[:MAX_QUERY].decode("latin-1")
    query = {k: v.replace("\0", "\ufffd") for k, v in parse_qsl(text, errors="replace", max_num_fields=50)}
    return Request(scope["method"], segments, query, dict(scope["headers"]))


def headers(content_type: str, policy: str, *more: tuple[bytes, bytes], cache: str = "no-store") -> list[Any]:
    return [
        (b"content-type", content_type.encode()),
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"cache-control", cache.encode()),
        *more,
    ]


class Answer(msgspec.Struct, frozen=True):
    """A whole answer."""

    body: bytes
    content_type: str
    policy: str = DATA_POLICY
    status: int = 200
    cache: str = "no-store"
    more: tuple[tuple[bytes, bytes], ...] = ()

    async def send(self, send: Send, *, head: bool = False) -> None:
        """With `head`, only what would come before the body."""
        length = (b"content-length", str(len(self.body)).encode())
        all_headers = headers(self.content_type, self.policy, length, *self.more, cache=self.cache)
        await send({"type": "http.response.start", "status": self.status, "headers": all_headers})
        await send({"type": "http.response.body", "body": b"" if head else self.body})


def page_answer(html: Html, status: int = 200) -> Answer:
    return Answer(str(html).encode(), "text/html; charset=utf-8", PAGE_POLICY, status)


def json_answer(value: Any) -> Answer:
    return Answer(json.dumps(value).encode(), "application/json")


def text_answer(text: str, status: int = 200) -> Answer:
    return Answer(text.encode("utf-8", "replace"), "text/plain; charset=utf-8", status=status)
