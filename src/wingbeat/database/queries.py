"""Questions about records: what may be filtered and sorted by, and how that becomes SQL.

Column names are those of the wire's list requests, plus those that our own pages use.
"""

from __future__ import annotations

import datetime as dt
import enum
from typing import Any

import msgspec

from wingbeat.database.times import to_micros
from wingbeat.resources import TaskId


class BadQuery(ValueError):
    """The caller's mistake: an unknown column, a function that does not fit, a value that cannot be read."""


class FilterFunction(enum.StrEnum):
    """Names as on the wire (`flyteidl2.common.Filter.Function`)."""

    EQUAL = "EQUAL"
    NOT_EQUAL = "NOT_EQUAL"
    GREATER_THAN = "GREATER_THAN"
    GREATER_THAN_OR_EQUAL = "GREATER_THAN_OR_EQUAL"
    LESS_THAN = "LESS_THAN"
    LESS_THAN_OR_EQUAL = "LESS_THAN_OR_EQUAL"
    CONTAINS = "CONTAINS"
    VALUE_IN = "VALUE_IN"
    VALUE_NOT_IN = "VALUE_NOT_IN"
    ENDS_WITH = "ENDS_WITH"
    NOT_ENDS_WITH = "NOT_ENDS_WITH"
    CONTAINS_CASE_INSENSITIVE = "CONTAINS_CASE_INSENSITIVE"


class Filter(msgspec.Struct, frozen=True):
    """One condition. Values may be text, as the wire has them, or numbers and times."""

    column: str
    function: FilterFunction
    values: tuple[str | int | dt.datetime, ...]


class Order(msgspec.Struct, frozen=True):
    column: str
    descending: bool = True


class RecordQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which records; everything that is given must hold. Empty text means any."""

    org: str = ""
    project: str = ""
    domain: str = ""
    run: str = ""
    parent: str | None = None
    """None: any; "": root actions, which are the runs."""
    task: TaskId | None = None
    """Records of this task; parts of it that are empty mean any."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels of the run that the record must have itself (only root actions have labels)."""
    has_labels: tuple[str, ...] = ()
    """The same, whatever their value."""
    filters: tuple[Filter, ...] = ()
    order_by: tuple[Order, ...] = (Order("created_at", True),)
    """Made total by run and name, in the direction of the last one."""
    limit: int = 50
    """0: all."""
    offset: int = 0
    after_revision: int = 0
    """Only records that changed after this revision."""


_TEXT, _NUMBER, _TIME = "text", "number", "time"

COLUMNS: dict[str, tuple[str, str]] = {
    "org": ("org", _TEXT),
    "project": ("project", _TEXT),
    "domain": ("domain", _TEXT),
    "run_name": ("run", _TEXT),
    "name": ("name", _TEXT),
    "parent": ("parent", _TEXT),
    "group": ("group_name", _TEXT),
    "environment": ("environment", _TEXT),
    "phase": ("phase", _NUMBER),
    "action_type": ("action_type", _NUMBER),
    "attempts": ("attempts", _NUMBER),
    "run_source": ("source", _NUMBER),
    "created_by_subject": ("created_by", _TEXT),
    "trigger_name": ("trigger_name", _TEXT),
    "trigger_revision": ("trigger_revision", _NUMBER),
    "task_project": ("task_project", _TEXT),
    "task_domain": ("task_domain", _TEXT),
    "task_name": ("task_name", _TEXT),
    "task_version": ("task_version", _TEXT),
    "task_type": ("task_type", _TEXT),
    "function_name": ("display_name", _TEXT),
    "created_at": ("created_at", _TIME),
    "started_at": ("started_at", _TIME),
    "updated_at": ("updated_at", _TIME),
    "ended_at": ("ended_at", _TIME),
    "duration_ms": ("((ended_at - created_at) / 1000)", _NUMBER),
    "revision": ("revision", _NUMBER),
}
"""Column name to SQL expression and kind."""

_COMPARISONS = {
    FilterFunction.EQUAL: "=",
    FilterFunction.NOT_EQUAL: "<>",
    FilterFunction.GREATER_THAN: ">",
    FilterFunction.GREATER_THAN_OR_EQUAL: ">=",
    FilterFunction.LESS_THAN: "<",
    FilterFunction.LESS_THAN_OR_EQUAL: "<=",
}


