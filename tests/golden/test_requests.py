"""What clients get that are no `flyte` command, or one of another version: it would not send these requests itself."""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import hashlib
import io
import tarfile
from typing import Any

import httpx
import pytest
from connectrpc.errors import ConnectError
from flyteidl2.actions.actions_service_connect import ActionsServiceClientSync
from flyteidl2.actions.actions_service_pb2 import Action, EnqueueRequest
from flyteidl2.common.identifier_pb2 import ProjectIdentifier
from flyteidl2.common.run_pb2 import OffloadedInputData
from flyteidl2.core.interface_pb2 import TypedInterface, Variable, VariableEntry, VariableMap
from flyteidl2.core.literals_pb2 import Literal, Primitive, Scalar
from flyteidl2.core.tasks_pb2 import RuntimeMetadata, TaskTemplate
from flyteidl2.core.types_pb2 import LiteralType, SimpleType
from flyteidl2.dataproxy.dataproxy_service_connect import DataProxyServiceClientSync
from flyteidl2.dataproxy.dataproxy_service_pb2 import (
    ArtifactType,
    CreateDownloadLinkRequest,
    CreateUploadLocationRequest,
    GetActionDataRequest,
)
from flyteidl2.task.common_pb2 import Inputs
from flyteidl2.task.run_pb2 import RunSpec
from flyteidl2.task.task_definition_pb2 import TaskIdentifier, TaskSpec
from flyteidl2.task.task_service_connect import TaskServiceClientSync
from flyteidl2.task.task_service_pb2 import DeployTaskRequest
from flyteidl2.workflow.run_service_connect import RunServiceClientSync
from flyteidl2.workflow.run_service_pb2 import CreateRunRequest

CREATE_RUN = "/flyteidl2.workflow.RunService/CreateRun"
PROJECT = ProjectIdentifier(name="default", domain="development")


def task(*args: str, type: str = "python") -> TaskSpec:
    """A task with one input, `n: int`."""
    takes = VariableMap(variables=[VariableEntry(key="n", value=Variable(type=LiteralType(simple=SimpleType.INTEGER)))])
    template = TaskTemplate(type=type, interface=TypedInterface(inputs=takes))
    template.id.project, template.id.domain, template.id.name, template.id.version = (
        *("default", "development"),
        "raw.main",
        "v1",
    )
    template.container.image = "any"
    template.container.args.extend(["a0", *args])
    return TaskSpec(task_template=template)


def inputs(**values: Any) -> Inputs:
    result = Inputs()
    for name, value in values.items():
        primitive = Primitive(string_value=value) if isinstance(value, str) else Primitive(integer=value)
        result.literals.add(name=name, value=Literal(scalar=Scalar(primitive=primitive)))
    return result


def request(**fields: Any) -> CreateRunRequest:
    """A good request, but for `fields`."""
    result = CreateRunRequest(**fields)
    if not result.WhichOneof("id"):
        result.project_id.CopyFrom(PROJECT)
    if not result.WhichOneof("task"):
        result.task_spec.CopyFrom(task())
    if not result.WhichOneof("input_wrapper"):
        result.inputs.CopyFrom(inputs(n=1))
    return result


def run_id(name: str, domain: str = "development", project: str = "default") -> Any:
    return {"org": "local", "project": project, "domain": domain, "name": name}


def task_id(name: str, version: str) -> TaskIdentifier:
    return TaskIdentifier(project="default", domain="development", name=name, version=version)


def sdk(version: str) -> TaskSpec:
    result = task()
    runtime = result.task_template.metadata.runtime
    runtime.type, runtime.flavor, runtime.version = RuntimeMetadata.FLYTE_SDK, "python", version
    return result


