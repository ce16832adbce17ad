"""Uploads, downloads, inputs, outputs, logs and images."""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import tarfile

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from flyteidl2.common.identifier_pb2 import ActionAttemptIdentifier, ProjectIdentifier
from flyteidl2.dataproxy.dataproxy_service_pb2 import (
    ArtifactType,
    CreateDownloadLinkRequest,
    CreateUploadLocationRequest,
    GetActionDataRequest,
    TailLogsRequest,
    UploadInputsRequest,
)
from flyteidl2.imagebuilder.definition_pb2 import ImageSpec, Layer
from flyteidl2.imagebuilder.payload_pb2 import GetImageRequest
from flyteidl2.task.common_pb2 import Outputs
from flyteidl2.task.task_definition_pb2 import TaskIdentifier
from flyteidl2.task.task_service_pb2 import GetTaskDetailsRequest, ListTasksRequest
from flyteidl2.workflow.run_service_pb2 import GetActionDataURIsRequest, WatchActionDetailsRequest

from wingbeat.control import LogLine
from wingbeat.control.images import parse_requirements
from wingbeat.control.logs import in_batches
from wingbeat.resources import ActionPhase, CacheStatus, ErrorInfo

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
MD5 = hashlib.md5(b"x").digest()


async def refused(awaitable) -> ConnectError:
    with pytest.raises(ConnectError) as caught:
        await awaitable
    return caught.value


def upload(**fields) -> CreateUploadLocationRequest:
    return CreateUploadLocationRequest(**{"project": "default", "domain": "development", **fields})


async def test_an_upload_goes_below_the_digest_or_the_folder_that_was_asked_for(plane):
    answer = await plane.data.create_upload_location(upload(filename="a.tgz", content_md5=MD5))
    assert answer.native_url.startswith(plane.storage.join("uploads", "local", "default", "development") + "/")
    assert answer.native_url.endswith("/a.tgz")
    assert answer.signed_url.startswith("http://127.0.0.1:1/upload/")
    again = await plane.data.create_upload_location(upload(filename="a.tgz", content_md5=MD5))
    assert again.native_url == answer.native_url
    folder = await plane.data.create_upload_location(upload(filename="a", filename_root="abc", content_md5=MD5))
    assert folder.native_url.endswith("/abc/a")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"filename": "a"}, Code.INVALID_ARGUMENT),
        ({"filename": "a", "content_md5": b"short"}, Code.INVALID_ARGUMENT),
        ({"filename": "../../etc/passwd", "content_md5": MD5}, Code.INVALID_ARGUMENT),
        ({"filename": "/etc/passwd", "content_md5": MD5}, Code.INVALID_ARGUMENT),
        ({"filename": "a", "filename_root": ".."}, Code.INVALID_ARGUMENT),
        ({"filename": "a" * 256, "content_md5": MD5}, Code.INVALID_ARGUMENT),
        ({"filename": "a", "content_md5": MD5, "project": "nope"}, Code.NOT_FOUND),
        ({"filename": "a", "content_md5": MD5, "domain": "nope"}, Code.NOT_FOUND),
        ({"filename": "a", "content_md5": MD5, "org": "../.."}, Code.NOT_FOUND),
    ],
)
async def test_uploads_that_climb_or_have_no_place_are_refused(plane, fields, code):
    assert (await refused(plane.data.create_upload_location(upload(**fields)))).code is code


async def test_an_upload_link_lives_no_longer_than_allowed(plane):
    request = upload(filename="a", content_md5=MD5)
    request.expires_in.FromSeconds(10**6)
    answer = await plane.data.create_upload_location(request)
    left = answer.expires_at.ToDatetime(tzinfo=dt.UTC) - dt.datetime.now(dt.UTC)
    assert dt.timedelta(minutes=59) < left <= dt.timedelta(hours=1)


async def test_uploaded_inputs_that_differ_in_what_is_not_cached_do_not_overwrite_each_other(plane, make):
    spec = make.task_spec()
    spec.task_template.metadata.cache_ignore_input_vars.append("n")
    project = ProjectIdentifier(name="default", domain="development")
    answers = [
        (
            await plane.data.upload_inputs(
                UploadInputsRequest(project_id=project, task_spec=spec, inputs=make.inputs(n=n))
            )
        ).offloaded_input_data
        for n in (1, 2)
    ]
    assert answers[0].inputs_hash == answers[1].inputs_hash
    assert answers[0].uri != answers[1].uri


async def test_outputs_are_read_from_the_prefix_of_the_last_attempt(plane, make):
    await plane.create("run")
    prefix = plane.storage.join("runs", "out", "1")
    outputs = Outputs()
    outputs.literals.add(name="o0", value=make.literal("hi"))
    await plane.storage.put(f"{prefix}/outputs.pb", outputs.SerializeToString())
    await plane.succeeds("run", output_uri=prefix)
    data = await plane.data.get_action_data(GetActionDataRequest(action_id=plane.action_id("run")))
    assert data.outputs == outputs
    assert data.outputs_uri == f"{prefix}/outputs.pb"
    uris = await plane.runs.get_action_data_u_r_is(GetActionDataURIsRequest(action_id=plane.action_id("run")))
    assert uris.outputs_uri == f"{prefix}/outputs.pb"


