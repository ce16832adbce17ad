"""Values are read as people write them, and a huge one costs no more than a page."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from flyteidl2.core.literals_pb2 import Literal
from flyteidl2.task.common_pb2 import Inputs
from hypothesis import given
from hypothesis import strategies as st

from wingbeat.server.pages import literals

from .made import file_literal, literal


def shown(value: Any) -> tuple[str, str]:
    found = literals.describe("x", literal(value))
    return found.kind, found.text


def test_primitives() -> None:
    assert shown(42) == ("integer", "42")
    assert shown(0.5) == ("float", "0.5")
    assert shown(True) == ("boolean", "true")
    assert shown("two\nlines") == ("text", "two\nlines")
    assert shown(None) == ("none", "null")
    moment = Literal()
    moment.scalar.primitive.datetime.FromJsonString("2031-05-06T07:08:09Z")
    assert shown(moment) == ("datetime", "2031-05-06T07:08:09Z")


def test_numbers_that_json_does_not_have_are_words() -> None:
    assert shown(float("nan"))[1] == "nan"
    assert json.loads(shown({"a": float("inf")})[1]) == {"a": "inf"}


def test_collections_maps_and_unions_are_json() -> None:
    kind, text = shown([1, "a", None])
    assert (kind, json.loads(text)) == ("list of 3", [1, "a", None])
    mapped = Literal()
    mapped.map.literals["b"].CopyFrom(literal(2))
    mapped.map.literals["a"].CopyFrom(literal([1]))
    assert json.loads(shown(mapped)[1]) == {"a": [1], "b": 2}
    union = Literal()
    union.scalar.union.value.CopyFrom(literal(7))
    assert shown(union) == ("integer", "7")


def test_dataclasses_are_json() -> None:
    value = {"name": "Ada", "nested": {"ok": True, "raw": b"\x00\x01"}, 3: [1.5]}
    kind, text = shown(value)
    assert kind == "object"
    assert json.loads(text) == {"name": "Ada", "nested": {"ok": True, "raw": "(2 bytes: 0001)"}, "3": [1.5]}


def test_files_folders_and_frames_are_their_uri() -> None:
    assert shown(file_literal("/data/raw/a.bin")) == ("file", "/data/raw/a.bin")
    folder = file_literal("/data/raw/dir")
    folder.scalar.blob.metadata.type.dimensionality = 1
    assert shown(folder) == ("folder", "/data/raw/dir")
    frame = Literal()
    frame.scalar.structured_dataset.uri = "s3://bucket/frame"
    assert shown(frame) == ("data frame", "s3://bucket/frame")


def test_what_is_no_msgpack_is_said_to_be_none() -> None:
    broken = Literal()
    broken.scalar.binary.value = b"\xc1\xff"
    broken.scalar.binary.tag = "msgpack"
    assert "no valid msgpack" in shown(broken)[1]


def test_long_deep_and_wide_values_are_cut_and_say_so() -> None:
    assert shown("x" * 10_000)[1].endswith("(6,000 more characters)")
    wide = json.loads(shown([0] * 1_000)[1])
    assert len(wide) == literals.MAX_ITEMS + 1
    assert wide[-1] == "… (900 more)"
    deep: Any = 1
    for _ in range(60):
        deep = [deep]
    assert "deeper levels are left out" in shown({"deep": deep})[1]
    square = [[0] * 100 for _ in range(100)]
    assert len(shown(square)[1]) < 100_000


def test_msgpack_nested_without_end_does_no_harm() -> None:
    bomb = Literal()
    bomb.scalar.binary.value = b"\x91" * 100_000 + b"\x01"
    bomb.scalar.binary.tag = "msgpack"
    assert shown(bomb)[0] == "object"


def test_bytes_that_are_no_inputs_are_refused_in_words() -> None:
    with pytest.raises(literals.BadLiterals, match="the inputs cannot be decoded"):
        literals.input_values(b"\xff\xff\xff")


def test_context_comes_with_the_inputs() -> None:
    message = Inputs()
    message.literals.add(name="a").value.CopyFrom(literal(1))
    message.context.add(key="team", value="ml")
    values, context = literals.input_values(message.SerializeToString())
    assert [value.name for value in values] == ["a"]
    assert context == {"team": "ml"}


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(-9, 9), inner),
    max_leaves=30,
)


@given(json_like)
def test_every_msgpack_value_is_shown(value: Any) -> None:
    made = Literal()
    made.scalar.binary.value = msgspec.msgpack.encode(value)
    made.scalar.binary.tag = "msgpack"
    assert isinstance(literals.describe("x", made).text, str)
