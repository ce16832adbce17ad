"""One action in full: attempts with their phases and reasons, the error, logs, inputs, outputs and the report."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Sequence

from flyteidl2.workflow.run_definition_pb2 import ConditionAction

from wingbeat.control import LogLine
from wingbeat.database import DatabaseUnavailable, RecordNotFound
from wingbeat.resources import ActionPhase, ActionRecord, ActionType, AttemptRecord, ErrorInfo
from wingbeat.server.pages import literals, logs, words
from wingbeat.server.pages.markup import Child, Html, join, tag
from wingbeat.server.pages.site import Site, action_path, run_path, task_path
from wingbeat.server.pages.tree import part_key
from wingbeat.storage.protocol import ObjectMissing, OutsideStorage, StorageUnavailable

MAX_LITERALS = 10 * 1024 * 1024
"""Bytes of inputs or outputs that are read for a page; inline inputs are at most this."""
MAX_ERROR = 100_000
"""Characters shown of an error."""
READ_SECONDS = 10.0


async def panel(site: Site, record: ActionRecord, attempt_number: int = 0) -> Html:
    """The part of the page about one action. `attempt_number` 0 is the newest one."""
    attempts = await site.records.attempts(record.id)
    attempt = next((a for a in attempts if a.attempt == attempt_number), attempts[-1] if attempts else None)
    now = site.now()
    parts = await asyncio.gather(
        _condition(site, record),
        _inputs(site, record),
        _outputs(site, record, attempts),
        _logs(site, record, attempt, attempts),
    )
    key = part_key(record.id.action)
    return tag(
        "section",
        _heading(record, now),
        parts[0],
        _error(record.error) if record.error and not (attempt and attempt.error == record.error) else None,
        _attempts(record, attempts, attempt, now),
        parts[3],
        parts[1],
        parts[2],
        _report(record, attempt),
        id=f"p{key}",
        class_="panel",
        data_i=record.id.action,
        data_attempt=attempt_number or None,
        aria_label=f"Action {record.name or record.id.action}",
    )


def _heading(record: ActionRecord, now: dt.datetime) -> Html:
    facts: list[tuple[str, Child]] = [
        ("Action", tag("code", record.id.action)),
        ("Task", _task(record)),
        ("Type", words.type_words(record) or record.task_type),
        ("Group", record.group and tag("bdi", record.group)),
        ("Environment", record.environment),
        ("Cache", words.cache_words(record.cache_status)),
        ("Reused from", record.recovered_from),
        ("Created", words.moment(record.created_at, now, whole=True)),
        ("Started", words.moment(record.started_at, now, whole=True)),
        ("Ended", words.moment(record.ended_at, now, whole=True)),
        ("Duration", words.record_duration(record, now)),
        ("Waits", record.wait_reason),
        ("Abort", _abort(record)),
    ]
    return join(
        tag("h2", words.phase_badge(record.phase), " ", tag("bdi", record.name or record.id.action)),
        tag("p", tag("a", "Back to all actions", href="#actions"), class_="back"),
        fact_list(facts),
    )


def fact_list(facts: Sequence[tuple[str, Child]]) -> Html:
    """Names and values; those without a value are left out."""
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts if value], class_="facts")


def _task(record: ActionRecord) -> Child:
    task = record.task
    if task is None or not task.name:
        return None
    link = tag("a", tag("bdi", task.name), href=task_path(task))
    return join(link, " ", tag("code", task.version, class_="id") if task.version else None)


def _abort(record: ActionRecord) -> Child:
    if not record.abort_reason and not record.aborted_by:
        return None
    done = record.phase is ActionPhase.ABORTED
    by = f" by {record.aborted_by}" if record.aborted_by else ""
    return f"{'stopped' if done else 'asked to stop'}{by}: {record.abort_reason or 'no reason given'}"


async def _condition(site: Site, record: ActionRecord) -> Child:
    """What a condition asks for, and its answer."""
    if record.action_type is not ActionType.CONDITION:
        return None
    message = ConditionAction()
    try:
        message.ParseFromString(await site.records.blob(record.spec_digest))
    except (RecordNotFound, DatabaseUnavailable):
        pass
    except Exception:
        return tag("p", "What this condition asks for cannot be decoded.", class_="gap")
    answer: Child = None
    if record.value:
        try:
            value = literals.literal_value("value", record.value)
            answer = [tag("code", value.text), f" by {record.signalled_by}" if record.signalled_by else None]
        except literals.BadLiterals as error:
            answer = str(error)
    waits = not record.phase.terminal
    return join(
        tag("p", tag("bdi", message.prompt), class_="prompt") if message.prompt else None,
        tag("p", tag("bdi", message.description)) if message.description else None,
        tag("p", "Waits for a signal: see ", tag("code", "flyte signal condition --help"), ".") if waits else None,
        tag("p", "Answered: ", answer) if answer else None,
    )


def _error(error: ErrorInfo, retried: bool = False) -> Html:
    """`retried`: there is a later attempt. That an error could be retried is not said where nothing came of it."""
    who = {"USER": "raised by the task", "SYSTEM": "not the task's doing"}.get(error.kind, "")
    notes = [who, "tried again" if retried else "not to be tried again" if error.recoverable is False else ""]
    message = error.message
    cut = len(message) - MAX_ERROR
    if cut > 0:
        # The end of a traceback says what happened.
        message = f"({cut:,} characters left out)\n…{message[-MAX_ERROR:]}"
    return tag(
        "div",
        tag("p", tag("b", error.code or "Error"), " ", tag("span", " · ".join(n for n in notes if n), class_="note")),
        tag("pre", message, tabindex="0", aria_label="Error"),
        class_="failure",
    )


def _attempts(
    record: ActionRecord, attempts: Sequence[AttemptRecord], chosen: AttemptRecord | None, now: dt.datetime
) -> Html:
    if not attempts:
        return Html("")
    only = len(attempts) == 1
    return tag(
        "section",
        tag("h3", "Attempt" if only else f"Attempts ({len(attempts)})"),
        [_attempt(record, a, now, opened=a is chosen, only=only) for a in attempts],
    )


def _attempt(record: ActionRecord, attempt: AttemptRecord, now: dt.datetime, *, opened: bool, only: bool) -> Html:
    rows = [
        tag(
            "tr",
            tag("td", words.phase_badge(span.phase)),
            tag("td", words.moment(span.start, now, whole=True)),
            tag("td", words.duration(span.start, span.end, now) if not span.phase.terminal else None),
        )
        for span in attempt.transitions
    ]
    head = tag("tr", tag("th", "Phase", scope="col"), tag("th", "Since", scope="col"), tag("th", "For", scope="col"))
    reasons = [
        tag("li", words.moment(r.occurred_at, now), " ", r.message, class_="warning" if r.warning else None)
        for r in attempt.reasons
    ]
    elsewhere = action_path(record.id, attempt=attempt.attempt) + "#action"
    return tag(
        "details",
        tag(
            "summary",
            f"Attempt {attempt.attempt} ",
            words.phase_badge(attempt.phase),
            " ",
            words.attempt_duration(attempt, now),
            [" ", tag("span", words.cache_words(attempt.cache_status), class_="note")]
            if words.cache_words(attempt.cache_status)
            else None,
        ),
        _error(attempt.error, retried=attempt.attempt < record.attempts) if attempt.error else None,
        tag("table", tag("thead", head), tag("tbody", rows)) if rows else None,
        tag("ol", reasons, class_="reasons", aria_label="What happened") if reasons else None,
        tag("p", tag("a", "Logs and report of this attempt", href=elsewhere, data_choose=record.id.action,
                     data_attempt=attempt.attempt)) if not opened and not only else None,
        class_="attempt",
        open=opened,
        id=f"t{part_key(record.id.action, str(attempt.attempt))}",
    )  # fmt: skip


async def _logs(
    site: Site, record: ActionRecord, attempt: AttemptRecord | None, attempts: Sequence[AttemptRecord]
) -> Html:
    if record.action_type is not ActionType.TASK or attempt is None:
        return Html("")
    number = attempt.attempt
    live = not attempt.phase.terminal
    problem = ""
    lines: list[LogLine] = []
    try:
        lines = await logs.read_last(site.logs, record.id, number)
    except Exception as error:
        problem = f"The log cannot be read: {error}"
    if not lines and not live and not attempt.logs_available:
        return Html("")
    key = part_key(record.id.action, str(number))
    raw = tag("a", "Raw log", href=action_path(record.id, "logs.txt", attempt=number))
    notes: Child = f"The last {len(lines)} lines. " if len(lines) >= logs.SHOWN_LINES else None
    stream = action_path(record.id, "logs", attempt=number) if live else None
    text = tag("pre", logs.render(lines), class_="log", tabindex="0", id=f"l{key}", data_stream=stream,
               aria_label="Log", data_keep=True)  # fmt: skip
    empty = problem or ("" if lines else "Nothing was written yet." if live else "Nothing was written.")
    return tag(
        "section",
        tag("h3", "Log" if len(attempts) < 2 else f"Log of attempt {number}"),
        tag("p", notes, raw, class_="tools"),
        tag("p", empty, class_="gap") if empty else None,
        text if lines or live else None,
        id=f"o{key}",
        class_="logs",
    )


def _report(record: ActionRecord, attempt: AttemptRecord | None) -> Html:
    if attempt is None or not attempt.report_uri:
        return Html("")
    address = action_path(record.id, "report", attempt=attempt.attempt)
    frame = tag("iframe", src=address, sandbox="allow-scripts", title="Report of the action", loading="lazy",
                referrerpolicy="no-referrer", data_keep=True,
                id=f"f{part_key(record.id.action, str(attempt.attempt))}")  # fmt: skip
    alone = tag("a", "Open it by itself", href=address, target="_blank", rel="noopener noreferrer")
    return tag("section", tag("h3", "Report"), tag("p", alone, class_="tools"), frame, class_="report")


async def _inputs(site: Site, record: ActionRecord) -> Html:
    if not record.input_uri:
        return Html("")
    found, problem = await _read(site, record.input_uri)
    values: list[literals.Value] = []
    context: dict[str, str] = {}
    if found is not None:
        try:
            values, context = await asyncio.to_thread(literals.input_values, found)
        except literals.BadLiterals as error:
            problem = f"{error}"
    extra = [tag("h4", "Context"), fact_list(list(context.items()))] if context else None
    return _value_section("Inputs", values, problem, "This action takes no inputs.", extra)


async def _outputs(site: Site, record: ActionRecord, attempts: Sequence[AttemptRecord]) -> Html:
    uri = record.output_uri
    if not uri or record.phase not in (ActionPhase.SUCCEEDED, ActionPhase.RECOVERED):
        return Html("")
    # The outputs of a trace are named by the file itself.
    file = uri if record.action_type is ActionType.TRACE or uri.endswith(".pb") else f"{uri.rstrip('/')}/outputs.pb"
    found, problem = await _read(site, file)
    values: list[literals.Value] = []
    if found is not None:
        try:
            values = await asyncio.to_thread(literals.output_values, found)
        except literals.BadLiterals as error:
            problem = f"{error}"
    return _value_section("Outputs", values, problem, "This action returned nothing.", None)


def _value_section(title: str, values: Sequence[literals.Value], problem: str, none: str, extra: Child) -> Html:
    rows = [
        tag(
            "div",
            tag("dt", tag("bdi", value.name), " ", tag("span", value.kind, class_="note")),
            tag("dd", tag("pre", value.text, tabindex="0" if len(value.text) > 200 else None)),
            class_="value",
        )
        for value in values
    ]
    text = problem or ("" if values else none)
    body = tag("dl", rows, class_="values") if rows else None
    return tag("section", tag("h3", title), tag("p", text, class_="gap") if text else None, body, extra)


async def _read(site: Site, uri: str) -> tuple[bytes | None, str]:
    """The object at `uri`, or why it is not shown."""
    try:
        return await _within(site.storage.get(uri, limit=MAX_LITERALS)), ""
    except ObjectMissing:
        return None, f"There is no file {uri} (any more)."
    except OutsideStorage as error:
        return None, f"Not shown: {error}"
    except TimeoutError:
        return None, f"The storage did not answer within {READ_SECONDS:g} s; load the page again to retry."
    except (StorageUnavailable, OSError) as error:
        return None, f"The storage cannot be read now: {error}"
    except ValueError:
        return None, f"Larger than {words.size_words(MAX_LITERALS)}, too much to show here. It is in {uri}"


async def _within(work: Awaitable[bytes]) -> bytes:
    return await asyncio.wait_for(work, READ_SECONDS)


def missing(record: ActionRecord, name: str) -> Html:
    """In place of the panel, for an action that the run does not have."""
    return tag(
        "section",
        tag("h2", "No such action"),
        tag("p", "The run has no action ", tag("code", name), ". Choose one from the tree, or see ",
            tag("a", "the run's first action", href=run_path(record.id.run_id)), "."),
        class_="panel",
    )  # fmt: skip
