"""The page of one run: who and when, the tree of actions, and one action in full."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Mapping

from wingbeat.database import Filter, FilterFunction, Order, RecordNotFound, RecordQuery
from wingbeat.resources import ROOT_ACTION, ActionId, ActionPhase, ActionRecord, RunId
from wingbeat.server.pages import words
from wingbeat.server.pages.markup import Child, Html, join, query, tag
from wingbeat.server.pages.panel import fact_list, missing, panel
from wingbeat.server.pages.responses import Problem, Request
from wingbeat.server.pages.site import Site, action_path, document, run_path, runs_path, task_path
from wingbeat.server.pages.tree import MAX_ROWS, Tree, row

LIST_ROWS = 100
"""Actions on one page of the flat list."""
ALL = "all"
POLL_SECONDS = 5
"""How often an open list asks for itself again."""


async def root_record(site: Site, run: RunId) -> ActionRecord:
    """The first action of the run. Raises Problem where there is no such run."""
    query_ = RecordQuery(org=run.org, project=run.project, domain=run.domain, run=run.run, parent="", limit=1)
    found = await site.records.list(query_)
    if not found:
        raise Problem(
            404,
            f"There is no run {run.run}",
            join(
                f"Project {run.project}, domain {run.domain} has no run of this name (any more). See ",
                tag("a", "the runs that there are", href=runs_path(run.domain, run.project)),
                ", or ",
                tag("code", "flyte get run"),
                ".",
            ),
        )
    return found[0]


async def record_of(site: Site, id: ActionId) -> ActionRecord:
    """Raises Problem where there is no such action."""
    try:
        return await site.records.get(id)
    except RecordNotFound:
        raise Problem(404, f"There is no action {id.action}", f"Run {id.run} has no action of this name.") from None


async def last_revision(site: Site, run: RunId) -> int:
    """Of the newest change in the run."""
    newest = RecordQuery(
        org=run.org, project=run.project, domain=run.domain, run=run.run, order_by=(Order("revision"),), limit=1
    )
    found = await site.records.list(newest)
    return found[0].revision if found else 0


async def run_page(site: Site, request: Request, run: RunId) -> Html:
    # Before all else is read: what changes meanwhile comes again with the first event.
    revision = await last_revision(site, run)
    root = await root_record(site, run)
    now = site.now()
    chosen = request.query.get("i") or root.id.action
    tree = Tree(site, run, now, chosen=chosen)
    await tree.read()
    over = all_over(root, tree.counts)
    listed = "show" in request.query
    actions, shown = await asyncio.gather(_actions(site, request, root, tree), _panel(site, request, root, chosen))
    return document(
        site,
        run_title(root),
        crumbs(run),
        tag("div", heading(root, tree.counts, now), id="head"),
        tag(
            "div",
            tag("section", actions, id="actions", aria_label="Actions"),
            tag("div", shown, id="action", tabindex="-1"),
            class_="split",
        ),
        live=None if over or listed else run_path(run, "live") + query(after=revision),
        poll=POLL_SECONDS if listed and not over else None,
        branch=run_path(run, "branch"),
        panel=run_path(run, "panel"),
    )


def run_title(root: ActionRecord) -> str:
    """The sign of its state comes first, for those who have many tabs open."""
    return f"{words.phase_sign(root.phase)} {root.id.run}"


def crumbs(run: RunId) -> list[tuple[str, str]]:
    return [(f"{run.project} / {run.domain}", runs_path(run.domain, run.project)), (run.run, run_path(run))]


def all_over(root: ActionRecord, counts: Mapping[str, Mapping[ActionPhase, int]]) -> bool:
    """Whether nothing in the run can change any more."""
    return root.phase.terminal and all(phase.terminal for each in counts.values() for phase in each)


def heading(root: ActionRecord, counts: Mapping[str, Mapping[ActionPhase, int]], now: dt.datetime) -> Html:
    """What the run is, from its first action. Replaced as a whole by events."""
    total: dict[ActionPhase, int] = {root.phase: 1}
    for each in counts.values():
        for phase, number in each.items():
            total[phase] = total.get(phase, 0) + number
    run = root.id.run_id
    task = root.task
    source = words.source_words(root.source)
    who = " from ".join(part for part in (root.created_by, source) if part)
    facts: list[tuple[str, Child]] = [
        ("Task", tag("a", tag("bdi", task.name), href=task_path(task)) if task and task.name else root.name),
        ("Project", f"{run.project} / {run.domain}"),
        ("Started by", who),
        ("Trigger", root.trigger_name),
        ("Started", words.moment(root.started_at or root.created_at, now, whole=True)),
        ("Ended", words.moment(root.ended_at, now, whole=True)),
        ("Duration", words.duration(root.created_at, root.ended_at, now, running=not root.phase.terminal)),
        ("Waits", root.wait_reason),
        ("Labels", [[" ", tag("span", f"{k}={v}", class_="label")] for k, v in sorted(root.labels.items())]),
    ]
    links = [
        join(" ", tag("a", words.counts({phase: number}), href=run_path(run) + query(show=words.phase_class(phase))))
        for phase, number in words.in_order(total)
    ]
    return join(
        tag("h1", words.phase_badge(root.phase), " ", tag("bdi", run.run)),
        fact_list(facts),
        tag(
            "p", tag("a", words.plural(sum(total.values()), "action"), href=run_path(run)), ":", links, class_="totals"
        ),
    )


async def _actions(site: Site, request: Request, root: ActionRecord, tree: Tree) -> Html:
    """The left side: the whole tree, the tree below one action, or a flat list."""
    run = root.id.run_id
    if wanted := request.query.get("show", ""):
        return await _flat(site, request, root, wanted)
    limit = request.number("limit", 0, most=MAX_ROWS)
    top = root
    back: Child = None
    if under := request.query.get("under", ""):
        top = await record_of(site, run.action(under))
        back = tag("p", tag("a", "Show the whole run", href=run_path(run)), class_="tools") if top.parent else None
    items = tag("ul", await tree.item(top, limit=limit), class_="tree", id="tree")
    return join(tag("h2", "Actions"), back, items)


async def _flat(site: Site, request: Request, root: ActionRecord, wanted: str) -> Html:
    run = root.id.run_id
    phase = words.PHASE_BY_WORD.get(wanted)
    if phase is None and wanted != ALL:
        known = ", ".join([ALL, *words.PHASE_BY_WORD])
        raise Problem(404, "There is no such list", f"Actions can be listed by these states: {known}.")
    filters = () if phase is None else (Filter("phase", FilterFunction.EQUAL, (int(phase),)),)
    start = request.number("from", 0)
    order = (Order("created_at", False),)
    question = RecordQuery(
        org=run.org, project=run.project, domain=run.domain, run=run.run, filters=filters, order_by=order,
        limit=LIST_ROWS, offset=start,
    )  # fmt: skip
    found, total = await asyncio.gather(site.records.list(question), site.records.count(question))
    now = site.now()
    chosen = request.query.get("i", "")
    title = "All actions" if phase is None else f"Actions that are {words.phase_word(phase)}"
    rows = [
        tag("li", row(record, now, chosen=record.id.action == chosen, with_parent=True), class_="action")
        for record in found
    ]
    return join(
        tag("h2", title),
        tag("p", tag("a", "Show the tree", href=run_path(run)), class_="tools"),
        tag("ul", rows, class_="tree") if rows else tag("p", "There are none now.", class_="gap"),
        pager(run_path(run), start, len(found), total, LIST_ROWS, show=wanted),
    )


def pager(address: str, start: int, shown: int, total: int, size: int, **parameters: str | int | None) -> Html:
    """Where in a long list one is, with links to before and after."""
    if not start and shown >= total:
        return Html("")
    before = address + query(**parameters, **{"from": max(0, start - size) or None})
    after = address + query(**parameters, **{"from": start + size})
    where = f"{start + 1:,} to {start + shown:,} of {total:,}" if shown else f"Past the end: there are {total:,}"
    return tag(
        "nav",
        tag("a", "Newer" if not parameters.get("show") else "Before", href=before, rel="prev") if start else None,
        " ",
        tag("span", where),
        " ",
        tag("a", "Older" if not parameters.get("show") else "After", href=after, rel="next")
        if start + shown < total
        else None,
        class_="pager",
        aria_label="Pages",
    )


async def _panel(site: Site, request: Request, root: ActionRecord, chosen: str) -> Html:
    if chosen == root.id.action:
        record = root
    else:
        try:
            record = await site.records.get(root.id.run_id.action(chosen))
        except RecordNotFound:
            return missing(root, chosen)
    return await panel(site, record, request.number("attempt", 0))


def chosen_action(request: Request, run: RunId) -> ActionId:
    """The action that a part of the page is asked for."""
    return run.action(request.query.get("i") or ROOT_ACTION)


async def panel_part(site: Site, request: Request, run: RunId) -> dict[str, str]:
    """What the script asks for when an action is chosen or has changed. Raises Problem."""
    record = await record_of(site, chosen_action(request, run))
    html = await panel(site, record, request.number("attempt", 0))
    return {"html": str(html), "address": action_path(record.id)}


async def branch_part(site: Site, request: Request, run: RunId) -> dict[str, str]:
    """What is below one action. Raises Problem."""
    record = await record_of(site, chosen_action(request, run))
    tree = Tree(site, run, site.now())
    await tree.read()
    html = await tree.branch(record.id, limit=request.number("limit", 0, most=MAX_ROWS))
    return {"html": str(html)}
