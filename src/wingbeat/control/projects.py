"""Projects, and the domains that each of them has."""

from __future__ import annotations

import json
import re
from typing import Any

from flyteidl2.common.list_pb2 import Sort
from flyteidl2.project.project_service_connect import ProjectService
from flyteidl2.project.project_service_pb2 import (
    CreateProjectResponse,
    Domain,
    GetProjectResponse,
    ListProjectsResponse,
    Project,
    ProjectState,
    UpdateProjectResponse,
)

from wingbeat.control.clock import now_micros
from wingbeat.control.errors import Exists, InvalidRequest, Missing, NotNow
from wingbeat.control.listing import read_token
from wingbeat.control.settings import ControlSettings
from wingbeat.database import Connection, Database
from wingbeat.resources import normalize_org

_ID = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]{0,62}")
_FILTER = re.compile(r"\s*(\w+)\(\s*(\w+)\s*,\s*(.*?)\s*\)\s*")
_FIELDS = {
    "identifier": "id",
    "id": "id",
    "name": "name",
    "description": "description",
    "state": "state",
    "labels": "labels",
    "created_at": "created_at",
    "updated_at": "updated_at",
}
_COLUMNS = "org, id, name, description, labels, state"


class Projects:
    """The table, for every service that must know whether a project exists."""

    def __init__(self, db: Database, settings: ControlSettings) -> None:
        self._db = db
        self._domains = dict(settings.domains)
        self._settings = settings

    async def ensure_default(self) -> None:
        """Make the default project, so that a first run needs no set-up."""
        project = Project(id=self._settings.default_project, name=self._settings.default_project)
        await self._db.write(lambda c: _insert(c, normalize_org(self._settings.org), project))

    async def check(self, org: str, project: str, domain: str) -> None:
        """Raises Missing for a project or domain that does not exist, NotNow for an archived project."""
        rows = await self._db.read(
            lambda c: c.query("SELECT state FROM projects WHERE org = ? AND id = ?", (org, project))
        )
        if not rows:
            known = await self._db.read(
                lambda c: c.query("SELECT id FROM projects WHERE org = ? ORDER BY id LIMIT 10", (org,))
            )
            there = f"there are {', '.join(r[0] for r in known)}" if known else f"organization {org} has none"
            raise Missing(
                f"there is no project {project!r} ({there}); "
                f"make it with: flyte create project --id {project} --name {project}"
            )
        if domain not in self._domains:
            raise Missing(
                f"there is no domain {domain!r} in project {project!r} (there are {', '.join(self._domains)}); "
                f"name one of them: flyte run --domain {next(iter(self._domains), 'DOMAIN')} ..."
            )
        if rows[0][0] in (ProjectState.PROJECT_STATE_ARCHIVED, ProjectState.PROJECT_STATE_SYSTEM_ARCHIVED):
            raise NotNow(
                f"project {project!r} is archived; take it back with: flyte update project --unarchive {project}"
            )

    def message(self, row: tuple[Any, ...]) -> Any:
        org, id, name, description, labels, state = row
        project = Project(id=id, name=name, description=description, state=state, org=org)
        project.domains.extend(Domain(id=d, name=n) for d, n in self._domains.items())
        project.labels.values.update(json.loads(bytes(labels)))
        return project


def _insert(c: Connection, org: str, project: Any) -> bool:
    at = now_micros()
    labels = json.dumps(dict(project.labels.values)).encode()
    values = (org, project.id, project.name or project.id, project.description, labels, project.state, at, at)
    return bool(
        c.execute(
            "INSERT INTO projects (org, id, name, description, labels, state, created_at, updated_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            values,
        )
    )


