"""The actions of a run as a tree that stays small: groups and fan-outs are folded, and each level shows its first rows.

Every part has an id made from the action's name, so that the page's script can replace just what changed.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
from collections.abc import Mapping

import msgspec

from wingbeat.database import Filter, FilterFunction, Order, RecordQuery
from wingbeat.resources import ActionId, ActionPhase, ActionRecord, ErrorInfo, RunId
from wingbeat.server.pages import words
from wingbeat.server.pages.markup import Html, join, query, tag
from wingbeat.server.pages.site import Site, action_path, run_path

LEVEL_ROWS = 100
"""Rows shown below one action, of those in no group; more on request."""
GROUP_ROWS = 20
"""Rows shown of one group."""
FOLD_FROM = 21
"""As many children of the same name are shown as a group of their own."""
PAGE_ROWS = 600
"""Rows of one answer; what is below stays closed."""
PAGE_BRANCHES = 60
"""Actions of one answer that are opened; each is a question to the database."""
READ_CHILDREN = 2_000
"""Children of one action that are looked at; of more, the page shows counts and the flat list."""
MAX_ROWS = 2_000
TURN_ROWS = 50
"""Rows drawn before others get their turn on the event loop."""
ERROR_TEXT = 240
"""Characters of an error shown in a row."""

Counts = Mapping[ActionPhase, int]


def part_key(*names: str) -> str:
    """An id for the page, from names that may hold anything."""
    return hashlib.blake2b("\0".join(names).encode("utf-8", "replace"), digest_size=8).hexdigest()


class Group(msgspec.Struct, frozen=True):
    """Children of one action under one heading: a group of the SDK, or a fan-out of one task."""

    parent: str
    title: str
    named: bool
    """Whether it is a group of the SDK."""
    records: list[ActionRecord]

    @property
    def key(self) -> str:
        return group_key(self.parent, self.title, named=self.named)


def group_key(parent: str, title: str, *, named: bool) -> str:
    return part_key(parent, "group" if named else "name", title)


def fold(parent: str, children: list[ActionRecord]) -> list[ActionRecord | Group]:
    """Children in their order; each group stands where its first member would."""
    same: dict[str, int] = {}
    for child in children:
        if not child.group:
            same[child.name] = same.get(child.name, 0) + 1
    result: list[ActionRecord | Group] = []
    groups: dict[tuple[bool, str], Group] = {}
    for child in children:
        named = bool(child.group)
        if not named and same[child.name] < FOLD_FROM:
            result.append(child)
            continue
        title = child.group or child.name
        group = groups.get((named, title))
        if group is None:
            group = groups[named, title] = Group(parent, title, named, [])
            result.append(group)
        group.records.append(child)
    return result


class Tree:
    """One answer's worth of a run's tree. Reads as it draws, and stops drawing when the answer is long enough."""

    def __init__(self, site: Site, run: RunId, now: dt.datetime, *, chosen: str = "") -> None:
        self._site = site
        self._run = run
        self._now = now
        self._chosen = chosen
        self._rows = 0
        self._branches = 0
        self.counts: dict[str, dict[ActionPhase, int]] = {}

    async def read(self) -> None:
        """Take the counts of all levels; before anything is drawn."""
        self.counts = await self._site.records.children_phase_counts(self._run)

    async def item(self, record: ActionRecord, *, limit: int = 0) -> Html:
        """The action with everything below it that is shown."""
        self._rows += 1
        if self._rows % TURN_ROWS == 0:
            await asyncio.sleep(0)
        return tag(
            "li",
            row(record, self._now, chosen=record.id.action == self._chosen),
            await self.branch(record.id, limit=limit) if record.id.action in self.counts else None,
            id=f"a{part_key(record.id.action)}",
            class_="action",
            data_i=record.id.action,
        )

    async def branch(self, parent: ActionId, *, limit: int = 0) -> Html:
        """What is below an action; "" if nothing is. `limit`: rows of each list, when someone asked for more."""
        counts = self.counts.get(parent.action)
        if not counts:
            return Html("")
        total = sum(counts.values())
        key = part_key(parent.action)
        summary = tag("summary", branch_summary(counts), id=f"s{key}")
        if self._rows >= PAGE_ROWS or self._branches >= PAGE_BRANCHES:
            link = tag("a", "Show these actions", href=self._under(parent.action), class_="more")
            return tag("details", summary, tag("ul", tag("li", link), data_lazy=True), class_="branch", id=f"c{key}")
        self._branches += 1
        children = await self._children(parent)
        items = fold(parent.action, children)
        shown = items[: limit or LEVEL_ROWS]
        unread = total - len(children)
        hidden = len(items) - len(shown) + unread
        drawn = []
        for each in shown:
            if isinstance(each, Group):
                members = await self._members(each, whole=not unread)
                # What was not read of a group is hidden there, not here.
                hidden -= sum(members.values()) - len(each.records)
                drawn.append(await self._group(each, members, limit))
            else:
                drawn.append(await self.item(each))
        if hidden > 0:
            drawn.append(self._more(parent.action, hidden, limit or LEVEL_ROWS))
        return tag(
            "details", summary, tag("ul", drawn), class_="branch", id=f"c{key}", open=True, data_total=total,
            data_limit=limit or None,
        )  # fmt: skip

    async def _children(self, parent: ActionId) -> list[ActionRecord]:
        return await self._site.records.list(
            RecordQuery(
                org=parent.org,
                project=parent.project,
                domain=parent.domain,
                run=parent.run,
                parent=parent.action,
                order_by=(Order("created_at", False),),
                limit=READ_CHILDREN,
            )
        )

    async def _members(self, group: Group, *, whole: bool) -> Counts:
        """The states of a group's members; `whole`: all of them have been read."""
        if not whole:
            question = group_query(self._run, group.parent, group.title, named=group.named)
            return await self._site.records.phase_counts(question)
        counts: dict[ActionPhase, int] = {}
        for each in group.records:
            counts[each.phase] = counts.get(each.phase, 0) + 1
        return counts

    async def _group(self, group: Group, members: Counts, limit: int) -> Html:
        shown = group.records[: limit or GROUP_ROWS]
        drawn = [await self.item(each) for each in shown]
        hidden = sum(members.values()) - len(shown)
        if hidden > 0:
            drawn.append(self._more(group.parent, hidden, limit or GROUP_ROWS))
        heading = tag("summary", group_summary(group.title, members, named=group.named), id=f"t{group.key}")
        return tag("li", tag("details", heading, tag("ul", drawn), open=True, id=f"h{group.key}"),
                   id=f"g{group.key}", class_="group")  # fmt: skip

    def _more(self, parent: str, hidden: int, limit: int) -> Html:
        if limit >= MAX_ROWS:
            link = tag("a", f"{hidden:,} more are in the list of all actions", href=run_path(self._run) + "?show=all")
            return tag("li", link, class_="rest")
        step = min(MAX_ROWS, max(100, limit * 4))
        address = self._under(parent, step)
        text = f"Show more ({hidden:,} not shown)"
        return tag("li", tag("a", text, href=address, class_="more", data_limit=step), class_="rest")

    def _under(self, action: str, limit: int | None = None) -> str:
        return run_path(self._run) + query(under=action, limit=limit, i=self._chosen)


