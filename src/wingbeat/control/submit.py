"""Creating a run: everything is checked first, then one transaction stores the action and its record."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import PurePath
from typing import Any

import msgspec
from flyteidl2.common.run_pb2 import RelationType
from flyteidl2.core.tasks_pb2 import RuntimeMetadata
from flyteidl2.task.common_pb2 import Inputs
from flyteidl2.task.run_pb2 import RunSpec
from flyteidl2.task.task_definition_pb2 import TaskSpec

from wingbeat.control import blobs, images, wire
from wingbeat.control.bundles import Bundles
from wingbeat.control.clock import now
from wingbeat.control.errors import CLIENT, Draining, Exists, InvalidRequest, Unsupported
from wingbeat.control.inputs import complete, inputs_hash, root_cache_key
from wingbeat.control.names import check_run_name, new_run_name
from wingbeat.control.projects import Projects
from wingbeat.control.settings import ControlSettings
from wingbeat.control.taskactions import root_action, run_annotations
from wingbeat.control.tasks import find_spec, missing_task, task_short_name
from wingbeat.control.triggers import find_trigger, missing_trigger, trigger_key
from wingbeat.database import Connection, Database, RecordNotFound, Records, apply_events, insert_record
from wingbeat.resources import (
    ROOT_ACTION,
    ActionEvent,
    ActionId,
    ActionPhase,
    ActionRecord,
    Reason,
    RunId,
    TaskId,
    normalize_org,
)
from wingbeat.storage import ObjectMissing, OutsideStorage, Storage, frames_for_tasks
from wingbeat.stores import AlreadyExists, Store

_DEFAULT_IMAGE = re.compile(r"flyte:py(\d+\.\d+)-v")
_MINOR = re.compile(r"(\d+)\.(\d+)")


class Wanted(msgspec.Struct):
    """A request with its references resolved."""

    task: TaskId
    spec: Any
    run_spec: Any
    inputs: Any = None
    """Inline ones; None when they are offloaded or there are none."""
    offloaded: Any = None
    trigger_name: str = ""
    trigger_revision: int = 0


class Submission:
    """Creates runs."""

    def __init__(
        self,
        store: Store,
        db: Database,
        records: Records,
        storage: Storage,
        projects: Projects,
        images: images.ImageChecker,
        settings: ControlSettings,
        user: str,
    ) -> None:
        self._store = store
        self._db = db
        self._records = records
        self._storage = storage
        self._bundles = Bundles(storage)
        self._projects = projects
        self._images = images
        self._settings = settings
        self._user = user
        self._draining = False

    def drain(self) -> None:
        """Take no more runs; those that are there go on."""
        self._draining = True

    async def create_run(self, request: Any) -> ActionRecord:
        """The record of the new run's root action. Raises ControlError; nothing of the run is stored then."""
        if self._draining:
            raise Draining(
                f"the server {self._settings.endpoint} is being stopped and takes no new runs; start it again: "
                "wingbeat up"
            )
        run = await self._identity(request)
        id = run.action(ROOT_ACTION)
        wanted = await self._resolve(request)
        _refuse_unsupported(wanted.run_spec)
        template = wanted.spec.task_template
        given = await self._given_inputs(wanted)
        inputs, added = complete(given, wanted.spec, wanted.task.name)
        if images.is_build(template):
            return await self._build_image(id, wanted, inputs)
        _check_variables([*wanted.run_spec.envs.values, *template.container.env])
        self._check_python(template)
        self._check_sdk(template)
        await self._check_raw_data(wanted.run_spec.raw_data_storage.raw_data_prefix)
        await self._bundles.check(template)
        base = self._base(wanted.run_spec.run_base_dir, run)
        if wanted.offloaded is not None and not added:
            input_uri = blobs.inputs_path(wanted.offloaded.uri)
        else:
            input_uri = await blobs.put_inputs(self._storage, base.removesuffix(f"/{run.run}"), inputs)
        hash_of_inputs = wanted.offloaded.inputs_hash if wanted.offloaded is not None and not added else ""
        if not hash_of_inputs:
            hash_of_inputs = inputs_hash(inputs, template.metadata.cache_ignore_input_vars)
        at = now()
        start = wire.from_timestamp(request.run_start_time) if request.HasField("run_start_time") else at
        record = self._record(id, wanted, request.source, at)
        record.input_uri, record.run_output_base = input_uri, base
        action = root_action(
            id,
            template=template,
            short_name=record.name,
            run_spec=wanted.run_spec,
            annotations=run_annotations(wanted.run_spec, self._settings, start),
            input_uri=input_uri,
            run_output_base=base,
            cache_key=root_cache_key(template, hash_of_inputs),
        )
        try:
            await self._store.create(action, record=record, spec=wanted.spec.SerializeToString(deterministic=True))
        except AlreadyExists:
            raise _exists(run) from None
        ignored = _ignored(wanted.run_spec)
        if ignored:
            reasons = tuple(Reason(message, at, warning=True) for message in ignored)
            await self._records.apply(
                [ActionEvent(id=id, attempt=1, phase=ActionPhase.QUEUED, occurred_at=at, reasons=reasons)]
            )
        return record

    def base_for(self, run_base_dir: str, org: str, project: str, domain: str) -> str:
        """Where runs of this project keep their data."""
        return "/".join([(run_base_dir or self._settings.run_base).rstrip("/"), org, project, domain])

    def _base(self, run_base_dir: str, run: RunId) -> str:
        return f"{self.base_for(run_base_dir, run.org, run.project, run.domain)}/{run.run}"

    async def _identity(self, request: Any) -> RunId:
        kind = request.WhichOneof("id")
        if kind == "run_id":
            run = wire.run_id(request.run_id)
            check_run_name(run.run)
            await self._projects.check(run.org, run.project, run.domain)
        elif kind == "project_id":
            project = request.project_id
            run = RunId(normalize_org(project.organization), project.name, project.domain, new_run_name())
            await self._projects.check(run.org, run.project, run.domain)
        else:
            raise InvalidRequest(f"the request names neither a run nor a project; {CLIENT}")
        try:
            await self._records.get(run.action(ROOT_ACTION))
        except RecordNotFound:
            return run
        raise _exists(run)

    async def _resolve(self, request: Any) -> Wanted:
        kind = request.WhichOneof("task")
        run_spec = request.run_spec
        if kind == "task_spec":
            wanted = Wanted(
                task=wire.template_task_id(request.task_spec.task_template), spec=request.task_spec, run_spec=run_spec
            )
        elif kind == "task_id":
            id = wire.task_id(request.task_id)
            wanted = Wanted(task=id, spec=await self.registered(id), run_spec=run_spec)
        elif kind == "trigger_name":
            wanted = await self._of_trigger(request)
        else:
            raise InvalidRequest(
                f"the request names no task: neither a task, nor its specification, nor a trigger; {CLIENT}"
            )
        if not wanted.spec.HasField("task_template"):
            raise InvalidRequest(f"the task specification of this request has no task template; {CLIENT}")
        wrapper = request.WhichOneof("input_wrapper")
        if wrapper == "inputs":
            wanted.inputs, wanted.offloaded = request.inputs, None
        elif wrapper == "offloaded_input_data":
            wanted.inputs, wanted.offloaded = None, request.offloaded_input_data
        return wanted

    async def registered(self, id: TaskId) -> Any:
        """The TaskSpec of a deployed task. Raises Missing."""
        body = await self._db.read(lambda c: find_spec(c, id))
        if body is None:
            raise missing_task(id)
        return TaskSpec.FromString(body)

    async def of_trigger(self, name: Any) -> tuple[TaskId, Any, Any]:
        """The task of a trigger, its specification, and the trigger. Raises Missing."""
        key = trigger_key(name)
        trigger = await self._db.read(lambda c: find_trigger(c, key))
        if trigger is None:
            raise missing_trigger(key)
        task = TaskId(key[0], key[1], key[2], trigger.id.name.task_name, trigger.spec.task_version)
        return task, await self.registered(task), trigger

    async def _of_trigger(self, request: Any) -> Wanted:
        task, spec, trigger = await self.of_trigger(request.trigger_name)
        wrapper = trigger.spec.WhichOneof("input_wrapper")
        return Wanted(
            task=task,
            spec=spec,
            run_spec=request.run_spec if request.HasField("run_spec") else trigger.spec.run_spec,
            inputs=trigger.spec.inputs if wrapper == "inputs" else None,
            offloaded=trigger.spec.offloaded_input_data if wrapper == "offloaded_input_data" else None,
            trigger_name=trigger.id.name.name,
            trigger_revision=trigger.id.revision,
        )

    async def _given_inputs(self, wanted: Wanted) -> Any:
        if wanted.offloaded is not None:
            return await blobs.read_inputs(self._storage, wanted.offloaded.uri)
        if wanted.inputs is None:
            return Inputs()
        frames_for_tasks(named.value for named in wanted.inputs.literals)
        return wanted.inputs

    def _check_python(self, template: Any) -> None:
        """The default image names the Python of whoever submits; code may not run, and pickles cannot, in another."""
        match = _DEFAULT_IMAGE.search(template.container.image)
        have = self._settings.python_version
        if match and have and match[1] != have:
            raise InvalidRequest(
                f"task {template.id.name} was submitted from Python {match[1]}, and tasks run in Python {have}, where "
                f"its code may not run. Submit it with {self._command('flyte')}, or have tasks run in Python "
                f"{match[1]}: wingbeat up --python PATH"
            )

    def _check_sdk(self, template: Any) -> None:
        """What one minor version of the SDK writes into a task (its arguments, its pickles) another may not read."""
        runtime, have = template.metadata.runtime, self._settings.sdk_version
        if runtime.type != RuntimeMetadata.FLYTE_SDK or runtime.flavor != "python":
            return
        theirs, ours = _MINOR.match(runtime.version), _MINOR.match(have)
        if theirs and ours and theirs.groups() != ours.groups():
            raise InvalidRequest(
                f"task {template.id.name} was made with flyte {runtime.version}, and tasks run with flyte {have} "
                f"({self._settings.interpreter}). Install the same where you submit or deploy it, and do that again: "
                f"python -m pip install 'flyte=={have}'"
            )

    async def _check_raw_data(self, prefix: str) -> None:
        """Files that a task leaves elsewhere on this computer could not be opened through this server. Other stores
        are the task's own business."""
        scheme, colon, _ = prefix.partition("://")
        if not prefix or (colon and scheme not in ("local", "file")):
            return
        try:
            await self._storage.head(prefix)
        except ObjectMissing:
            pass
        except OutsideStorage as error:
            raise InvalidRequest(f"the raw data path of this run cannot be used: {error}") from None

    def _command(self, name: str) -> str:
        """A command of the task environment, by its path."""
        return str(PurePath(self._settings.interpreter).with_name(name)) if self._settings.interpreter else name

    def _record(self, id: ActionId, wanted: Wanted, source: int, at: dt.datetime) -> ActionRecord:
        environment = wanted.spec.environment.name
        return ActionRecord(
            id=id,
            created_at=at,
            updated_at=at,
            task=wanted.task,
            task_type=wanted.spec.task_template.type,
            name=wanted.spec.short_name or task_short_name(wanted.task.name, environment),
            environment=environment,
            run_spec=wanted.run_spec.SerializeToString(deterministic=True),
            labels=dict(wanted.run_spec.labels.values),
            created_by=self._user,
            source=source,
            trigger_name=wanted.trigger_name,
            trigger_revision=wanted.trigger_revision,
        )

    async def _build_image(self, id: ActionId, wanted: Wanted, inputs: Any) -> ActionRecord:
        """A build is answered at once: its record is terminal from the start, and there is no action to run."""
        outputs = await self._images.build(inputs)
        base = self._base(wanted.run_spec.run_base_dir, id.run_id)
        prefix = f"{base}/{id.action}/1"
        input_uri = await blobs.put_inputs(self._storage, base.removesuffix(f"/{id.run}"), inputs)
        await self._storage.put(f"{prefix}/outputs.pb", outputs)
        at = now()
        record = self._record(id, wanted, 0, at)
        record.input_uri, record.run_output_base = input_uri, base
        spec = wanted.spec.SerializeToString(deterministic=True)
        ends = ((ActionPhase.RUNNING, ""), (ActionPhase.SUCCEEDED, prefix))
        events = [ActionEvent(id=id, attempt=1, phase=phase, occurred_at=at, output_uri=uri) for phase, uri in ends]

        def job(c: Connection) -> bool:
            # In one transaction: no action stands behind this record that could end it later.
            created = insert_record(c, record, spec)
            if created:
                apply_events(c, events)
            return created

        if not await self._db.write(job):
            raise _exists(id.run_id)
        return await self._records.get(id)