class ProjectApi(ProjectService):  # type: ignore[misc]
    def __init__(self, db: Database, projects: Projects) -> None:
        self._db = db
        self._projects = projects

    async def create_project(self, request: Any, ctx: Any) -> Any:
        project = request.project
        if not _ID.fullmatch(project.id):
            raise InvalidRequest(
                f"the project id {project.id!r} is not valid: use letters, digits, '-', '_' and '.', at most 63"
            )
        if not await self._db.write(lambda c: _insert(c, normalize_org(project.org), project)):
            raise Exists(f"there is a project {project.id!r} already; look at it: flyte get project {project.id}")
        return CreateProjectResponse()

    async def update_project(self, request: Any, ctx: Any) -> Any:
        project = request.project
        if not project.id:
            raise InvalidRequest("the project has no id")
        values = (
            project.name,
            project.description,
            json.dumps(dict(project.labels.values)).encode(),
            project.state,
            now_micros(),
            normalize_org(project.org),
            project.id,
        )
        changed = await self._db.write(
            lambda c: c.execute(
                "UPDATE projects SET name = ?, description = ?, labels = ?, state = ?, updated_at = ? "
                "WHERE org = ? AND id = ?",
                values,
            )
        )
        if not changed:
            raise Missing(f"there is no project {project.id!r}; see what there is: flyte get project")
        return UpdateProjectResponse()

    async def get_project(self, request: Any, ctx: Any) -> Any:
        if not request.id:
            raise InvalidRequest("which project? The request has no id")
        rows = await self._db.read(
            lambda c: c.query(
                f"SELECT {_COLUMNS} FROM projects WHERE org = ? AND id = ?", (normalize_org(request.org), request.id)
            )
        )
        if not rows:
            raise Missing(f"there is no project {request.id!r}; see what there is: flyte get project")
        return GetProjectResponse(project=self._projects.message(rows[0]))

    async def list_projects(self, request: Any, ctx: Any) -> Any:
        """Archived ones are hidden unless a filter speaks of the state."""
        parts, params = ["org = ?"], [normalize_org(request.org)]
        speaks_of_state = False
        for text in filter(None, request.filters.split("+")):
            field, part, values = _parse_filter(text)
            speaks_of_state |= field == "state"
            parts.append(part)
            params.extend(values)
        if not speaks_of_state:
            parts.append("state NOT IN (1, 3)")
        order = "id"
        if request.HasField("sort_by") and request.sort_by.key:
            if request.sort_by.key not in _FIELDS:
                raise InvalidRequest(f"projects cannot be sorted by {request.sort_by.key!r}")
            direction = " DESC" if request.sort_by.direction == Sort.DESCENDING else ""
            order = f"{_FIELDS[request.sort_by.key]}{direction}, id"
        offset, limit = read_token(request.token), request.limit or 1_000_000
        sql = f"SELECT {_COLUMNS} FROM projects WHERE {' AND '.join(parts)} ORDER BY {order} LIMIT ? OFFSET ?"
        rows = await self._db.read(lambda c: c.query(sql, (*params, limit + 1, offset)))
        response = ListProjectsResponse()
        response.projects.projects.extend(self._projects.message(row) for row in rows[:limit])
        response.projects.token = str(offset + limit) if len(rows) > limit else ""
        return response


def _parse_filter(text: str) -> tuple[str, str, list[Any]]:
    """`fn(field, value)`, as Flyte's clients write filters of projects."""
    match = _FILTER.fullmatch(text)
    if match is None or match[2] not in _FIELDS:
        raise InvalidRequest(f"the filter {text[:100]!r} is not understood; write it like eq(state, 0)")
    name, field, value = match.groups()
    values: list[Any] = value.split(";") if name == "value_in" else [value]
    if field == "state":
        if not all(v.isdigit() for v in values):
            raise InvalidRequest(f"the state in {text[:100]!r} must be a number")
        values = [int(v) for v in values]
    column = _FIELDS[field]
    if name == "eq":
        return field, f"{column} = ?", values
    if name == "ne":
        return field, f"{column} <> ?", values
    if name == "contains":
        return field, f"instr({column}, ?) > 0", values
    if name == "value_in":
        return field, f"{column} IN ({', '.join('?' * len(values))})", values
    raise InvalidRequest(f"the filter function {name!r} is not known; there are eq, ne, contains and value_in")