REFUSED = {
    "raw-unknown-project": {"run_id": run_id("x", project="nowhere")},
    "raw-unknown-domain": {"run_id": run_id("x", domain="moon")},
    "raw-unknown-task": {"task_id": task_id("plain.nobody", "v1")},
    "raw-unknown-version": {"task_id": task_id("nightly.tidy", "v99")},
    "raw-taken-run-name": {"run_id": run_id("taken")},
    "raw-run-name-with-odd-signs": {"run_id": run_id("../../été_")},
    "raw-missing-input": {"inputs": Inputs()},
    "raw-unknown-input": {"inputs": inputs(n=1, m=2)},
    "raw-wrong-type": {"inputs": inputs(n="one")},
    "raw-inputs-outside": {"offloaded_input_data": OffloadedInputData(uri="/etc/passwd")},
    "raw-inputs-above": {"offloaded_input_data": OffloadedInputData(uri="{storage}/../wingbeat.db")},
    "raw-inputs-gone": {"offloaded_input_data": OffloadedInputData(uri="{storage}/none/inputs.pb")},
    "raw-output-base-outside": {"run_spec": RunSpec(run_base_dir="/elsewhere")},
    "raw-no-task": {"task_spec": TaskSpec()},
    "other-sdk": {"task_spec": sdk("1.0.3")},
}


@pytest.fixture(scope="module")
def runs(server):
    with RunServiceClientSync(server.url) as client:
        yield client


@pytest.fixture(scope="module")
def data(server):
    with DataProxyServiceClientSync(server.url) as client:
        yield client


def refusal(call: Any, request: Any) -> ConnectError:
    with pytest.raises(ConnectError) as caught:
        call(request)
    return caught.value


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_that_cannot_be_is_refused_and_leaves_nothing(server, golden, runs, name):
    wanted = request(**REFUSED[name])
    if wanted.HasField("offloaded_input_data"):
        uri = wanted.offloaded_input_data.uri.replace("{storage}", str(server.data / "storage"))
        wanted.offloaded_input_data.uri = uri
    with server.unchanged():
        error = refusal(runs.create_run, wanted)
    golden(name, error)


# --- code bundles


def archive(name: str, **fields: Any) -> bytes:
    member = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(member, field, value)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as opened:
        opened.addfile(tarfile.TarInfo("main.py"))
        opened.addfile(member)
    return buffer.getvalue()