def branch_summary(counts: Counts) -> Html:
    total = sum(counts.values())
    return join(tag("span", words.plural(total, "action"), class_="total"), " ", words.counts(counts))


def group_summary(title: str, counts: Counts, *, named: bool) -> Html:
    total = sum(counts.values())
    kind = "group " if named else ""
    return join(
        kind and tag("span", kind, class_="kind"), tag("b", tag("bdi", title)), f" × {total:,} ", words.counts(counts)
    )


def group_query(run: RunId, parent: str, title: str, *, named: bool) -> RecordQuery:
    """The members of a group."""
    same = [Filter("group", FilterFunction.EQUAL, (title if named else "",))]
    if not named:
        same.append(Filter("function_name", FilterFunction.EQUAL, (title,)))
    return RecordQuery(
        org=run.org, project=run.project, domain=run.domain, run=run.run, parent=parent, filters=tuple(same)
    )


def row(record: ActionRecord, now: dt.datetime, *, chosen: bool = False, with_parent: bool = False) -> Html:
    """One action in a line or two."""
    name = record.name or record.id.action
    notes = [
        words.type_words(record),
        f"attempt {record.attempts}" if record.attempts > 1 else "",
        words.cache_words(record.cache_status),
        f"reused from {record.recovered_from}" if record.recovered_from else "",
        f"below {record.parent}" if with_parent and record.parent else "",
        "stopping" if record.abort_reason and not record.phase.terminal else "",
    ]
    error = record.error
    return tag(
        "div",
        words.phase_badge(record.phase),
        tag(
            "span",
            tag(
                "a",
                tag("bdi", name),
                href=action_path(record.id) + "#action",
                data_choose=record.id.action,
                aria_current="true" if chosen else None,
            ),
            " ",
            tag("code", record.id.action, class_="id") if record.id.action != name else None,
            [[" ", tag("span", note, class_="note")] for note in notes if note],
            class_="name",
        ),
        words.moment(record.started_at or record.created_at, now),
        tag("span", words.record_duration(record, now), class_="took"),
        tag("p", "Waits: ", record.wait_reason, class_="why") if record.wait_reason else None,
        error_row(error) if error is not None else None,
        tag("p", "Aborted: ", words.short(record.abort_reason, ERROR_TEXT), class_="why")
        if record.abort_reason and record.phase is ActionPhase.ABORTED
        else None,
        id=f"r{part_key(record.id.action)}",
        class_="row",
        data_phase=words.phase_class(record.phase),
    )


def error_row(error: ErrorInfo) -> Html:
    """An error in one line."""
    code, text = words.error_line(error, ERROR_TEXT)
    return tag("p", tag("b", code, ": " if text else "") if code else None, text, class_="why error")
