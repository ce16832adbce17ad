"""List requests: limits, tokens, filters and sorting, the same way for everything that is listed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from flyteidl2.common.list_pb2 import Filter as FilterMessage
from flyteidl2.common.list_pb2 import Sort
from flyteidl2.workflow.run_definition_pb2 import RunSource

from wingbeat.control.errors import InvalidRequest
from wingbeat.database import COLUMNS, Filter, FilterFunction, Order, RecordQuery
from wingbeat.database.times import to_micros

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
MAX_TOKEN = 15
"""Digits."""


def page(request: Any) -> tuple[int, int]:
    """Limit and offset of a ListRequest. Raises InvalidRequest."""
    limit = request.limit or DEFAULT_LIMIT
    if limit > MAX_LIMIT:
        raise InvalidRequest(
            f"limit {limit} is too large: at most {MAX_LIMIT} are returned at once, page with the token"
        )
    return limit, read_token(request.token)


def read_token(token: str) -> int:
    """The offset that a token stands for. Raises InvalidRequest for one that was not given here."""
    if token and not (token.isascii() and token.isdigit() and len(token) <= MAX_TOKEN):
        raise InvalidRequest(f"the token {token[:60]!r} is not one that this server gave")
    return int(token or 0)


def next_token(rows: list[Any], limit: int, offset: int) -> str:
    """`rows` were asked for with one more than `limit`; that one is cut off, and tells of a next page."""
    if len(rows) <= limit:
        return ""
    del rows[limit:]
    return str(offset + limit)


def function(message: Any) -> FilterFunction:
    name = FilterMessage.Function.Name(message.function) if message.function in _FUNCTION_NUMBERS else ""
    try:
        return FilterFunction(name)
    except ValueError:
        raise InvalidRequest(f"the filter function {name or message.function} does not fit {message.field!r}") from None


_FUNCTION_NUMBERS = frozenset(FilterMessage.Function.values())


def sorts(request: Any) -> list[Any]:
    """What to sort by, from either of the two fields."""
    if request.sort_by_fields:
        return list(request.sort_by_fields)
    return [request.sort_by] if request.HasField("sort_by") and request.sort_by.key else []


def record_query(request: Any, default_order: tuple[Order, ...], **scope: Any) -> RecordQuery:
    """A ListRequest as a query for records, asking for one more than its limit. Raises InvalidRequest; unknown columns
    are BadQuery, when it is run."""
    limit, offset = page(request)
    filters: list[Filter] = []
    labels: list[tuple[str, str]] = []
    has_labels: list[str] = []
    for message in request.filters:
        if message.field.startswith("labels."):
            label = message.field.removeprefix("labels.")
            if message.function == FilterMessage.EXISTS:
                has_labels.append(label)
            elif message.function == FilterMessage.EQUAL and len(message.values) == 1:
                labels.append((label, message.values[0]))
            else:
                raise InvalidRequest(f"labels are filtered with EXISTS, or EQUAL and one value ({message.field})")
        else:
            filters.append(_record_filter(message))
    order = tuple(Order(s.key, s.direction == Sort.DESCENDING) for s in sorts(request)) or default_order
    for column in [f.column for f in filters] + [o.column for o in order]:
        if column not in COLUMNS:
            raise InvalidRequest(f"there is no field {column!r}; there are {', '.join(sorted(COLUMNS))}")
    return RecordQuery(
        filters=tuple(filters),
        labels=tuple(labels),
        has_labels=tuple(has_labels),
        order_by=order,
        limit=limit + 1,
        offset=offset,
        **scope,
    )


def _record_filter(message: Any) -> Filter:
    values = list(message.values)
    if not values:
        raise InvalidRequest(f"the filter on {message.field!r} has no value")
    field = {"created_by": "created_by_subject"}.get(message.field, message.field)
    if field == "phase":
        values = phases(values)
    elif field == "run_source":
        values = [str(RunSource.Value(v)) if v in RunSource.keys() else v for v in values]  # noqa: SIM118
    chosen = function(message)
    if len(values) > 1 and chosen is FilterFunction.EQUAL:
        chosen = FilterFunction.VALUE_IN
    return Filter(field, chosen, tuple(values))


def phases(values: list[str]) -> list[str]:
    """Phase numbers. The SDK sends a single phase as one value per *character* (`10` as `1`, `0`); no request for
    phases 1 and 0 can be meant otherwise, since nothing is ever in phase 0."""
    return ["10"] if values == ["1", "0"] else values


Reader = Callable[[str], Any]


def truth(value: str) -> int:
    return int(value.lower() in ("true", "1"))


def moment(value: str) -> int:
    """ISO 8601 to microseconds since 1970; UTC when it has no zone."""
    return to_micros(dt.datetime.fromisoformat(value))


class Table:
    """Filters and sorting for one of our own tables: wire names to columns, and how their values are read."""

    def __init__(self, columns: dict[str, tuple[str, Reader]]) -> None:
        self._columns = columns

    def where(self, filters: Any) -> tuple[list[str], list[Any]]:
        """Conditions, to be joined by AND, and their parameters. Raises InvalidRequest."""
        parts: list[str] = []
        params: list[Any] = []
        for message in filters:
            column, read = self._column(message.field)
            if not message.values:
                raise InvalidRequest(f"the filter on {message.field!r} has no value")
            try:
                values = [read(v) for v in message.values]
            except ValueError:
                raise InvalidRequest(f"{list(message.values)} does not fit {message.field!r}") from None
            part, bound = _condition(column, function(message), values)
            parts.append(part)
            params.extend(bound)
        return parts, params

    def order(self, request: Any, default: str, tiebreak: str) -> str:
        chosen = [self._column(s.key)[0] + (" DESC" if s.direction == Sort.DESCENDING else "") for s in sorts(request)]
        return ", ".join([*(chosen or [default]), tiebreak])

    def _column(self, field: str) -> tuple[str, Reader]:
        if field not in self._columns:
            raise InvalidRequest(f"there is no field {field!r}; there are {', '.join(sorted(self._columns))}")
        return self._columns[field]


_COMPARISONS = {
    FilterFunction.EQUAL: "=",
    FilterFunction.NOT_EQUAL: "<>",
    FilterFunction.GREATER_THAN: ">",
    FilterFunction.GREATER_THAN_OR_EQUAL: ">=",
    FilterFunction.LESS_THAN: "<",
    FilterFunction.LESS_THAN_OR_EQUAL: "<=",
}


def _condition(column: str, chosen: FilterFunction, values: list[Any]) -> tuple[str, list[Any]]:
    if chosen in (FilterFunction.VALUE_IN, FilterFunction.VALUE_NOT_IN):
        negation = "NOT " if chosen is FilterFunction.VALUE_NOT_IN else ""
        return f"{column} {negation}IN ({', '.join('?' * len(values))})", values
    value = values[0]
    if chosen in _COMPARISONS:
        return f"{column} {_COMPARISONS[chosen]} ?", [value]
    text = str(value)
    if chosen is FilterFunction.CONTAINS:
        return f"instr({column}, ?) > 0", [text]
    if chosen is FilterFunction.CONTAINS_CASE_INSENSITIVE:
        return f"instr(lower({column}), ?) > 0", [text.lower()]
    ends = f"substr({column}, length({column}) - ?) = ?"
    return (f"NOT ({ends})" if chosen is FilterFunction.NOT_ENDS_WITH else ends), [len(text) - 1, text]
