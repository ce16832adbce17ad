"""TaskActions to and from the JSON of the custom resource, and the definition generated from them."""

import datetime as dt
import json
import pathlib
import subprocess
import sys

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from wingbeat.resources import ActionId, TaskAction, copy, decode, encode
from wingbeat.resources.crd import definition
from wingbeat.resources.taskaction import (
    Condition,
    ErrorState,
    ObjectMeta,
    OwnerReference,
    PhaseTransition,
    TaskActionSpec,
    TaskActionStatus,
)

ROOT = pathlib.Path(__file__).parents[2]
TEXT = st.text(max_size=20)
TIME = st.datetimes(min_value=dt.datetime(2000, 1, 1), max_value=dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC))


def struct(kind, **special):
    """A strategy for a struct with a value for every field."""
    simple = {str: TEXT, int: st.integers(0, 255), bytes: st.binary(max_size=30), bool: st.booleans()}
    fields = {}
    for field in msgspec.structs.fields(kind):
        if field.name in special:
            fields[field.name] = special[field.name]
        elif field.type in simple:
            fields[field.name] = simple[field.type]
        elif field.type == dt.datetime:
            fields[field.name] = TIME
        elif field.type == dt.datetime | None:
            fields[field.name] = st.none() | TIME
        elif field.type == bool | None:
            fields[field.name] = st.none() | st.booleans()
        elif field.type == str | None:
            fields[field.name] = st.none() | TEXT
        elif field.type == list[str]:
            fields[field.name] = st.lists(TEXT, max_size=3)
        elif field.type == dict[str, str]:
            fields[field.name] = st.dictionaries(TEXT, TEXT, max_size=3)
        else:
            raise AssertionError(f"no strategy for {kind.__name__}.{field.name}: {field.type}")
    return st.builds(kind, **fields)


ACTIONS = st.builds(
    TaskAction,
    metadata=struct(ObjectMeta, owner_references=st.lists(struct(OwnerReference), max_size=2)),
    spec=struct(TaskActionSpec),
    status=struct(
        TaskActionStatus,
        conditions=st.lists(struct(Condition), max_size=3),
        phase_history=st.lists(struct(PhaseTransition), max_size=3),
        error_state=st.none() | struct(ErrorState),
    ),
)


@given(ACTIONS)
def test_a_task_action_goes_to_json_and_back_without_loss(action):
    assert decode(encode(action)) == action
    again = copy(action)
    assert again == action
    again.status.conditions.append(Condition(type="x", status="True"))
    again.metadata.labels["new"] = "label"
    assert again != action


def test_the_json_has_the_field_names_of_the_custom_resource():
    action = TaskAction(
        metadata=ObjectMeta(name="r-a0", labels={"flyte.org/run": "r"}),
        spec=TaskActionSpec(run_name="r", project="p", domain="d", action_name="a0", task_template=b"\x01\x02"),
        status=TaskActionStatus(attempts=2, plugin_phase="PhaseRunning", system_failures=1),
    )
    body = json.loads(encode(action))
    assert (body["apiVersion"], body["kind"]) == ("flyte.org/v1", "TaskAction")
    assert body["spec"] == {
        "runName": "r",
        "project": "p",
        "domain": "d",
        "actionName": "a0",
        "taskTemplate": "AQI=",
    }
    assert body["status"] == {"attempts": 2, "pluginPhase": "PhaseRunning", "systemFailures": 1}


def test_an_empty_organisation_is_the_default_one():
    action = TaskAction(spec=TaskActionSpec(run_name="r", project="p", domain="d", action_name="a0"))
    assert action.id == ActionId("local", "p", "d", "r", "a0")


def test_two_identities_can_share_an_object_name_but_never_an_identity():
    one, other = ActionId("o", "p", "d", "a-b", "c"), ActionId("o", "p", "d", "a", "b-c")
    assert one.object_name == other.object_name
    assert one != other
    assert ActionId("o", "p", "d", "run", "run").object_name == "run-a0"


def test_the_definition_in_the_repository_is_the_generated_one():
    printed = subprocess.run(
        [sys.executable, "-m", "wingbeat.resources.crd"], capture_output=True, text=True, check=True
    ).stdout
    assert (ROOT / "deploy" / "crd" / "taskactions.yaml").read_text() == printed
    assert yaml.safe_load(printed) == definition()


@pytest.mark.parametrize(("kind", "part"), [(TaskActionSpec, "spec"), (TaskActionStatus, "status")])
def test_every_field_is_in_the_schema_so_that_a_server_prunes_none(kind, part):
    version = definition()["spec"]["versions"][0]
    properties = version["schema"]["openAPIV3Schema"]["properties"][part]["properties"]
    assert sorted(properties) == sorted(f.encode_name for f in msgspec.structs.fields(kind))
    assert version["subresources"] == {"status": {}}


def test_names_and_limits_are_those_of_flytes_executor():
    spec = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["required"] == ["actionName", "domain", "project", "runName"]
    assert spec["properties"]["runName"]["maxLength"] == 30
    assert spec["properties"]["cacheKey"]["maxLength"] == 256
    assert spec["properties"]["actionType"]["enum"] == ["task", "condition"]
