"""Rendering of argument lists against reference values (tests/vectors/templates.json)."""

import json
import pathlib
import re

import pytest

from wingbeat.execution import per_retry_key, render

VECTORS = pathlib.Path(__file__).parents[1] / "vectors"
ITEMS = json.loads((VECTORS / "templates.json").read_text())["items"]
KEYS = json.loads((VECTORS / "per_retry_keys.json").read_text())["items"]


def simple(item: dict) -> bool:
    """Items on the variables of the contract; `{{.inputs.x}}` belongs to raw containers, which do not run yet;
    values that themselves look like variables are rendered once here and left alone."""
    text, context = " ".join(item["args"]), json.dumps(item["context"])
    if item.get("error") or re.search(r"inputs\.", text, re.I):
        return False
    return "$" not in context and "{{" not in context


def values(context: dict) -> dict[str, str]:
    return {
        "input": context["input_path"],
        "inputprefix": context["input_prefix"],
        "outputprefix": context["output_prefix"],
        "rawoutputdataprefix": context["raw_output_prefix"],
        "prevcheckpointprefix": context["previous_checkpoint"] or '""',
        "checkpointoutputprefix": context["checkpoint"],
        "perretryuniquekey": per_retry_key(context["generated_name"]),
        "tasktemplatepath": context["task_template_path"],
        "namespace": context["namespace"],
    }


@pytest.mark.parametrize("item", [i for i in ITEMS if simple(i)], ids=lambda i: i["note"])
def test_arguments_render_as_flyte_renders_them(item):
    assert render(item["args"], values(item["context"])) == item["result"]


def test_the_simple_vectors_are_many():
    assert sum(simple(i) for i in ITEMS) >= 9


@pytest.mark.parametrize("item", KEYS, ids=lambda i: i["generated_name"])
def test_the_per_retry_key_is_an_identifier(item):
    assert per_retry_key(item["generated_name"]) == item["per_retry_unique_key"]
