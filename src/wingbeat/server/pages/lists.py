"""The home page, lists of runs, and the pages of things that are named in links but have little to show yet."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence

from wingbeat.database import Filter, FilterFunction, RecordQuery
from wingbeat.resources import ActionRecord, TaskId
from wingbeat.server.pages import words
from wingbeat.server.pages.markup import Child, Html, join, query, tag
from wingbeat.server.pages.panel import fact_list
from wingbeat.server.pages.responses import Problem, Request
from wingbeat.server.pages.run import POLL_SECONDS, pager
from wingbeat.server.pages.site import Site, document, project_path, run_path, runs_path, task_path
from wingbeat.server.pages.tree import error_row

PAGE_RUNS = 50

THINGS = {
    "apps": ("App", "Apps are services that keep running. This server does not serve apps yet.", "flyte get app"),
    "triggers": (
        "Trigger",
        "A trigger starts runs by schedule. This server stores triggers that are deployed, but does not schedule "
        "them yet: they start nothing.",
        "flyte get trigger",
    ),
    "artifacts": ("Artifact", "Artifacts are named and versioned outputs. This server does not keep them yet.", ""),
    "tracked-runs": (
        "Tracked run",
        "A tracked run takes place on a user's machine and reports here. This server does not take reports yet.",
        "",
    ),
}
"""Kind in the address: what one is called, what it is and what is not there yet, the command that shows it."""


async def home_page(site: Site, request: Request, data_folder: str, first_command: str) -> Html:
    question = RecordQuery(org=site.org, parent="", limit=PAGE_RUNS, offset=request.number("from", 0))
    found, total = await _runs(site, question)
    facts: list[tuple[str, Child]] = [
        ("Endpoint", tag("code", site.endpoint)),
        ("Data folder", tag("code", data_folder)),
        ("Run a first workflow", tag("code", first_command)),
    ]
    return document(
        site,
        "Runs",
        [],
        tag("h1", "Wingbeat"),
        fact_list(facts),
        tag("h2", "Recent runs"),
        _table(found, site.now(), with_project=True) if found else _none(total, first_command),
        pager("/", question.offset, len(found), total, PAGE_RUNS),
        poll=POLL_SECONDS,
    )


def _none(total: int, command: str) -> Html:
    if total:
        return tag("p", "There are no runs this far back.", class_="gap")
    return tag("p", "No runs yet. This starts one: ", tag("code", command), class_="gap")


async def _runs(site: Site, question: RecordQuery) -> tuple[list[ActionRecord], int]:
    found, total = await asyncio.gather(site.records.list(question), site.records.count(question))
    return found, total


async def runs_page(site: Site, request: Request, domain: str, project: str) -> Html:
    wanted = request.query.get("show", "")
    phase = words.PHASE_BY_WORD.get(wanted)
    if wanted and phase is None:
        raise Problem(404, "There is no such list", f"Runs can be listed by: {', '.join(words.PHASE_BY_WORD)}.")
    everything = RecordQuery(org=site.org, project=project, domain=domain, parent="")
    filters = () if phase is None else (Filter("phase", FilterFunction.EQUAL, (int(phase),)),)
    question = RecordQuery(
        org=site.org, project=project, domain=domain, parent="", filters=filters, limit=PAGE_RUNS,
        offset=request.number("from", 0),
    )  # fmt: skip
    (found, total), numbers = await asyncio.gather(_runs(site, question), site.records.phase_counts(everything))
    here = runs_path(domain, project)
    links = [
        join(" ", tag("a", words.counts({each: number}), href=here + query(show=words.phase_class(each))))
        for each, number in words.in_order(numbers)
    ]
    text = "There are none now." if wanted or total else f"No runs in project {project}, domain {domain} yet."
    return document(
        site,
        f"Runs of {project}",
        [(f"{project} / {domain}", here)],
        tag("h1", "Runs", [" that are ", words.phase_word(phase)] if phase is not None else None),
        tag("p", tag("a", words.plural(sum(numbers.values()), "run"), href=here), ":", links, class_="totals")
        if numbers
        else None,
        _table(found, site.now()) if found else tag("p", text, class_="gap"),
        pager(here, question.offset, len(found), total, PAGE_RUNS, show=wanted),
        poll=POLL_SECONDS,
    )


async def task_page(site: Site, request: Request, domain: str, project: str, name: str) -> Html:
    task = TaskId("", project, domain, name, request.query.get("version", ""))
    question = RecordQuery(org=site.org, parent="", task=task, limit=PAGE_RUNS, offset=request.number("from", 0))
    found, total = await _runs(site, question)
    facts: list[tuple[str, Child]] = [
        ("Project", f"{project} / {domain}"),
        ("Version", task.version),
        ("Environment", found[0].environment if found else ""),
        ("What is deployed", tag("code", f"flyte get task {name}")),
    ]
    none = tag(
        "p",
        f"No run was started with this task in project {project}, domain {domain} yet. Tasks that other tasks call "
        "are in the pages of those runs.",
        class_="gap",
    )
    return document(
        site,
        f"Task {name}",
        [(f"{project} / {domain}", runs_path(domain, project)), (name, task_path(task))],
        tag("h1", "Task ", tag("bdi", name)),
        fact_list(facts),
        tag("h2", "Runs of this task"),
        _table(found, site.now(), with_version=True) if found else none,
        pager(task_path(task), question.offset, len(found), total, PAGE_RUNS, version=task.version),
        poll=POLL_SECONDS,
    )


def thing_page(site: Site, kind: str, domain: str, project: str, name: Sequence[str]) -> Html:
    """An app, a trigger and the like: what it is, and what is not there yet."""
    what, text, command = THINGS[kind]
    title = " / ".join(name)
    return document(
        site,
        f"{what} {title}" if title else f"{what}s",
        [(f"{project} / {domain}", runs_path(domain, project)), (kind, project_path(domain, project, kind))],
        tag("h1", what if title else f"{what}s", " ", tag("bdi", title)),
        tag("p", text),
        tag("p", "What is stored of it: ", tag("code", command)) if command else None,
        tag("p", tag("a", "See the runs of this project", href=runs_path(domain, project))),
    )


def _table(
    records: Sequence[ActionRecord], now: dt.datetime, *, with_project: bool = False, with_version: bool = False
) -> Html:
    rows = [
        tag(
            "li",
            tag(
                "div",
                words.phase_badge(record.phase),
                tag(
                    "span",
                    tag("a", tag("bdi", record.id.run), href=run_path(record.id.run_id)),
                    [" ", tag("span", tag("bdi", record.task.name), class_="task")]
                    if record.task and not with_version
                    else None,
                    [" ", tag("span", f"{record.id.project} / {record.id.domain}", class_="note")]
                    if with_project
                    else None,
                    [" ", tag("code", record.task.version, class_="id")] if with_version and record.task else None,
                    [" ", tag("span", f"by {record.created_by}", class_="note")] if record.created_by else None,
                    class_="name",
                ),
                words.moment(record.created_at, now),
                tag("span", words.record_duration(record, now), class_="took"),
                tag("p", "Waits: ", record.wait_reason, class_="why") if record.wait_reason else None,
                _why(record),
                class_="row",
            ),
            class_="action",
        )
        for record in records
    ]
    return join(tag("ul", rows, class_="tree runs"))


def _why(record: ActionRecord) -> Child:
    return None if record.error is None else error_row(record.error)