def where(query: RecordQuery) -> tuple[str, list[Any]]:
    """The condition (without WHERE) and its parameters. Raises BadQuery."""
    parts: list[str] = []
    params: list[Any] = []
    for column in ("org", "project", "domain", "run"):
        if value := getattr(query, column):
            parts.append(f"{column} = ?")
            params.append(value)
    if query.parent == "":
        # Literal text, so that the partial indices of runs are used.
        parts.append("parent = ''")
    elif query.parent is not None:
        parts.append("parent = ?")
        params.append(query.parent)
    if query.task is not None:
        for column in ("org", "project", "domain", "name", "version"):
            if value := getattr(query.task, column):
                parts.append(f"task_{column} = ?")
                params.append(value)
    for label, value in query.labels:
        parts.append(
            "EXISTS (SELECT 1 FROM action_labels l WHERE l.org = actions.org AND l.project = actions.project "
            "AND l.domain = actions.domain AND l.run = actions.run AND l.name = actions.name "
            "AND l.label = ? AND l.value = ?)"
        )
        params.extend((label, value))
    for label in query.has_labels:
        parts.append(
            "EXISTS (SELECT 1 FROM action_labels l WHERE l.org = actions.org AND l.project = actions.project "
            "AND l.domain = actions.domain AND l.run = actions.run AND l.name = actions.name AND l.label = ?)"
        )
        params.append(label)
    if query.after_revision:
        parts.append("revision > ?")
        params.append(query.after_revision)
    for each in query.filters:
        part, values = _condition(each)
        parts.append(part)
        params.extend(values)
    return " AND ".join(parts) or "1 = 1", params


def order(query: RecordQuery) -> str:
    parts: list[str] = []
    seen: set[str] = set()
    descending = True
    for each in query.order_by:
        sql, _ = _column(each.column)
        descending = each.descending
        if sql not in seen:
            seen.add(sql)
            parts.append(sql + (" DESC" if descending else ""))
    parts.extend(sql + (" DESC" if descending else "") for sql in ("run", "name") if sql not in seen)
    return ", ".join(parts)


def _column(name: str) -> tuple[str, str]:
    try:
        return COLUMNS[name]
    except KeyError:
        raise BadQuery(f"unknown column {name!r}; there are {', '.join(sorted(COLUMNS))}") from None


def _condition(each: Filter) -> tuple[str, list[Any]]:
    sql, kind = _column(each.column)
    if not each.values:
        raise BadQuery(f"the filter on {each.column!r} has no value")
    function = each.function
    if function in (FilterFunction.VALUE_IN, FilterFunction.VALUE_NOT_IN):
        marks = ", ".join("?" * len(each.values))
        negation = "NOT " if function is FilterFunction.VALUE_NOT_IN else ""
        return f"{sql} {negation}IN ({marks})", [_value(each.column, kind, v) for v in each.values]
    if len(each.values) != 1:
        raise BadQuery(f"{function} on {each.column!r} takes one value, not {len(each.values)}")
    value = each.values[0]
    if function in _COMPARISONS:
        return f"{sql} {_COMPARISONS[function]} ?", [_value(each.column, kind, value)]
    if kind != _TEXT:
        raise BadQuery(f"{function} does not fit {each.column!r}, which is no text")
    text = str(value)
    if function is FilterFunction.CONTAINS:
        return f"instr({sql}, ?) > 0", [text]
    if function is FilterFunction.CONTAINS_CASE_INSENSITIVE:
        return f"instr(lower({sql}), ?) > 0", [text.lower()]
    ends = f"substr({sql}, length({sql}) - ?) = ?"
    if function is FilterFunction.NOT_ENDS_WITH:
        ends = f"NOT ({ends})"
    return ends, [len(text) - 1, text]


def _value(column: str, kind: str, value: str | int | dt.datetime) -> Any:
    try:
        if kind == _NUMBER:
            return int(value)  # type: ignore[arg-type]
        if kind == _TIME:
            if isinstance(value, int):
                return value
            return to_micros(value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(value))
    except (ValueError, TypeError):
        raise BadQuery(f"{value!r} does not fit column {column!r}, which is a {kind}") from None
    return str(value)