BUNDLES = {
    "bundle-not-a-tar": b"this is no archive" * 50,
    "bundle-cut-off": archive("more.py")[:60],
    "bundle-climbs": archive("../x"),
    "bundle-absolute": archive("/etc/x"),
    "bundle-link-out": archive("a/link", type=tarfile.SYMTYPE, linkname="../../x"),
    "bundle-hard-link-out": archive("a/link", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "bundle-device": archive("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
    "bundle-pickle-not-gzip": b"\x80\x05N.",
}


def location(data: Any, name: str, content: bytes = b"", **fields: Any) -> Any:
    """Where to upload something."""
    place = {"project": "default", "domain": "development", "filename": name}
    return data.create_upload_location(
        CreateUploadLocationRequest(**place, content_md5=hashlib.md5(content).digest(), **fields)
    )


def put(url: str, content: bytes, **headers: str) -> str:
    """What the server says to an upload."""
    answer = httpx.put(url, content=content, headers=headers)
    return f"HTTP {answer.status_code}\n{answer.text}"


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_that_cannot_be_unpacked_is_refused_and_leaves_nothing(server, golden, runs, data, name):
    content = BUNDLES[name]
    kind, ending = ("--pkl", "pkl.gz") if "pickle" in name else ("--tgz", "tar.gz")
    place = location(data, f"{name}.{ending}", content)
    assert put(place.signed_url, content).startswith("HTTP 200")
    with server.unchanged():
        golden(name, refusal(runs.create_run, request(task_spec=task(kind, place.native_url))))


# --- uploads


def test_an_upload_url_that_has_expired_is_refused(server, golden, data):
    expires = dt.timedelta(microseconds=1)
    with server.unchanged():
        golden("upload-expired", put(location(data, "late", b"x", expires_in=expires).signed_url, b"x"))


def test_an_upload_url_that_was_changed_is_refused(server, golden, data):
    head, _, token = location(data, "mine", b"x").signed_url.rpartition("/")
    payload, _, signature = token.partition(".")
    changed = base64.urlsafe_b64decode(payload + "==").replace(b"/mine", b"/main")
    token = f"{base64.urlsafe_b64encode(changed).decode().rstrip('=')}.{signature}"
    with server.unchanged():
        golden("upload-tampered", put(f"{head}/{token}", b"x"))
        golden("upload-damaged", put(f"{head}/{payload}", b"x"))


def test_an_upload_url_takes_the_content_that_it_was_made_for_and_nothing_else(server, golden, data):
    place = location(data, "once", b"x")
    with server.unchanged():
        golden("upload-other-content", put(place.signed_url, b"y"))
        other = base64.b64encode(hashlib.md5(b"y").digest()).decode()
        golden("upload-other-digest", put(place.signed_url, b"y", **{"Content-MD5": other}))
    assert put(place.signed_url, b"x").startswith("HTTP 200")
    with server.unchanged():
        assert put(place.signed_url, b"x").startswith("HTTP 200")
        golden("upload-replayed", put(place.signed_url, b"y"))


def test_an_upload_without_a_digest_is_never_replaced(server, golden, data):
    place = {"project": "default", "domain": "development", "filename": "file", "filename_root": "folder"}
    url = data.create_upload_location(CreateUploadLocationRequest(**place)).signed_url
    assert put(url, b"x").startswith("HTTP 200")
    with server.unchanged():
        golden("upload-replaces", put(url, b"y"))


def test_an_upload_that_climbs_is_refused(server, golden, data):
    with server.unchanged():
        place = {"project": "default", "domain": "development", "filename": "../../../x", "content_md5": b"0" * 16}
        golden("upload-climbs", refusal(data.create_upload_location, CreateUploadLocationRequest(**place)))


# --- reading what is not served


def test_data_outside_of_the_storage_is_not_read(server, golden, data):
    action = {"run": run_id("taken"), "name": "outside"}
    trace = Action(action_id=action, parent_action_name="a0", input_uri="/etc/passwd")
    trace.trace.name = "outside"
    with ActionsServiceClientSync(server.url) as actions:
        actions.enqueue(EnqueueRequest(action=trace))
    with server.unchanged():
        golden("action-data-outside", refusal(data.get_action_data, GetActionDataRequest(action_id=action)))


def test_no_link_is_made_to_what_is_outside_of_the_storage(server, golden, data):
    id = task_id("raw.outside", "v1")
    with TaskServiceClientSync(server.url) as tasks:
        tasks.deploy_task(DeployTaskRequest(task_id=id, spec=task("--tgz", "/etc/passwd")))
    wanted = CreateDownloadLinkRequest(artifact_type=ArtifactType.ARTIFACT_TYPE_CODE_BUNDLE, task_id=id)
    with server.unchanged():
        golden("download-link-outside", refusal(data.create_download_link, wanted))


# --- bodies


@pytest.mark.parametrize(
    ("name", "content", "headers"),
    [
        ("garbage", b"\xff\xfe\x00garbage\x80", {"Content-Type": "application/proto"}),
        ("garbage-json", b"{]", {"Content-Type": "application/json"}),
        ("garbage-gzip", b"garbage", {"Content-Type": "application/proto", "Content-Encoding": "gzip"}),
        ("100-megabytes", b"\x7f" * 100_000_000, {"Content-Type": "application/proto"}),
        (
            "100-megabytes-inflated",
            gzip.compress(bytes(100_000_000), 1),
            {"Content-Type": "application/proto", "Content-Encoding": "gzip"},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_body_that_is_no_message_is_refused_and_leaves_nothing(server, golden, name, content, headers):
    with server.unchanged():
        answer = httpx.post(server.url + CREATE_RUN, content=content, headers=headers, timeout=30)
    error = answer.json()
    golden(name, f"HTTP {answer.status_code} {error['code']}\n{error['message']}")


# --- what no plugin runs


def test_a_task_of_a_type_that_nothing_here_runs_fails_in_words(server, golden, runs):
    runs.create_run(request(run_id=run_id("no-plugin"), task_spec=task(type="spark")))
    assert server.phase_at_the_end("no-plugin") == "ACTION_PHASE_FAILED"
    shown = server.flyte("get", "action", "no-plugin", "a0")
    golden("no-plugin", shown.text.partition("'errorInfo': {")[2].partition("}")[0])
