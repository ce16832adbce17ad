"""Which variables reach the server's store and the tasks: never those of another cloud, never half a key."""

import pytest

from wingbeat.storage import access_variables, task_variables
from wingbeat.storage.access import store_config

OURS = {
    "FLYTE_AWS_ENDPOINT": "http://here",
    "FLYTE_AWS_ACCESS_KEY_ID": "id",
    "FLYTE_AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "somewhere",
}
TWINS = {"AWS_ENDPOINT_URL_S3": "http://here", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}


@pytest.mark.parametrize(
    ("uri", "names"),
    [
        ("s3://b/p", {*OURS}),
        ("gs://b/p", {"GOOGLE_APPLICATION_CREDENTIALS"}),
        ("abfs://c/p", {"AZURE_STORAGE_ACCOUNT_KEY"}),
        ("/folder", set()),
        ("file:///folder", set()),
    ],
)
def test_only_the_variables_of_the_storage_s_own_cloud_are_taken(uri, names):
    others = {"GOOGLE_APPLICATION_CREDENTIALS": "x", "AZURE_STORAGE_ACCOUNT_KEY": "x", "HOME": "/", "AWS_EMPTY": ""}
    assert {*access_variables(uri, {**OURS, **others})} == names


def test_tasks_get_amazon_s_names_too():
    assert task_variables(OURS, {"PATH": "/bin"}) == {**OURS, **TWINS}


def test_amazon_s_own_names_are_never_replaced():
    given = {**OURS, "AWS_ACCESS_KEY_ID": "other", "AWS_SECRET_ACCESS_KEY": "other", "AWS_ENDPOINT_URL": "http://there"}
    assert task_variables(given, {}) == given


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "FLYTE_AWS_ACCESS_KEY_ID", "AWS_PROFILE"])
def test_a_task_with_a_key_of_its_own_gets_no_part_of_ours(name):
    got = task_variables({**OURS, "AWS_SESSION_TOKEN": "token"}, {name: "mine"})
    assert got == {
        "FLYTE_AWS_ENDPOINT": "http://here",
        "AWS_ENDPOINT_URL_S3": "http://here",
        "AWS_REGION": "somewhere",
    }


def test_a_task_with_an_endpoint_of_its_own_keeps_it():
    got = task_variables(OURS, {"AWS_ENDPOINT_URL": "http://mine", "AWS_REGION": "mine"})
    assert not [name for name in got if "ENDPOINT" in name or "REGION" in name]


@pytest.mark.parametrize(("style", "virtual"), [("virtual", "true"), ("path", "false")])
def test_the_sdk_s_variables_are_translated_as_the_sdk_does(style, virtual):
    assert store_config({**OURS, "FLYTE_AWS_S3_ADDRESSING_STYLE": style}) == {
        "endpoint": "http://here",
        "access_key_id": "id",
        "secret_access_key": "secret",
        "virtual_hosted_style_request": virtual,
    }
    assert store_config({"AWS_REGION": "somewhere"}) == {}
