"""CreateRun: what is checked, what is stored, and that a refusal leaves nothing."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import tarfile
from pathlib import Path

import msgspec
import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from flyteidl2.common.identifier_pb2 import ProjectIdentifier
from flyteidl2.common.run_pb2 import OffloadedInputData, RelationType
from flyteidl2.core.literals_pb2 import KeyValuePair
from flyteidl2.core.tasks_pb2 import RuntimeMetadata
from flyteidl2.core.types_pb2 import EnumType, LiteralType, SimpleType, UnionType
from flyteidl2.dataproxy.dataproxy_service_pb2 import GetActionDataRequest, UploadInputsRequest
from flyteidl2.project.project_service_pb2 import Project, UpdateProjectRequest
from flyteidl2.task.run_pb2 import CacheConfig, CacheLookupScope, RunSpec
from flyteidl2.task.task_definition_pb2 import TaskIdentifier, TaskSpec
from flyteidl2.workflow.run_service_pb2 import CreateRunRequest, GetRunDetailsRequest

from wingbeat.control import bundles
from wingbeat.control.bundles import Bundles
from wingbeat.control.errors import InvalidRequest
from wingbeat.control.names import new_run_name
from wingbeat.resources.taskaction import (
    ANNOTATION_CACHE_OVERWRITE,
    ANNOTATION_CACHE_SCOPE,
    ANNOTATION_DEPTH,
    ANNOTATION_RAW_DATA_PREFIX,
    ANNOTATION_RUN_START_TIME,
    LABEL_ORG,
)
from wingbeat.storage import open_storage
from wingbeat.stores import NotFound


async def refused(awaitable) -> ConnectError:
    with pytest.raises(ConnectError) as caught:
        await awaitable
    return caught.value


async def test_a_run_is_stored_with_its_action_and_its_record(plane, make):
    run = await plane.create("hello")
    assert (run.action.id.run.org, run.action.id.run.name, run.action.id.name) == ("local", "hello", "a0")
    assert run.action.status.phase == 1
    assert run.action.metadata.executed_by.user.id.subject == "ada"
    action = await plane.store.get(plane.id("hello"))
    assert action.spec.task_type == "python"
    assert action.spec.task_template == make.task_spec().task_template.SerializeToString(deterministic=True)
    assert action.spec.parent_action_name is None
    assert action.metadata.labels[LABEL_ORG] == "local"
    assert action.metadata.annotations[ANNOTATION_DEPTH] == "0"
    assert ANNOTATION_RUN_START_TIME in action.metadata.annotations
    details = (await plane.runs.get_run_details(GetRunDetailsRequest(run_id=plane.run_id("hello")))).details
    assert details.action.task == make.task_spec()
    assert details.action.metadata.task.short_name == "main"
    assert details.action.metadata.environment_name == "env"


async def test_inputs_are_stored_and_read_back(plane, make):
    await plane.create("hello")
    data = await plane.data.get_action_data(GetActionDataRequest(action_id=plane.action_id("hello")))
    assert data.inputs == make.inputs(n=3)
    assert data.inputs_uri.endswith("/inputs.pb")
    assert data.outputs_uri == ""


async def test_a_run_without_a_name_gets_one_that_is_valid(plane):
    run = await plane.create()
    assert re.fullmatch(r"r[bcdfghjklmnpqrstvwxz2456789]{19}", run.action.id.run.name)


def test_made_names_do_not_repeat():
    assert len({new_run_name() for _ in range(100_000)}) == 100_000


@pytest.mark.parametrize("name", ["a" * 31, "Upper", "1digit", "ends-", "under_score", "ünï"])
async def test_a_bad_run_name_is_refused_and_named(plane, name):
    error = await refused(plane.create(name))
    assert error.code is Code.INVALID_ARGUMENT
    assert name[:30] in error.message
    with pytest.raises(NotFound):
        await plane.store.get(plane.id(name))


async def test_the_longest_name_is_accepted(plane):
    assert (await plane.create("a" * 30)).action.id.run.name == "a" * 30


async def test_a_taken_name_is_refused_and_the_first_run_is_untouched(plane, make):
    await plane.create("once")
    error = await refused(plane.create("once", inputs=make.inputs(n=99)))
    assert error.code is Code.ALREADY_EXISTS
    data = await plane.data.get_action_data(GetActionDataRequest(action_id=plane.action_id("once")))
    assert data.inputs == make.inputs(n=3)


async def test_of_many_at_once_with_one_name_one_wins(plane):
    results = await asyncio.gather(*(plane.create("race") for _ in range(10)), return_exceptions=True)
    errors = [r for r in results if isinstance(r, Exception)]
    assert len(errors) == 9
    assert {e.code for e in errors} == {Code.ALREADY_EXISTS}


async def test_unknown_project_domain_and_task_are_not_found_and_named(plane):
    other = ProjectIdentifier(name="nope", domain="development")
    error = await refused(plane.runs.create_run(CreateRunRequest(project_id=other)))
    assert (error.code, "'nope'" in error.message, "default" in error.message) == (Code.NOT_FOUND, True, True)
    other = ProjectIdentifier(name="default", domain="moon")
    error = await refused(plane.runs.create_run(CreateRunRequest(project_id=other)))
    assert (error.code, "'moon'" in error.message) == (Code.NOT_FOUND, True)
    task = TaskIdentifier(project="default", domain="development", name="env.gone", version="v9")
    error = await refused(plane.create("hello", task_id=task))
    assert (error.code, "'env.gone'" in error.message, "'v9'" in error.message) == (Code.NOT_FOUND, True, True)


async def test_an_archived_project_takes_no_runs(plane):
    await plane.projects.update_project(UpdateProjectRequest(project=Project(id="default", state=1)))
    error = await refused(plane.create("hello"))
    assert (error.code, "archived" in error.message) == (Code.FAILED_PRECONDITION, True)


async def test_an_empty_request_is_invalid(plane):
    assert (await refused(plane.runs.create_run(CreateRunRequest()))).code is Code.INVALID_ARGUMENT
    no_task = CreateRunRequest(run_id=plane.run_id("x"))
    assert (await refused(plane.runs.create_run(no_task))).code is Code.INVALID_ARGUMENT
    empty = CreateRunRequest(run_id=plane.run_id("x"), task_spec=TaskSpec())
    assert (await refused(plane.runs.create_run(empty))).code is Code.INVALID_ARGUMENT


async def test_a_missing_input_is_named(plane, make):
    error = await refused(plane.create("hello", inputs=make.inputs()))
    assert error.code is Code.INVALID_ARGUMENT
    assert error.message == (
        "task env.main needs the input 'n' (integer), which is not given; give it: flyte run ... main --n VALUE"
    )


async def test_an_unknown_input_is_named_with_those_there_are(plane, make):
    error = await refused(plane.create("hello", inputs=make.inputs(n=1, m=2)))
    assert error.message == "task env.main has no input 'm'; it has n, see: flyte run ... main --help"


@pytest.mark.parametrize(
    ("kind", "good", "bad", "words"),
    [
        (SimpleType.INTEGER, 1, "one", "must be integer, not the string 'one'"),
        (SimpleType.STRING, "x", 1, "must be string, not the integer '1'"),
        (SimpleType.BOOLEAN, True, 1, "must be boolean, not the integer '1'"),
        (SimpleType.FLOAT, 1.5, "x", "must be float, not the string 'x'"),
        (SimpleType.FLOAT, 2, "x", "must be float"),
        (LiteralType(enum_type=EnumType(values=["red", "blue"])), "red", "green", "must be one of red, blue"),
        (LiteralType(collection_type=LiteralType(simple=SimpleType.INTEGER)), None, 1, "must be list of integer"),
        (
            LiteralType(
                union_type=UnionType(
                    variants=[LiteralType(simple=SimpleType.INTEGER), LiteralType(simple=SimpleType.STRING)]
                )
            ),
            "x",
            True,
            "must be integer or string, not the boolean 'True'",
        ),
    ],
)
async def test_a_wrongly_typed_input_is_refused_in_words(plane, make, kind, good, bad, words):
    spec = make.task_spec(takes=make.variables(x=kind))
    error = await refused(plane.create("bad", task_spec=spec, inputs=make.inputs(x=bad)))
    assert error.code is Code.INVALID_ARGUMENT
    assert "the input 'x' of task env.main" in error.message
    assert words in error.message
    if good is not None:
        await plane.create("good", task_spec=spec, inputs=make.inputs(x=good))


async def test_defaults_and_absent_optionals_are_filled_in(plane, make):
    optional = LiteralType(
        union_type=UnionType(variants=[LiteralType(simple=SimpleType.INTEGER), LiteralType(simple=SimpleType.NONE)])
    )
    spec = make.task_spec(takes=make.variables(a=SimpleType.INTEGER, b=optional), defaults={"a": 7})
    await plane.create("hello", task_spec=spec, inputs=make.inputs())
    data = await plane.data.get_action_data(GetActionDataRequest(action_id=plane.action_id("hello")))
    values = {named.name: named.value for named in data.inputs.literals}
    assert values["a"] == make.literal(7)
    assert values["b"].scalar.union.value.scalar.HasField("none_type")


async def test_an_input_that_the_runtime_fills_with_the_start_time_is_not_missed(plane, make):
    given = make.inputs()
    given.context.append(KeyValuePair(key="_u_kickoff_time_input_arg", value="n"))
    await plane.create("hello", inputs=given)


async def test_uploaded_inputs_are_taken_where_they_are(plane, make):
    request = UploadInputsRequest(
        project_id=ProjectIdentifier(name="default", domain="development"),
        task_spec=make.task_spec(),
        inputs=make.inputs(n=5),
    )
    offloaded = (await plane.data.upload_inputs(request)).offloaded_input_data
    assert offloaded.uri.endswith("/inputs.pb")
    await plane.create("hello", offloaded_input_data=offloaded)
    action = await plane.store.get(plane.id("hello"))
    assert action.spec.input_uri == offloaded.uri


async def test_inputs_that_are_gone_are_not_found(plane):
    gone = OffloadedInputData(uri=plane.storage.join("runs", "gone", "inputs.pb"), inputs_hash="x")
    error = await refused(plane.create("hello", offloaded_input_data=gone))
    assert (error.code, "inputs" in error.message) == (Code.NOT_FOUND, True)


async def test_inputs_outside_of_the_storage_are_refused(plane):
    outside = OffloadedInputData(uri="/etc/passwd", inputs_hash="x")
    error = await refused(plane.create("hello", offloaded_input_data=outside))
    assert error.code is Code.INVALID_ARGUMENT


async def test_a_bundle_that_is_not_there_is_refused_naming_the_way_out(plane, make):
    uri = plane.storage.join("uploads", "fast.tar.gz")
    spec = make.task_spec(args=["--tgz", uri, "--dest", "."])
    error = await refused(plane.create("hello", task_spec=spec))
    assert error.code is Code.FAILED_PRECONDITION
    assert uri in error.message
    assert "flyte delete local-cache" in error.message
    elsewhere = make.task_spec(args=["--pkl", "/another/data/folder/code.pkl.gz"])
    assert (await refused(plane.create("hello", task_spec=elsewhere))).code is Code.FAILED_PRECONDITION
    await plane.storage.put(uri, make.bundle("main.py"))
    await plane.create("hello", task_spec=spec)


def member(name, **fields):
    result = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(result, field, value)
    return result


ESCAPES = {
    "above": (member("../x"), "'../x', which would be written outside"),
    "inside-and-above": (member("a/../../x"), "'a/../../x', which would be written outside"),
    "absolute": (member("/etc/x"), "'/etc/x', which would be written outside"),
    "link": (member("a/b", type=tarfile.SYMTYPE, linkname="../../x"), "a link to '../../x'"),
    "absolute-link": (member("a", type=tarfile.SYMTYPE, linkname="/etc"), "a link to '/etc'"),
    "roundabout-link": (member("a/b", type=tarfile.SYMTYPE, linkname="c/../d"), "a link to 'c/../d'"),
    "hard-link": (member("a", type=tarfile.LNKTYPE, linkname="/etc/passwd"), "a hard link to '/etc/passwd'"),
    "device": (member("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3), "'null', which is a device"),
    "pipe": (member("pipe", type=tarfile.FIFOTYPE), "'pipe', which is a device or a pipe"),
}


@pytest.mark.parametrize("case", ESCAPES)
async def test_a_bundle_that_leaves_its_folder_is_refused_naming_the_member(plane, make, case):
    escaping, words = ESCAPES[case]
    uri = plane.storage.join("uploads", "code.tar.gz")
    await plane.storage.put(uri, make.bundle("main.py", escaping))
    error = await refused(plane.create("hello", task_spec=make.task_spec(args=["--tgz", uri])))
    assert error.code is Code.INVALID_ARGUMENT
    assert uri in error.message and words in error.message and f"tar -tvf {uri}" in error.message


async def test_links_that_stay_in_the_folder_are_fine(plane, make):
    uri = plane.storage.join("uploads", "code.tar.gz")
    up = member("a/b/link", type=tarfile.SYMTYPE, linkname="../../main.py")
    hard = member("again.py", type=tarfile.LNKTYPE, linkname="main.py")
    await plane.storage.put(uri, make.bundle("main.py", member("a/b", type=tarfile.DIRTYPE), up, hard))
    await plane.create("hello", task_spec=make.task_spec(args=["--tgz", uri]))


@pytest.mark.parametrize("cut", [0, 1, 30, -30])
async def test_a_bundle_that_is_no_archive_is_refused(plane, make, cut):
    data = make.bundle("main.py")
    uri = plane.storage.join("uploads", "code.tar.gz")
    await plane.storage.put(uri, b"?" * 100 if cut == 1 else data[:cut])
    error = await refused(plane.create("hello", task_spec=make.task_spec(args=["--tgz", uri])))
    assert error.code is Code.INVALID_ARGUMENT
    assert f"{uri} is not a tar archive" in error.message and "flyte delete local-cache" in error.message


@pytest.mark.parametrize("limit", ["LOOK_SECONDS", "LOOK_BYTES"])
async def test_looking_at_a_bundle_has_an_end(plane, make, monkeypatch, limit):
    monkeypatch.setattr(bundles, limit, -1)
    uri = plane.storage.join("uploads", "code.tar.gz")
    await plane.storage.put(uri, make.bundle("main.py", member("../x")))
    await plane.create("hello", task_spec=make.task_spec(args=["--tgz", uri]))


async def test_a_pickled_bundle_has_to_be_gzip(plane, make):
    uri = plane.storage.join("uploads", "code.pkl.gz")
    spec = make.task_spec(args=["--pkl", uri])
    await plane.storage.put(uri, b"\x80\x05.")
    error = await refused(plane.create("hello", task_spec=spec))
    assert (error.code, "is not a gzip file" in error.message) == (Code.INVALID_ARGUMENT, True)
    await plane.storage.put(uri, gzip.compress(b"anything"))
    await plane.create("hello", task_spec=spec)


async def test_a_bundle_is_looked_at_once_until_it_changes(tmp_path, make):
    storage = open_storage(str(tmp_path / "data"))
    checked = Bundles(storage)
    uri = storage.join("code.tar.gz")
    spec = make.task_spec(args=["--tgz", uri])
    data = make.bundle("main.py")
    await storage.put(uri, data)
    changed = Path(uri).stat().st_mtime
    await checked.check(spec.task_template)
    Path(uri).write_bytes(b"?" * len(data))
    os.utime(uri, (changed, changed))
    await checked.check(spec.task_template)
    os.utime(uri, (changed + 1, changed + 1))
    with pytest.raises(InvalidRequest):
        await checked.check(spec.task_template)


async def test_another_python_than_that_of_the_tasks_is_refused_in_words(plane, make):
    spec = make.task_spec(image="ghcr.io/flyteorg/flyte:py3.7-v2.12.1")
    error = await refused(plane.create("hello", task_spec=spec))
    assert error.code is Code.INVALID_ARGUMENT
    assert "from Python 3.7" in error.message
    assert "wingbeat up --python" in error.message


@pytest.mark.parametrize(
    ("theirs", "ours", "fits"),
    [
        ("2.12.1", "2.12.9", True),
        ("2.12.0b3", "2.12.1", True),
        ("2.11.4", "2.12.1", False),
        ("3.12.1", "2.12.1", False),
        ("2.1", "2.12.1", False),
        ("", "2.12.1", True),
        ("2.11.4", "", True),
    ],
)
async def test_a_task_of_another_minor_version_of_the_sdk_is_refused_in_words(plane, make, theirs, ours, fits):
    submission = plane.control.submission
    submission._settings = msgspec.structs.replace(submission._settings, sdk_version=ours)
    spec = make.task_spec()
    runtime = spec.task_template.metadata.runtime
    runtime.type, runtime.flavor, runtime.version = RuntimeMetadata.FLYTE_SDK, "python", theirs
    if fits:
        await plane.create("hello", task_spec=spec)
        return
    error = await refused(plane.create("hello", task_spec=spec))
    assert error.code is Code.INVALID_ARGUMENT
    assert f"flyte {theirs}" in error.message and f"pip install 'flyte=={ours}'" in error.message


@pytest.mark.parametrize("prefix", ["/elsewhere/raw", "file:///elsewhere", "relative/raw"])
async def test_raw_data_outside_of_the_storage_is_refused(plane, prefix):
    spec = RunSpec()
    spec.raw_data_storage.raw_data_prefix = prefix
    error = await refused(plane.create("hello", run_spec=spec))
    assert error.code is Code.INVALID_ARGUMENT
    assert prefix in error.message and "raw data path" in error.message and "wingbeat up --storage" in error.message
    spec.raw_data_storage.raw_data_prefix = plane.storage.join("mine")
    await plane.create("hello", run_spec=spec)


@pytest.mark.parametrize(("key", "value"), [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0y")])
async def test_a_variable_that_no_process_can_have_is_refused(plane, key, value):
    spec = RunSpec()
    spec.envs.values.add(key=key, value=value)
    error = await refused(plane.create("one", run_spec=spec))
    assert error.code is Code.INVALID_ARGUMENT
    assert f"the environment variable {key!r} cannot be set" in error.message


async def test_the_run_specification_reaches_the_action(plane):
    spec = RunSpec(cache_config=CacheConfig(overwrite_cache=True))
    spec.cache_config.cache_lookup_scope = CacheLookupScope.CACHE_LOOKUP_SCOPE_GLOBAL
    spec.envs.values.append(KeyValuePair(key="LOG_LEVEL", value="10"))
    spec.labels.values["team"] = "blue"
    spec.labels.values[LABEL_ORG] = "forged"
    spec.annotations.values["note"] = "x"
    spec.interruptible.value = False
    spec.raw_data_storage.raw_data_prefix = "s3://raw"
    run = await plane.create("hello", run_spec=spec)
    assert run.labels["team"] == "blue"
    action = await plane.store.get(plane.id("hello"))
    assert action.spec.env_vars == {"LOG_LEVEL": "10"}
    assert action.spec.interruptible is False
    assert action.metadata.labels["team"] == "blue"
    assert action.metadata.labels[LABEL_ORG] == "local"
    notes = action.metadata.annotations
    assert (notes["note"], notes[ANNOTATION_CACHE_OVERWRITE], notes[ANNOTATION_CACHE_SCOPE]) == ("x", "true", "GLOBAL")
    assert notes[ANNOTATION_RAW_DATA_PREFIX] == "s3://raw"
    details = (await plane.runs.get_run_details(GetRunDetailsRequest(run_id=plane.run_id("hello")))).details
    assert details.run_spec == spec


async def test_recovery_is_refused_not_ignored(plane):
    spec = RunSpec()
    spec.relation.relation_type = RelationType.RELATION_TYPE_RECOVER
    error = await refused(plane.create("hello", run_spec=spec))
    assert (error.code, "flyte rerun" in error.message) == (Code.UNIMPLEMENTED, True)


async def test_a_rerun_keeps_what_it_came_from(plane):
    spec = RunSpec()
    spec.relation.relation_type = RelationType.RELATION_TYPE_RERUN
    spec.relation.related_to.CopyFrom(plane.run_id("first"))
    await plane.create("again", run_spec=spec)
    details = (await plane.runs.get_run_details(GetRunDetailsRequest(run_id=plane.run_id("again")))).details
    assert details.action.metadata.relation == spec.relation


async def test_a_run_base_of_ones_own_is_used(plane):
    base = plane.storage.join("elsewhere")
    await plane.create("hello", run_spec=RunSpec(run_base_dir=base))
    action = await plane.store.get(plane.id("hello"))
    assert action.spec.run_output_base == f"{base}/local/default/development/hello"
    assert action.spec.input_uri.startswith(f"{base}/local/default/development/")


async def test_only_cached_tasks_have_a_cache_key_and_it_depends_on_what_counts(plane, make):
    await plane.create("plain")
    assert (await plane.store.get(plane.id("plain"))).spec.cache_key == ""
    keys = []
    for number, (n, m, version) in enumerate([(1, 1, "a"), (1, 2, "a"), (2, 1, "a"), (1, 1, "b")]):
        spec = make.task_spec(takes=make.variables(n=SimpleType.INTEGER, m=SimpleType.INTEGER))
        spec.task_template.metadata.discoverable = True
        spec.task_template.metadata.discovery_version = version
        spec.task_template.metadata.cache_ignore_input_vars.append("m")
        await plane.create(f"run{number}", task_spec=spec, inputs=make.inputs(n=n, m=m))
        keys.append((await plane.store.get(plane.id(f"run{number}"))).spec.cache_key)
    assert keys[0] == keys[1]
    assert len({keys[0], keys[2], keys[3]}) == 3
    assert all(len(key) == 44 for key in keys)


async def test_what_a_run_asks_for_and_does_not_get_is_said_among_its_events(plane):
    spec = RunSpec(max_action_concurrency=3, queue="gpu", notification_rule_name="me")
    await plane.create("hello", run_spec=spec)
    details = (await plane.runs.get_run_details(GetRunDetailsRequest(run_id=plane.run_id("hello")))).details
    (attempt,) = details.action.attempts
    words = [event.message for event in attempt.cluster_events]
    assert [any(part in w for w in words) for part in ("notifications", "=3", "'gpu'")] == [True] * 3
    assert {event.type for event in attempt.cluster_events} == {2}