def _exists(run: RunId) -> Exists:
    return Exists(
        f"there is a run {run.run!r} in {run.project}/{run.domain} already; choose another name, or look at that run: "
        f"flyte get run {run.run}"
    )


def _refuse_unsupported(run_spec: RunSpec) -> None:
    relation, run = run_spec.relation.relation_type, run_spec.relation.related_to.name
    if relation == RelationType.RELATION_TYPE_RECOVER or run_spec.recover.force_rerun_actions:
        raise Unsupported(
            f"recovering the run {run!r} (reusing what succeeded in it) is not supported yet; run all of it again "
            f"without --recover: flyte rerun {run}"
        )


def _check_variables(pairs: list[Any]) -> None:
    """No process can be started with a variable like these."""
    for pair in pairs:
        if not pair.key or "=" in pair.key or "\0" in pair.key + pair.value:
            raise InvalidRequest(
                f"the environment variable {pair.key[:60]!r} cannot be set: a name is not empty and has no '=', and "
                "neither name nor value has a NUL character; change it where the run or its task sets it"
            )


def _ignored(run_spec: RunSpec) -> list[str]:
    """What the run asks for and does not get, in words; shown among its events."""
    words = []
    if run_spec.WhichOneof("notification_settings"):
        words.append("notifications are not sent yet")
    if run_spec.max_action_concurrency:
        words.append(
            f"max_action_concurrency={run_spec.max_action_concurrency} is not enforced yet; "
            "the machine's budget decides how many actions run at once"
        )
    if run_spec.queue:
        words.append(f"there are no queues yet: {run_spec.queue!r} is ignored")
    return words
