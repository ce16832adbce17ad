"""Output paths against reference values made by real Go programs (tests/vectors/output_paths.json)."""

import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wingbeat.execution import BadOutputBase, output_prefix, shard

ITEMS = json.loads((pathlib.Path(__file__).parents[1] / "vectors" / "output_paths.json").read_text())["items"]


def plain(item: dict) -> bool:
    """Bases that are sensible: Flyte's result for the others is of little use, and they are refused (see paths.py)."""
    base = item["run_output_base"]
    return "://" in base and not item.get("error") and not any(c in base for c in "?#%\\ ") and ".." not in base


@pytest.mark.parametrize("item", ITEMS, ids=lambda i: f"{i['namespace']}/{i['name']}")
def test_the_shard_is_the_one_that_go_computes(item):
    assert shard(item["namespace"], item["name"]) == item["shard"]


@pytest.mark.parametrize(
    "item", [i for i in ITEMS if plain(i) and ".." not in i["action"]], ids=lambda i: i["run_output_base"]
)
def test_a_base_with_a_scheme_gives_the_prefix_that_go_computes(item):
    prefix = output_prefix(
        item["run_output_base"],
        namespace=item["namespace"],
        object_name=item["name"],
        action=item["action"],
        attempt=item["attempt"],
    )
    assert prefix == item["path"]
    assert prefix + "/outputs.pb" == item["outputs"]
    assert prefix + "/error.pb" == item["error_file"]


def test_the_plain_vectors_are_many():
    assert sum(plain(i) for i in ITEMS) >= 20


@pytest.mark.parametrize(
    "base", ["s3://b/x?y=1", "s3://b/x#y", "s3://b/../x", "relative/dir", "../up", "~/home", "file:rel/x", "C:\\data"]
)
def test_a_base_that_would_give_a_useless_path_is_refused_by_name(base):
    with pytest.raises(BadOutputBase, match="output base"):
        output_prefix(base, namespace="flyte", object_name="r-a0", action="a0", attempt=1, root="/data")


def test_a_local_base_keeps_its_shard_below_the_data_root():
    prefix = output_prefix(
        "/data/store/runs/p/d/r/",
        namespace="flyte",
        object_name="r1-a0",
        action="a0",
        attempt=2,
        root="/data/store",
    )
    assert prefix == "/data/store/xt/runs/p/d/r/a0/2"


@given(base=st.text(alphabet="/.ab", max_size=20), action=st.from_regex(r"[a-z][a-z0-9]{0,9}", fullmatch=True))
def test_no_local_path_ever_leaves_the_data_root(base, action):
    try:
        prefix = output_prefix(
            "/data" + base, namespace="flyte", object_name=f"r-{action}", action=action, attempt=1, root="/data"
        )
    except BadOutputBase:
        return
    assert prefix.startswith("/data/")
    assert ".." not in prefix.split("/")


@pytest.mark.parametrize(
    ("root", "base", "expected"),
    [
        ("s3://b/data", "s3://b/data/runs/r/", "s3://b/data/xt/runs/r/a0/2"),
        ("s3://b/data/", "s3://b/data", "s3://b/data/xt/a0/2"),
        ("s3://b", "s3://b/runs/r", "s3://b/xt/runs/r/a0/2"),
        ("s3://b/data", "s3://b/database/r", "s3://b/xt/database/r/a0/2"),
        ("s3://b/data", "s3://other/data/r", "s3://other/xt/data/r/a0/2"),
    ],
)
def test_a_base_in_the_storage_s_prefix_of_a_bucket_keeps_its_shard_below_it(root, base, expected):
    assert output_prefix(base, namespace="flyte", object_name="r1-a0", action="a0", attempt=2, root=root) == expected