async def test_outputs_and_inputs_that_are_gone_are_not_found_and_told_apart(plane):
    await plane.create("run")
    await plane.succeeds("run", output_uri=plane.storage.join("gone"))
    error = await refused(plane.data.get_action_data(GetActionDataRequest(action_id=plane.action_id("run"))))
    assert (error.code, "outputs" in error.message) == (Code.NOT_FOUND, True)
    await plane.storage.delete_prefix(plane.storage.join("runs"))
    error = await refused(plane.data.get_action_data(GetActionDataRequest(action_id=plane.action_id("run"))))
    assert (error.code, "inputs" in error.message) == (Code.NOT_FOUND, True)


async def test_a_report_is_linked_by_attempt(plane):
    await plane.create("run")
    uri = plane.storage.join("report.html")
    await plane.happens("run", "a0", ActionPhase.RUNNING, report_uri=uri)
    request = CreateDownloadLinkRequest(
        artifact_type=ArtifactType.ARTIFACT_TYPE_REPORT,
        action_attempt_id=ActionAttemptIdentifier(action_id=plane.action_id("run"), attempt=1),
    )
    assert (await refused(plane.data.create_download_link(request))).code is Code.NOT_FOUND
    await plane.storage.put(uri, b"<p>")
    link = await plane.data.create_download_link(request)
    assert link.pre_signed_urls.signed_url[0].startswith("http://127.0.0.1:1/download/")
    request.action_attempt_id.attempt = 2
    assert (await refused(plane.data.create_download_link(request))).code is Code.NOT_FOUND


async def test_the_code_of_a_run_is_linked(plane, make):
    uri = plane.storage.join("uploads", "code.tar.gz")
    await plane.storage.put(uri, make.bundle("main.py"))
    await plane.create("run", task_spec=make.task_spec(args=["--tgz", uri]))
    await plane.create("plain")
    request = CreateDownloadLinkRequest(
        artifact_type=ArtifactType.ARTIFACT_TYPE_CODE_BUNDLE,
        action_attempt_id=ActionAttemptIdentifier(action_id=plane.action_id("run"), attempt=1),
    )
    assert len((await plane.data.create_download_link(request)).pre_signed_urls.signed_url) == 1
    request.action_attempt_id.action_id.CopyFrom(plane.action_id("plain"))
    assert "no code bundle" in (await refused(plane.data.create_download_link(request))).message


# --- logs


def line(text: str, originator: str = "user", complete: bool = True) -> LogLine:
    return LogLine(AT, originator, text, complete)


async def tail(plane, run: str, attempt: int = 1) -> list:
    request = TailLogsRequest(action_id=plane.action_id(run), attempt=attempt)
    return [entry async for m in plane.data.tail_logs(request) for log in m.logs for entry in log.lines]


async def test_logs_are_streamed_in_order_with_their_origin_and_ends_of_line(plane):
    await plane.create("run")
    long = [line(f"line {n}") for n in range(2500)]
    plane.logs.lines[plane.id("run"), 1] = [line("started", "system"), line("half", complete=False), *long]
    got = await tail(plane, "run")
    assert [(e.message, e.originator) for e in got[:3]] == [("started\n", 2), ("half", 1), ("line 0\n", 1)]
    assert [e.message for e in got[2:]] == [f"line {n}\n" for n in range(2500)]
    assert got[0].timestamp.ToDatetime(tzinfo=dt.UTC) == AT


async def test_only_the_log_of_a_running_attempt_is_followed(plane):
    await plane.create("run")
    plane.logs.lines[plane.id("run"), 1] = [line("one")]
    plane.logs.lines[plane.id("run"), 2] = [line("two")]
    await tail(plane, "run")
    await plane.happens("run", "a0", ActionPhase.RUNNING, attempt=2)
    await tail(plane, "run", 1)
    await tail(plane, "run", 2)
    await plane.succeeds("run", attempt=2)
    await tail(plane, "run", 2)
    assert plane.logs.followed == [True, False, True, False]


async def test_logs_that_are_not_there_are_not_found(plane):
    assert (await refused(tail(plane, "nope"))).code is Code.NOT_FOUND
    await plane.create("run")
    error = await refused(tail(plane, "run"))
    assert (error.code, "attempt 1" in error.message) == (Code.NOT_FOUND, True)


