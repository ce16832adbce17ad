"""Deployed tasks. A version may be deployed again, which replaces its specification (as Flyte does): the SDK takes
"already exists" for "nothing to do", so refusing would leave users with an old task and no word."""

from __future__ import annotations

from typing import Any

from flyteidl2.task.task_definition_pb2 import Task, TaskDetails, TaskMetadata, TaskSpec, TaskTriggersSummary
from flyteidl2.task.task_service_connect import TaskService
from flyteidl2.task.task_service_pb2 import (
    DeployTaskResponse,
    GetTaskDetailsResponse,
    ListTasksResponse,
    ListVersionsResponse,
)
from flyteidl2.trigger.trigger_definition_pb2 import TriggerSpec

from wingbeat.control import images, listing, wire
from wingbeat.control.clock import now_micros
from wingbeat.control.errors import InvalidRequest, Missing
from wingbeat.control.projects import Projects
from wingbeat.control.triggers import (
    delete_trigger,
    log_unscheduled,
    normalize_automation,
    put_trigger,
    triggers_of_task,
)
from wingbeat.database import Connection, Database, get_blob, put_blob
from wingbeat.database.times import from_micros
from wingbeat.resources import TaskId, normalize_org

_COLUMNS = (
    "org, project, domain, name, version, environment, short_name, short_description, env_description, entrypoint, "
    "spec_digest, deployed_by, created_at"
)
_KEY = "org = ? AND project = ? AND domain = ? AND name = ? AND version = ?"
_TABLE = listing.Table(
    {
        "project": ("project", str),
        "domain": ("domain", str),
        "name": ("name", str),
        "version": ("version", str),
        "environment": ("environment", str),
        "function_name": ("short_name", str),
        "short_name": ("short_name", str),
        "deployed_by": ("deployed_by", str),
        "created_at": ("created_at", listing.moment),
        "updated_at": ("updated_at", listing.moment),
        "env_description": ("env_description", str),
        "short_description": ("short_description", str),
    }
)
_VERSIONS = listing.Table({"version": ("version", str), "created_at": ("created_at", listing.moment)})
_DESCRIPTION_LENGTH = 255


def task_short_name(name: str, environment: str) -> str:
    """The function: the name without its environment, else what follows the last dot."""
    if environment and name.startswith(environment + "."):
        return name.removeprefix(environment + ".")
    return name.rpartition(".")[2]


def find_spec(c: Connection, id: TaskId) -> bytes | None:
    """The serialized TaskSpec of this exact version."""
    if id.project == images.PROJECT and id.name == images.TASK_NAME:
        return bytes(images.TASK_SPEC.SerializeToString(deterministic=True))
    key = (id.org, id.project, id.domain, id.name, id.version)
    rows = c.query(f"SELECT spec_digest FROM tasks WHERE {_KEY}", key)
    return get_blob(c, str(rows[0][0])) if rows else None


def missing_task(id: TaskId) -> Missing:
    return Missing(
        f"there is no task {id.name!r} of version {id.version!r} in {id.project}/{id.domain}; "
        f"deploy it, or see what there is: flyte get task"
    )


