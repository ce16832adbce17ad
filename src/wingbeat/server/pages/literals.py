"""Values as people read them: from literals to JSON, files as their URI, and never more than fits on a page."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec
from flyteidl2.core.literals_pb2 import Literal, Scalar
from flyteidl2.task.common_pb2 import Inputs, Outputs

MAX_TEXT = 4_000
"""Characters of one text value."""
MAX_ITEMS = 100
"""Members shown of one collection or map."""
MAX_NODES = 2_000
"""Members shown of one value altogether."""
MAX_DEPTH = 16
MAX_LINE = 60
"""Characters of JSON that are kept on one line."""
MAX_VALUES = 200
"""Named values of one set of inputs or outputs."""


class Value(msgspec.Struct, frozen=True):
    """A named value: what kind it is, in words, and its text (JSON, or the plain text of a string)."""

    name: str
    kind: str
    text: str


class BadLiterals(ValueError):
    """The bytes are not the message they should be."""


def input_values(data: bytes) -> tuple[list[Value], dict[str, str]]:
    """The values and the custom context in an `inputs.pb`. Raises BadLiterals."""
    message = Inputs()
    _parse(message, data, "inputs")
    return _values(message.literals), {pair.key: pair.value for pair in islice(message.context, MAX_VALUES)}


def output_values(data: bytes) -> list[Value]:
    """The values in an `outputs.pb`. Raises BadLiterals."""
    message = Outputs()
    _parse(message, data, "outputs")
    return _values(message.literals)


def literal_value(name: str, data: bytes) -> Value:
    """The one value in a serialized literal. Raises BadLiterals."""
    message = Literal()
    _parse(message, data, "value")
    return describe(name, message)


def _parse(message: Any, data: bytes, what: str) -> None:
    try:
        message.ParseFromString(data)
    except Exception as error:
        raise BadLiterals(f"the {what} cannot be decoded: {error}") from error


def _values(literals: Any) -> list[Value]:
    return [describe(each.name, each.value) for each in islice(literals, MAX_VALUES)]


def describe(name: str, literal: Any) -> Value:
    """`literal` (a `flyteidl2.core.Literal`) as a named value."""
    shown = _Reader().literal(literal, 0)
    kind = kind_of(literal)
    return Value(name, kind, shown if isinstance(shown, str) else _json(shown))


def _json(value: Any) -> str:
    """On one line if that is short."""
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= MAX_LINE else json.dumps(value, indent=2, ensure_ascii=False)


def kind_of(literal: Any) -> str:
    """A word or two on what `literal` is."""
    which = literal.WhichOneof("value")
    if which == "collection":
        return f"list of {len(literal.collection.literals)}"
    if which == "map":
        return f"map of {len(literal.map.literals)}"
    if which == "offloaded_metadata":
        return "stored apart"
    if which != "scalar":
        return "nothing"
    return _scalar_kind(literal.scalar)


def _scalar_kind(scalar: Any) -> str:
    which = scalar.WhichOneof("value")
    if which == "primitive":
        primitive = str(scalar.primitive.WhichOneof("value") or "none")
        return {"float_value": "float", "string_value": "text"}.get(primitive, primitive)
    if which == "union":
        return kind_of(scalar.union.value)
    if which == "blob":
        return "folder" if scalar.blob.metadata.type.dimensionality else "file"
    if which == "binary":
        return "object" if scalar.binary.tag == "msgpack" else "bytes"
    words = {"structured_dataset": "data frame", "schema": "data frame", "none_type": "none", "generic": "object"}
    return words.get(which or "", which or "nothing")


class _Reader:
    """Reads one value; counts what it has taken, over all levels."""

    def __init__(self) -> None:
        self.nodes = 0

    def literal(self, literal: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            return "… (deeper levels are left out)"
        which = literal.WhichOneof("value")
        if which == "collection":
            items = literal.collection.literals
            return self.items(items, len(items), lambda each: self.literal(each, depth + 1))
        if which == "map":
            entries = literal.map.literals
            return self.members(
                ((key, entries[key]) for key in sorted(entries)), len(entries), lambda v: self.literal(v, depth + 1)
            )
        if which == "offloaded_metadata":
            return {"uri": literal.offloaded_metadata.uri, "bytes": literal.offloaded_metadata.size_bytes}
        return self.scalar(literal.scalar, depth) if which == "scalar" else None

    def scalar(self, scalar: Scalar, depth: int) -> Any:
        which = scalar.WhichOneof("value")
        if which == "primitive":
            return self.primitive(scalar.primitive)
        if which == "union":
            return self.literal(scalar.union.value, depth + 1)
        if which == "binary":
            return self.binary(scalar.binary.value, scalar.binary.tag, depth)
        if which == "blob":
            return self.plain(scalar.blob.uri, depth)
        if which == "structured_dataset":
            return self.plain(scalar.structured_dataset.uri, depth)
        if which == "schema":
            return self.plain(scalar.schema.uri, depth)
        if which == "error":
            return {"message": self.plain(scalar.error.message, depth), "failed node": scalar.error.failed_node_id}
        if which == "generic":
            return self.struct(scalar.generic, depth)
        return None

    def primitive(self, primitive: Any) -> Any:
        which = primitive.WhichOneof("value")
        if which is None:
            return None
        if which in ("datetime", "duration"):
            return str(getattr(primitive, which).ToJsonString())
        return self.plain(getattr(primitive, which), 0)

    def binary(self, data: bytes, tag: str, depth: int) -> Any:
        if tag != "msgpack":
            return _bytes_words(data) + (f", format {tag}" if tag else "")
        try:
            return self.plain(msgspec.msgpack.decode(data), depth)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            return f"{_bytes_words(data)} that are no valid msgpack: {error}"

    def struct(self, message: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            return "… (deeper levels are left out)"
        fields = message.fields
        return self.members(
            ((key, fields[key]) for key in sorted(fields)), len(fields), lambda v: self.struct_value(v, depth + 1)
        )

    def struct_value(self, value: Any, depth: int) -> Any:
        which = value.WhichOneof("kind")
        if which == "struct_value":
            return self.struct(value.struct_value, depth)
        if which == "list_value":
            items = value.list_value.values
            return self.items(items, len(items), lambda each: self.struct_value(each, depth + 1))
        return None if which in (None, "null_value") else self.plain(getattr(value, which), depth)

    def plain(self, value: Any, depth: int) -> Any:
        """A Python value, as JSON can say it."""
        if depth > MAX_DEPTH:
            return "… (deeper levels are left out)"
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if value.bit_length() < 1024 else "a very large integer"
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, str):
            left_out = len(value) - MAX_TEXT
            return value if left_out <= 0 else f"{value[:MAX_TEXT]}… ({left_out:,} more characters)"
        if isinstance(value, bytes):
            return _bytes_words(value)
        if isinstance(value, Mapping):
            return self.members(value.items(), len(value), lambda v: self.plain(v, depth + 1))
        if isinstance(value, (list, tuple, set, frozenset)):
            return self.items(value, len(value), lambda v: self.plain(v, depth + 1))
        if isinstance(value, dt.datetime):
            return value.isoformat()
        return str(value)[:MAX_TEXT]

    def _room(self) -> int:
        return max(0, min(MAX_ITEMS, MAX_NODES - self.nodes))

    def items(self, values: Iterable[Any], total: int, read: Any) -> list[Any]:
        taken = list(islice(values, self._room()))
        self.nodes += len(taken)
        shown = [read(each) for each in taken]
        if total > len(taken):
            shown.append(f"… ({total - len(taken):,} more)")
        return shown

    def members(self, pairs: Iterable[tuple[Any, Any]], total: int, read: Any) -> dict[str, Any]:
        taken = list(islice(pairs, self._room()))
        self.nodes += len(taken)
        shown = {str(key)[:MAX_TEXT]: read(each) for key, each in taken}
        if total > len(taken):
            shown["…"] = f"({total - len(taken):,} more)"
        return shown


def _bytes_words(data: bytes) -> str:
    start = base64.b16encode(data[:24]).decode().lower()
    number = f"{len(data):,} byte{'' if len(data) == 1 else 's'}"
    return f"({number}: {start}{'…' if len(data) > 24 else ''})" if data else "(no bytes)"
