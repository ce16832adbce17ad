"""Values of every type go in by the command line, through a child task, and come back as they were."""

import pytest


@pytest.mark.submits(
    "simple_types", "given",
    "--i", "41", "--f", "1.5", "--s", "a b'c\"d", "--b", "--when", "2024-02-29T03:04:05", "--span", "PT1M30S",
)  # fmt: skip
def test_simple_types_given_on_the_command_line_reach_the_task_and_its_child(outcome):
    assert outcome.outputs == [
        42, 3.0, "a b'c\"d!", False, "2024-02-29T03:04:05+00:00", 90.0, b"\x00\xffbytes".hex(), "bytes",
    ]  # fmt: skip
    assert {a["name"]: (a["phase"], a["attempts"]) for a in outcome.actions.values()} == {
        "simple_types.given": ("SUCCEEDED", 1),
        "simple_types.child": ("SUCCEEDED", 1),
        "simple_types.nothing": ("SUCCEEDED", 1),
    }


@pytest.mark.submits("simple_types", "defaults")
def test_defaults_of_simple_types_fill_what_is_not_given(outcome):
    i, f, s, b, when, span, none = outcome.outputs
    assert [i, f, s, b, none] == [7, 2.5, "grüße \"'\n✓", True, None]
    assert when == "datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.timezone.utc)"
    assert span == "datetime.timedelta(days=1, seconds=2)"


@pytest.mark.submits("simple_types", "defaults", "--i", "-1", "--no-b", "--s", "over")
def test_one_given_value_replaces_its_default_and_leaves_the_others(outcome):
    assert outcome.outputs[:4] == [-1, 2.5, "over", False]


@pytest.mark.submits("simple_types", "extremes", "--big", "9007199254740993", "--small", "1e-308")
def test_numbers_beyond_what_a_double_holds_and_infinities_survive(outcome):
    assert outcome.outputs == [9007199254740993, 1e-308, "", float("inf")]


@pytest.mark.submits("simple_types", "no_value")
def test_a_task_without_a_value_succeeds_with_none(outcome):
    assert outcome.phase == "SUCCEEDED"
    assert outcome.outputs in ([], [None])
    assert [a["phase"] for a in outcome.named("nothing")] == ["SUCCEEDED"]


@pytest.mark.submits(
    "collection_types", "given",
    "--numbers", "[1, 2, 3]",
    "--words", '{"a": "b", "c": "d"}',
    "--nested", '{"k": [{"v": 1.5}, {}], "empty": []}',
    "--grid", "[[1, 2], [3, 4]]",
)  # fmt: skip
def test_lists_and_dicts_and_nests_of_them_go_there_and_back(outcome):
    assert outcome.outputs == [
        [3, 2, 1], {"b": "a", "d": "c"}, {"k": [{"v": 3.0}, {}], "empty": []}, [[1, 3], [2, 4]],
    ]  # fmt: skip


@pytest.mark.submits("collection_types", "defaults")
def test_defaults_of_collections_fill_what_is_not_given(outcome):
    assert outcome.outputs == [[1, 2, 3], {"a": 1}, [], {}]


@pytest.mark.submits("union_types", "main", "--given", "hello")
@pytest.mark.submits("union_types", "main", "--given", "3", "--maybe", "4")
def test_unions_keep_the_branch_that_the_value_had(outcomes):
    words, numbers = outcomes
    widened = ["NoneType:None", "int:1", "str:2"]
    assert words.outputs == [["str:hello", "NoneType:None", "str:word", "list:[1, 2]"], widened, None]
    assert numbers.outputs == [["int:3", "int:4", "str:word", "list:[1, 2]"], widened, None]


@pytest.mark.submits(
    "record_types", "main",
    "--point", '{"x": 1, "y": 2, "tags": ["t"]}',
    "--drawing", '{"shapes": [{"name": "tri", "sides": 3}]}',
    "--colour", "RED",
)  # fmt: skip
def test_dataclasses_models_and_enums_arrive_as_their_classes(outcome):
    assert outcome.outputs == [
        "Point(x=2.5, y=0.5, tags=['t', 'moved'])",
        '{"shapes":[{"name":"TRI","sides":4,"extra":{}}],"owner":"me"}',
        "GREEN",
    ]


@pytest.mark.submits("record_types", "values")
def test_a_client_without_the_classes_reads_records_and_enums(outcome):
    point, drawing, colour = outcome.outputs
    assert "x=1.0" in point and "y=2.0" in point and "['d']" in point
    assert "square" in drawing and "sides=4" in drawing and "{'a': 1}" in drawing
    assert "GREEN" in str(colour)