async def test_an_action_that_ended_without_a_process_says_why_in_place_of_a_log(plane):
    missing = ErrorInfo("no secret 'key'\ncreate it", code="SecretNotFound", kind="USER")
    ends = {
        "failed": (ActionPhase.FAILED, {"error": missing}, ["SecretNotFound: no secret 'key'\n", "create it\n"]),
        "aborted": (ActionPhase.ABORTED, {"abort_reason": "enough"}, ["aborted: enough\n"]),
        "cached": (
            ActionPhase.SUCCEEDED,
            {"cache_status": CacheStatus.HIT},
            ["no process was started: the outputs were in the cache\n"],
        ),
    }
    for run, (phase, more, said) in ends.items():
        await plane.create(run)
        await plane.happens(run, "a0", phase, **more)
        got = await tail(plane, run)
        assert [(e.message, e.originator) for e in got] == [(text, 2) for text in said], run
    await plane.create("lost")
    await plane.succeeds("lost")
    assert (await refused(tail(plane, "lost"))).code is Code.NOT_FOUND


async def test_an_error_while_reading_a_log_reaches_the_reader_after_the_lines_before_it():
    async def broken():
        yield line("one")
        raise OSError("disk")

    seen = []
    with pytest.raises(OSError, match="disk"):
        async for batch in in_batches(broken(), 5):
            seen.extend(entry.text for entry in batch)
    assert seen == ["one"]


# --- images


async def build(plane, make, spec: ImageSpec, context: bytes = b""):
    """What the SDK's remote builder does: a run of the built-in task with the URI of the image's specification."""
    uri = plane.storage.join("uploads", "spec.pb")
    await plane.storage.put(uri, spec.SerializeToString())
    where = ""
    if context:
        where = plane.storage.join("uploads", "context.tar.gz")
        await plane.storage.put(where, context)
    task = TaskIdentifier(org="local", project="system", domain="production", name="build-image", version="builtin")
    given = make.inputs(spec=uri, context=where, target_image="flyte:abc")
    return await plane.create("build", task_id=task, inputs=given)


def layers(*packages: str, **fields) -> ImageSpec:
    spec = ImageSpec(**fields)
    if packages:
        spec.layers.append(Layer())
        spec.layers[0].pip_packages.packages.extend(packages)
    return spec


async def test_the_builder_is_found_like_any_task(plane):
    project = ProjectIdentifier(name="system", domain="production")
    (task,) = (await plane.tasks.list_tasks(ListTasksRequest(project_id=project))).tasks
    details = await plane.tasks.get_task_details(GetTaskDetailsRequest(task_id=task.task_id))
    names = [v.key for v in details.details.spec.task_template.interface.inputs.variables]
    assert names == ["context", "spec", "target_image"]


async def test_an_image_that_the_environment_satisfies_is_built_at_once(plane, make):
    run = await build(plane, make, layers("msgspec>=0.1", "pytest ; python_version >= '3.0'"))
    assert run.action.status.phase == ActionPhase.SUCCEEDED
    data = await plane.data.get_action_data(GetActionDataRequest(action_id=plane.action_id("build")))
    assert data.outputs.literals[0].value == make.literal("env:flyte:abc")
    request = WatchActionDetailsRequest(action_id=plane.action_id("build"))
    (last,) = [m.details async for m in plane.runs.watch_action_details(request)]
    assert [a.phase for a in last.attempts] == [5]


async def test_missing_packages_are_named_with_the_command_that_installs_them(plane, make):
    error = await refused(build(plane, make, layers("msgspec>=999", "no-such-thing-at-all", "pytest")))
    assert error.code is Code.INVALID_ARGUMENT
    assert "needs packages msgspec>=999, no-such-thing-at-all" in error.message
    assert "-m pip install 'msgspec>=999' no-such-thing-at-all`" in error.message
    assert "not supported yet" in error.message


async def test_a_requirements_file_in_the_context_is_read(plane, make):
    spec = ImageSpec(layers=[Layer()])
    spec.layers[0].requirements.file = "dir/requirements.txt"
    text = b"# ours\nmsgspec\nno-such-thing==1 # why\n"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("dir/requirements.txt")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    error = await refused(build(plane, make, spec, buffer.getvalue()))
    assert "needs packages no-such-thing==1 that" in error.message
    error = await refused(build(plane, make, spec, b"not a tar"))
    assert (error.code, "cannot be read" in error.message) == (Code.INVALID_ARGUMENT, True)


async def test_another_python_and_layers_that_cannot_be_checked_are_refused(plane, make):
    error = await refused(build(plane, make, layers("msgspec", python_version="3.7")))
    assert "needs Python 3.7" in error.message
    spec = ImageSpec(layers=[Layer()])
    spec.layers[0].apt_packages.packages.append("vim")
    error = await refused(build(plane, make, spec))
    assert "not supported yet (apt_packages)" in error.message


async def test_an_image_is_looked_for_in_vain_so_that_a_build_is_asked_for(plane):
    request = GetImageRequest()
    request.id.name = "flyte:abc"
    error = await refused(plane.images.get_image(request))
    assert (error.code, "flyte:abc" in error.message) == (Code.NOT_FOUND, True)


def test_requirements_files_are_read_line_by_line():
    text = "# c\n-r other.txt\n--index-url x\na==1  # note\nb \\\n  >=2\n\nc --hash=sha256:1\n"
    assert parse_requirements(text) == ["a==1", "b >=2", "c"]