class TaskApi(TaskService):  # type: ignore[misc]
    def __init__(self, db: Database, projects: Projects, user: str) -> None:
        self._db = db
        self._projects = projects
        self._user = user

    async def deploy_task(self, request: Any, ctx: Any) -> Any:
        id = wire.task_id(request.task_id)
        if not id.version:
            raise InvalidRequest(f"the task {id.name!r} has no version")
        if not request.HasField("spec"):
            raise InvalidRequest(f"the task {id.name!r} has no specification")
        await self._projects.check(id.org, id.project, id.domain)
        automations = [normalize_automation(t.automation_spec) for t in request.triggers]
        spec, user = request.spec, self._user
        environment = spec.environment.name
        body = spec.SerializeToString(deterministic=True)

        def job(c: Connection) -> None:
            digest, at = put_blob(c, body), now_micros()
            c.execute(
                f"INSERT INTO tasks ({_COLUMNS}, updated_at) VALUES ({', '.join('?' * 14)}) "
                "ON CONFLICT (org, project, domain, name, version) DO UPDATE SET environment = excluded.environment, "
                "short_name = excluded.short_name, short_description = excluded.short_description, "
                "env_description = excluded.env_description, entrypoint = excluded.entrypoint, "
                "spec_digest = excluded.spec_digest, deployed_by = excluded.deployed_by, "
                "updated_at = excluded.updated_at",
                (
                    id.org,
                    id.project,
                    id.domain,
                    id.name,
                    id.version,
                    environment,
                    spec.short_name or task_short_name(id.name, environment),
                    spec.documentation.short_description[:_DESCRIPTION_LENGTH],
                    spec.environment.description[:_DESCRIPTION_LENGTH],
                    int(spec.task_template.metadata.is_entrypoint),
                    digest,
                    user,
                    at,
                    at,
                ),
            )
            kept = {t.name for t in request.triggers}
            for old in triggers_of_task(c, id.org, id.project, id.domain, id.name):
                if old.id.name.name not in kept:
                    delete_trigger(c, (id.org, id.project, id.domain, id.name, old.id.name.name), user)
            for trigger, automation in zip(request.triggers, automations, strict=True):
                key = (id.org, id.project, id.domain, id.name, trigger.name)
                put_trigger(c, key, _trigger_spec(trigger.spec, id.version), automation, user)

        await self._db.write(job)
        for trigger in request.triggers:
            log_unscheduled(trigger.name, id.name)
        return DeployTaskResponse()

    async def get_task_details(self, request: Any, ctx: Any) -> Any:
        id = wire.task_id(request.task_id)
        if id.project == images.PROJECT and id.name == images.TASK_NAME:
            return GetTaskDetailsResponse(details=_builtin(id.org))
        key = (id.org, id.project, id.domain, id.name, id.version)

        def job(c: Connection) -> Any:
            rows = c.query(f"SELECT {_COLUMNS} FROM tasks WHERE {_KEY}", key)
            if not rows:
                raise missing_task(id)
            metadata = _metadata(c, rows[0])
            spec = TaskSpec.FromString(get_blob(c, rows[0][10]) or b"")
            return TaskDetails(task_id=wire.task_identifier(id), metadata=metadata, spec=spec)

        return GetTaskDetailsResponse(details=await self._db.read(job))

    async def list_tasks(self, request: Any, ctx: Any) -> Any:
        """The newest version of each task that matches."""
        limit, offset = listing.page(request.request)
        if request.WhichOneof("scope_by") == "project_id":
            id = request.project_id
            if id.name == images.PROJECT:
                return _list_builtin(request, normalize_org(id.organization))
            parts, params = (
                ["org = ?", "project = ?", "domain = ?"],
                [normalize_org(id.organization), id.name, id.domain],
            )
        else:
            parts, params = ["org = ?"], [normalize_org(request.org)]
        scope, scope_params = " AND ".join(parts), list(params)
        more, bound = _TABLE.where(request.request.filters)
        for known in request.known_filters:
            if known.WhichOneof("filter_by") == "is_entrypoint":
                more.append("entrypoint = ?")
                bound.append(int(known.is_entrypoint))
            elif known.deployed_by:
                more.append("deployed_by = ?")
                bound.append(known.deployed_by)
        where = " AND ".join([*parts, *more])
        order = _TABLE.order(request.request, "created_at DESC", "name, version")
        newest = (
            f"SELECT {_COLUMNS}, updated_at, ROW_NUMBER() OVER (PARTITION BY org, project, domain, name "
            f"ORDER BY created_at DESC, version DESC) AS place FROM tasks WHERE {where}"
        )
        sql = f"SELECT {_COLUMNS} FROM ({newest}) AS t WHERE place = 1 ORDER BY {order} LIMIT ? OFFSET ?"
        count = "SELECT COUNT(*) FROM (SELECT DISTINCT org, project, domain, name FROM tasks WHERE {}) AS t"

        def job(c: Connection) -> Any:
            rows = c.query(sql, (*params, *bound, limit + 1, offset))
            response = ListTasksResponse(token=listing.next_token(rows, limit, offset))
            for row in rows:
                id = TaskId(*row[:5])
                response.tasks.append(Task(task_id=wire.task_identifier(id), metadata=_metadata(c, row)))
            response.metadata.total = c.query(count.format(scope), scope_params)[0][0]
            response.metadata.filtered_total = c.query(count.format(where), (*params, *bound))[0][0]
            return response

        return await self._db.read(job)

    async def list_versions(self, request: Any, ctx: Any) -> Any:
        limit, offset = listing.page(request.request)
        name = request.task_name
        more, bound = _VERSIONS.where(request.request.filters)
        order = _VERSIONS.order(request.request, "created_at DESC", "version DESC")
        where = " AND ".join(["org = ?", "project = ?", "domain = ?", "name = ?", *more])
        params = (normalize_org(name.org), name.project, name.domain, name.name, *bound, limit + 1, offset)
        sql = f"SELECT version, created_at, deployed_by FROM tasks WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?"
        rows = await self._db.read(lambda c: c.query(sql, params))
        response = ListVersionsResponse(token=listing.next_token(rows, limit, offset))
        for version, at, by in rows:
            response.versions.add(
                version=version, deployed_at=wire.timestamp(from_micros(at)), deployed_by=wire.identity(by)
            )
        return response


def _trigger_spec(spec: Any, version: str) -> Any:
    """What a deployment says of a trigger, as the trigger's own specification."""
    result = TriggerSpec(active=spec.active, task_version=version, description=spec.description)
    if spec.HasField("run_spec"):
        result.run_spec.CopyFrom(spec.run_spec)
    wrapper = spec.WhichOneof("input_wrapper")
    if wrapper is not None:
        getattr(result, wrapper).CopyFrom(getattr(spec, wrapper))
    return result


def _metadata(c: Connection, row: tuple[Any, ...]) -> Any:
    metadata = TaskMetadata(
        short_name=row[6],
        environment_name=row[5],
        short_description=row[7],
        deployed_by=wire.identity(row[11]),
        deployed_at=wire.timestamp(from_micros(row[12])),
    )
    triggers = triggers_of_task(c, row[0], row[1], row[2], row[3])
    if len(triggers) == 1:
        only = triggers[0]
        metadata.triggers_summary.details.CopyFrom(
            TaskTriggersSummary.TriggerDetails(
                name=only.id.name.name, active=only.spec.active, automation_spec=only.automation_spec
            )
        )
    elif triggers:
        metadata.triggers_summary.stats.total = len(triggers)
        metadata.triggers_summary.stats.active = sum(t.spec.active for t in triggers)
    return metadata


def _builtin(org: str) -> Any:
    id = TaskId(org, images.PROJECT, images.DOMAIN, images.TASK_NAME, images.TASK_VERSION)
    metadata = TaskMetadata(short_name=images.TASK_NAME, short_description="checks what an image needs")
    return TaskDetails(task_id=wire.task_identifier(id), metadata=metadata, spec=images.TASK_SPEC)


def _list_builtin(request: Any, org: str) -> Any:
    names = [v for f in request.request.filters if f.field == "name" for v in f.values]
    response = ListTasksResponse()
    if not names or images.TASK_NAME in names:
        details = _builtin(org)
        response.tasks.append(Task(task_id=details.task_id, metadata=details.metadata))
        response.metadata.total = response.metadata.filtered_total = 1
    return response
