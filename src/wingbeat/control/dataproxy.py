"""Data on its way in and out: signed locations, inputs, outputs, reports, code and logs."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Protocol

from flyteidl2.common.run_pb2 import OffloadedInputData
from flyteidl2.core.literals_pb2 import Literal
from flyteidl2.dataproxy.dataproxy_service_connect import DataProxyService
from flyteidl2.dataproxy.dataproxy_service_pb2 import (
    ArtifactType,
    CreateDownloadLinkResponse,
    CreateUploadLocationResponse,
    GetActionDataResponse,
    TailLogsResponse,
    UploadInputsResponse,
)
from flyteidl2.logs.dataplane.payload_pb2 import LogLine as LogLineMessage
from flyteidl2.logs.dataplane.payload_pb2 import LogLineOriginator
from flyteidl2.task.common_pb2 import Inputs, Outputs
from flyteidl2.task.task_definition_pb2 import TaskSpec

from wingbeat.control import blobs, wire
from wingbeat.control.clock import now
from wingbeat.control.errors import InvalidRequest, Missing
from wingbeat.control.inputs import inputs_hash
from wingbeat.control.logs import LogLine, LogSource, in_batches, instead_of_log
from wingbeat.control.names import check_run_name, missing_action
from wingbeat.control.projects import Projects
from wingbeat.control.runs import outputs_uri
from wingbeat.control.settings import ControlSettings
from wingbeat.control.specs import Specs
from wingbeat.control.submit import Submission
from wingbeat.database import RecordNotFound, Records
from wingbeat.resources import ActionId, ActionRecord, ActionType, normalize_org
from wingbeat.storage import ObjectMissing, Storage, frames_for_clients, frames_for_tasks

MAX_FILE_NAME = 255
_ORIGINATORS = {"user": LogLineOriginator.USER, "system": LogLineOriginator.SYSTEM}


class Links(Protocol):
    """Makes URLs that need nothing else."""

    def upload_url(self, uri: str, md5: bytes, expires: dt.timedelta) -> str: ...

    def download_url(self, uri: str, expires: dt.timedelta) -> str: ...


class DataProxyApi(DataProxyService):  # type: ignore[misc]
    def __init__(
        self,
        storage: Storage,
        links: Links,
        records: Records,
        specs: Specs,
        projects: Projects,
        submission: Submission,
        logs: LogSource,
        settings: ControlSettings,
    ) -> None:
        self._storage = storage
        self._links = links
        self._records = records
        self._specs = specs
        self._projects = projects
        self._submission = submission
        self._logs = logs
        self._settings = settings

    # --- in

    async def create_upload_location(self, request: Any, ctx: Any) -> Any:
        org = normalize_org(request.org)
        if not request.filename_root and not request.content_md5:
            raise InvalidRequest("an upload needs the MD5 digest of its content, or a folder for it")
        if request.content_md5 and len(request.content_md5) != 16:
            raise InvalidRequest(f"an MD5 digest has 16 bytes, not {len(request.content_md5)}")
        if len(request.filename) > MAX_FILE_NAME:
            raise InvalidRequest(f"the file name has {len(request.filename)} characters; at most {MAX_FILE_NAME}")
        await self._projects.check(org, request.project, request.domain)
        folder = request.filename_root or base64.b32encode(request.content_md5).decode().rstrip("=").lower()
        parts = [p for p in (folder, request.filename) if p]
        uri = self._storage.join("uploads", org, request.project, request.domain, *parts)
        expires = self._expires(request)
        return CreateUploadLocationResponse(
            signed_url=self._links.upload_url(uri, bytes(request.content_md5), expires),
            native_url=uri,
            expires_at=wire.timestamp(now() + expires),
        )

    def _expires(self, request: Any) -> dt.timedelta:
        longest = dt.timedelta(seconds=self._settings.upload_seconds)
        if not request.HasField("expires_in"):
            return longest
        asked = wire.from_duration(request.expires_in)
        if asked <= dt.timedelta(0):
            raise InvalidRequest("a link must be valid for some time")
        return min(asked, longest)

    async def upload_inputs(self, request: Any, ctx: Any) -> Any:
        kind = request.WhichOneof("id")
        if kind == "run_id":
            run = wire.run_id(request.run_id)
            check_run_name(run.run)
            org, project, domain = run.org, run.project, run.domain
        elif kind == "project_id":
            id = request.project_id
            org, project, domain = normalize_org(id.organization), id.name, id.domain
        else:
            raise InvalidRequest("the request names neither a run nor a project")
        await self._projects.check(org, project, domain)
        spec = await self._task_spec(request)
        frames_for_tasks(named.value for named in request.inputs.literals)
        uri = await blobs.put_inputs(
            self._storage, self._submission.base_for(request.base_dir, org, project, domain), request.inputs
        )
        hashed = inputs_hash(request.inputs, spec.task_template.metadata.cache_ignore_input_vars)
        return UploadInputsResponse(offloaded_input_data=OffloadedInputData(uri=uri, inputs_hash=hashed))

    async def _task_spec(self, request: Any) -> Any:
        kind = request.WhichOneof("task")
        if kind == "task_spec":
            return request.task_spec
        if kind == "task_id":
            return await self._submission.registered(wire.task_id(request.task_id))
        if kind == "trigger_name":
            return (await self._submission.of_trigger(request.trigger_name))[1]
        raise InvalidRequest("the request names no task: neither a task, nor its specification, nor a trigger")

    # --- out

    async def get_action_data(self, request: Any, ctx: Any) -> Any:
        record = await self._record(wire.action_id(request.action_id))
        response = GetActionDataResponse()
        if record.action_type == ActionType.CONDITION:
            if record.value:
                outputs = Outputs()
                outputs.literals.add(name="o0", value=Literal.FromString(record.value))
                response.outputs.CopyFrom(outputs)
            return response
        if record.input_uri:
            response.inputs.CopyFrom(await self._inputs(record))
            response.inputs_uri = record.input_uri
        if uri := outputs_uri(record):
            response.outputs.CopyFrom(await blobs.read_outputs(self._storage, uri))
            response.outputs_uri = uri
        frames_for_clients(named.value for named in (*response.inputs.literals, *response.outputs.literals))
        return response

    async def _inputs(self, record: ActionRecord) -> Any:
        try:
            return await blobs.read_inputs(self._storage, record.input_uri)
        except Missing:
            if record.action_type == ActionType.TRACE:
                return Inputs()  # Nobody promises to write those of a trace.
            raise

    async def create_download_link(self, request: Any, ctx: Any) -> Any:
        if request.artifact_type == ArtifactType.ARTIFACT_TYPE_REPORT:
            uri = await self._report_uri(request)
        elif request.artifact_type == ArtifactType.ARTIFACT_TYPE_CODE_BUNDLE:
            uri = await self._bundle_uri(request)
        else:
            raise InvalidRequest("which artifact? There are reports and code bundles")
        try:
            await self._storage.head(uri)
        except ObjectMissing:
            raise Missing(f"{uri} is not in the storage (any more); run the task again: flyte run ...") from None
        expires = self._expires(request)
        response = CreateDownloadLinkResponse()
        response.pre_signed_urls.signed_url.append(self._links.download_url(uri, expires))
        response.pre_signed_urls.expires_at.CopyFrom(wire.timestamp(now() + expires))
        return response

    async def _report_uri(self, request: Any) -> str:
        if request.WhichOneof("source") != "action_attempt_id":
            raise InvalidRequest("a report belongs to an attempt of an action; the request names none")
        id = wire.action_id(request.action_attempt_id.action_id)
        number = request.action_attempt_id.attempt
        await self._record(id)
        for attempt in reversed(await self._records.attempts(id)):
            if attempt.report_uri and number in (0, attempt.attempt):
                return attempt.report_uri
        raise Missing(f"attempt {number} of action {id.action!r} in run {id.run!r} has no report")

    async def _bundle_uri(self, request: Any) -> str:
        kind = request.WhichOneof("source")
        if kind == "action_attempt_id":
            record = await self._record(wire.action_id(request.action_attempt_id.action_id))
            spec = TaskSpec()
            if record.action_type == ActionType.TASK:
                spec.ParseFromString(await self._specs.of(record))
            name = f"action {record.id.action!r}"
        elif kind == "task_id":
            id = wire.task_id(request.task_id)
            spec, name = await self._submission.registered(id), f"task {id.name!r}"
        else:
            raise InvalidRequest("whose code? The request names neither an action nor a task")
        uri = blobs.bundle_uri(spec.task_template)
        if not uri:
            raise Missing(f"{name} has no code bundle: its code is part of its image")
        return uri

    async def _record(self, id: ActionId) -> ActionRecord:
        try:
            return await self._records.get(id)
        except RecordNotFound:
            raise missing_action(id) from None

    # --- logs

    async def tail_logs(self, request: Any, ctx: Any) -> AsyncIterator[Any]:
        """The log of an attempt from its start, until the attempt has ended. Of one without a process: why it ended."""
        id = wire.action_id(request.action_id)
        record = await self._record(id)
        attempt = request.attempt or max(record.attempts, 1)
        if not await self._logs.available(id, attempt):
            said = instead_of_log(record) if attempt >= record.attempts else []
            if not said:
                raise Missing(f"there is no log of attempt {attempt} of action {id.action!r} in run {id.run!r} (yet)")
            yield _log_response(said)
            return
        follow = not record.phase.terminal and attempt >= record.attempts
        lines = self._logs.read(id, attempt, follow=follow)
        async with aclosing(in_batches(lines, self._settings.heartbeat_seconds)) as batches:
            async for batch in batches:
                yield _log_response(batch)


def _log_response(lines: list[LogLine]) -> Any:
    response = TailLogsResponse()
    if lines:
        response.logs.add(
            lines=[
                LogLineMessage(
                    timestamp=wire.timestamp(line.timestamp),
                    message=line.text + ("\n" if line.complete else ""),
                    originator=_ORIGINATORS.get(line.originator, LogLineOriginator.UNKNOWN),
                )
                for line in lines
            ]
        )
    return response
