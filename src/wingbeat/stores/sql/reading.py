"""Listings, and what changed since a revision. Both see one snapshot of the database."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from wingbeat.database import Connection
from wingbeat.resources import ActionId, TaskAction
from wingbeat.stores.protocol import Expired, ListPage, Selector, WatchEvent, WatchType
from wingbeat.stores.selection import matches, matches_labels, matches_place
from wingbeat.stores.sql.rows import COLUMNS, LABEL_COLUMNS, Rows, decode_labels

_CHUNK = 1000


class _Token(msgspec.Struct, array_like=True):
    revision: int
    last: tuple[str, str, str, str, str]


_token_decoder = msgspec.json.Decoder(_Token)


def current_revision(c: Connection) -> int:
    return int(c.query("SELECT value FROM revision WHERE id = 1")[0][0])


def floor(c: Connection) -> int:
    """Deletions up to this revision are forgotten."""
    return int(c.query("SELECT floor FROM taskaction_log WHERE id = 1")[0][0])


def list_page(c: Connection, rows: Rows, selector: Selector, limit: int, continue_token: str) -> ListPage:
    last: tuple[str, ...] | None = None
    revision = current_revision(c)
    if continue_token:
        token = _decode_token(continue_token)
        if token.revision < floor(c) or token.revision > revision:
            raise Expired("the listing took too long: its continue token is older than the change log; start again")
        revision, last = token.revision, token.last
    condition, params = _condition(selector)
    items: list[TaskAction] = []
    chunk = min(_CHUNK, limit + 1) if limit else _CHUNK
    while True:
        after = "" if last is None else " AND (org, project, domain, run, name) > (?, ?, ?, ?, ?)"
        found = c.query(
            f"SELECT {COLUMNS} FROM taskactions WHERE {condition}{after} "
            "ORDER BY org, project, domain, run, name LIMIT ?",
            (*params, *(last or ()), chunk),
        )
        for columns in found:
            action = rows.decode(c, columns).object
            if not matches(selector, action):
                last = columns[:5]
                continue
            if limit and len(items) == limit:
                assert last is not None
                return ListPage(items, str(revision), _encode_token(revision, last))
            items.append(action)
            last = columns[:5]
        if len(found) < chunk:
            return ListPage(items, str(revision))


def changes_since(c: Connection, rows: Rows, selector: Selector, since: int) -> tuple[list[WatchEvent], int]:
    """What changed after `since`, in order of revision and one event an object (two where it was deleted and made
    anew), and the revision of the snapshot. Raises Expired."""
    now = current_revision(c)
    if since > now:
        raise Expired(f"revision {since} is not of this database (it is at {now}): list again")
    if 0 < since < floor(c):
        raise Expired(f"the change log no longer reaches back to revision {since}: list again")
    events: list[tuple[int, WatchEvent]] = []
    condition, params = _condition(selector, labels=False)
    for columns in c.query(
        f"SELECT {COLUMNS} FROM taskactions WHERE resource_version > ? AND {condition}", (since, *params)
    ):
        row = rows.decode(c, columns)
        action = row.object
        new = row.created_revision > since
        if matches_labels(selector, action.metadata.labels):
            type = WatchType.ADDED if new else WatchType.MODIFIED
        elif new:
            continue
        else:
            type = WatchType.DELETED  # it may have been selected before
        event = WatchEvent(type, action.id, action, action.metadata.resource_version)
        events.append((row.revision, event))
    if since > 0:
        events.extend(_deletions(c, selector, since))
    events.sort(key=lambda each: each[0])
    return [event for _, event in events], now


def _deletions(c: Connection, selector: Selector, since: int) -> list[tuple[int, WatchEvent]]:
    newest: dict[ActionId, int] = {}
    for revision, *place, parent, owner_uid, labels in c.query(
        "SELECT revision, org, project, domain, run, name, parent, owner_uid, labels FROM taskaction_tombstones "
        "WHERE revision > ? ORDER BY revision",
        (since,),
    ):
        id = ActionId(*place)
        if not matches_place(selector, id, parent, owner_uid):
            continue
        if (selector.labels or selector.has_labels) and not matches_labels(selector, decode_labels(labels)):
            continue
        newest[id] = revision
    return [(revision, WatchEvent(WatchType.DELETED, id, None, str(revision))) for id, revision in newest.items()]


def _condition(selector: Selector, *, labels: bool = True) -> tuple[str, list[Any]]:
    """SQL for those parts of a selector that have columns; `matches` decides on the rest."""
    parts: list[str] = []
    params: list[Any] = []
    run = selector.run or (selector.parent.run_id if selector.parent else None)
    if run is not None:
        parts.append("org = ? AND project = ? AND domain = ? AND run = ?")
        params.extend((run.org, run.project, run.domain, run.run))
    if selector.parent is not None:
        parts.append("parent = ?")
        params.append(selector.parent.action)
    if selector.owner_uid:
        parts.append("owner_uid = ?")
        params.append(selector.owner_uid)
    if labels:
        for label, value in selector.labels:
            if column := LABEL_COLUMNS.get(label):
                parts.append(f"{column} = ?")
                params.append(value)
        parts.extend(f"{column} IS NOT NULL" for label in selector.has_labels if (column := LABEL_COLUMNS.get(label)))
    return " AND ".join(parts) or "1 = 1", params


def _encode_token(revision: int, last: tuple[str, ...]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([revision, last])).decode()


def _decode_token(token: str) -> _Token:
    try:
        return _token_decoder.decode(base64.urlsafe_b64decode(token))
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise Expired("the continue token is none that this store gave: start the listing again") from error
