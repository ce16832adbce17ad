"""What pages that are open are told: the rows that changed, the sums above them, and new lines of a log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator

from wingbeat.database import DatabaseUnavailable, Order, RecordQuery
from wingbeat.resources import ActionId, ActionRecord, RunId
from wingbeat.server.pages import logs
from wingbeat.server.pages.run import all_over, heading, root_record, run_title
from wingbeat.server.pages.site import Site, page_title
from wingbeat.server.pages.streams import Event
from wingbeat.server.pages.tree import branch_summary, group_key, group_query, group_summary, part_key, row

LEAST_SECONDS = 0.25
"""Between two updates: people see no more than four a second."""
COST_FACTOR = 10
"""A page may take one part in so many of this server's time: long runs are told of less often."""
UPDATE_ROWS = 100
"""Rows in one update; the rest comes with the next."""
UPDATE_GROUPS = 12
"""Groups whose sums are told in one update."""
MAX_STREAMS = 200
"""Open streams of all pages together."""


class Busy(Exception):
    """Too many pages are open."""


@contextlib.contextmanager
def counted(site: Site) -> Iterator[None]:
    """Raises Busy."""
    if site.streams >= MAX_STREAMS:
        raise Busy
    site.streams += 1
    try:
        yield
    finally:
        site.streams -= 1


async def run_events(site: Site, run: RunId, after: int) -> AsyncGenerator[Event, None]:
    """Changes of a run since revision `after`. Ends when nothing in the run can change any more."""
    clock = asyncio.get_running_loop().time
    # Subscribed before the first read, so that nothing falls between the two.
    with site.feed.of_run(run) as subscription:
        waiting = {record.id: record for record in await _since(site, run, after)}
        while True:
            begun = clock()
            batch = sorted(waiting.values(), key=lambda record: record.revision)[:UPDATE_ROWS]
            for record in batch:
                del waiting[record.id]
            over = False
            if batch:
                try:
                    data, over = await _update(site, run, batch)
                except DatabaseUnavailable:
                    # The browser comes back, and asks for what it has not seen.
                    return
                yield Event("update", data, str(batch[-1].revision))
            if over and not waiting:
                yield Event("over", {})
                return
            pause = max(LEAST_SECONDS, COST_FACTOR * (clock() - begun)) if batch else 0.0
            await asyncio.sleep(pause)
            found = await subscription.take(0 if waiting else site.heartbeat_seconds)
            waiting.update((record.id, record) for record in found)
            if not waiting:
                yield Event()


async def _since(site: Site, run: RunId, after: int) -> list[ActionRecord]:
    return await site.records.list(
        RecordQuery(
            org=run.org, project=run.project, domain=run.domain, run=run.run, after_revision=after,
            order_by=(Order("revision", False),), limit=0,
        )
    )  # fmt: skip


async def _update(site: Site, run: RunId, changed: list[ActionRecord]) -> tuple[dict[str, object], bool]:
    counts = await site.records.children_phase_counts(run)
    root = await root_record(site, run)
    now = site.now()
    sums: list[tuple[str, str, int]] = []
    for parent in dict.fromkeys(record.parent for record in changed if record.parent):
        if parent in counts:
            sums.append((f"s{part_key(parent)}", str(branch_summary(counts[parent])), sum(counts[parent].values())))
    groups = dict.fromkeys((r.parent, r.group or r.name, bool(r.group)) for r in changed if r.parent)
    for parent, title, named in list(groups)[:UPDATE_GROUPS]:
        members = await site.records.phase_counts(group_query(run, parent, title, named=named))
        key = f"t{group_key(parent, title, named=named)}"
        sums.append((key, str(group_summary(title, members, named=named)), 0))
    data: dict[str, object] = {
        "head": str(heading(root, counts, now)),
        "rows": [(part_key(r.id.action), part_key(r.parent) if r.parent else "", str(row(r, now))) for r in changed],
        "sums": sums,
        "title": page_title(run_title(root)),
    }
    return data, all_over(root, counts)


async def log_events(site: Site, id: ActionId, attempt: int) -> AsyncGenerator[Event, None]:
    """The last lines of a log, then those that come. Ends with the attempt."""
    tail = logs.Tail(site.logs, id, attempt)
    first = True
    try:
        while True:
            try:
                lines, left_out = await tail.take(site.heartbeat_seconds)
            except Exception as error:
                yield Event("problem", {"text": f"The log cannot be read: {error}"})
                return
            if lines:
                note = f"({left_out:,} lines came too fast to be shown; the raw log has them)\n" if left_out else ""
                yield Event("lines", {"html": str(logs.render(lines)), "note": "" if first else note, "first": first})
                first = False
            elif tail.over:
                yield Event("over", {})
                return
            else:
                yield Event()
            await asyncio.sleep(LEAST_SECONDS if lines else 0)
    finally:
        await tail.close()
