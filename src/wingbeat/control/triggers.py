"""Triggers: stored, versioned, switched on and off. Nothing fires them yet, and their description says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from flyteidl2.common.identifier_pb2 import TriggerIdentifier, TriggerName
from flyteidl2.task.common_pb2 import TriggerAutomationSpec, TriggerAutomationSpecType
from flyteidl2.trigger.trigger_definition_pb2 import (
    Trigger,
    TriggerDetails,
    TriggerMetadata,
    TriggerRevision,
    TriggerRevisionAction,
    TriggerSpec,
    TriggerStatus,
)
from flyteidl2.trigger.trigger_service_connect import TriggerService
from flyteidl2.trigger.trigger_service_pb2 import (
    DeleteTriggersResponse,
    DeployTriggerResponse,
    GetTriggerDetailsResponse,
    GetTriggerRevisionDetailsResponse,
    GetTriggerRevisionHistoryResponse,
    ListTriggersResponse,
    UpdateTriggersResponse,
)

from wingbeat.control import listing, wire
from wingbeat.control.clock import now_micros
from wingbeat.control.errors import InvalidRequest, Missing, Stale
from wingbeat.control.projects import Projects
from wingbeat.database import Connection, Database
from wingbeat.database.times import from_micros, optional_time
from wingbeat.resources import normalize_org

log = logging.getLogger(__name__)

NOT_SCHEDULED = "not scheduled yet: this version of Wingbeat stores triggers and does not fire them"

_COLUMNS = (
    "org, project, domain, task_name, name, revision, active, task_version, automation_type, spec, automation, "
    "deployed_by, updated_by, deployed_at, updated_at, triggered_at, deleted_at"
)
_KEY = "org = ? AND project = ? AND domain = ? AND task_name = ? AND name = ?"
_TABLE = listing.Table(
    {
        "project": ("project", str),
        "domain": ("domain", str),
        "task_name": ("task_name", str),
        "name": ("name", str),
        "active": ("active", listing.truth),
        "task_version": ("task_version", str),
        "automation_type": ("automation_type", int),
        "deployed_at": ("deployed_at", listing.moment),
        "updated_at": ("updated_at", listing.moment),
    }
)

Key = tuple[str, str, str, str, str]
"""Organisation, project, domain, task name, name."""


# --- on a connection, for deployments of tasks too


def put_trigger(c: Connection, key: Key, spec: Any, automation: Any, by: str, expected: int = 0) -> None:
    """Store a trigger, as its next revision. `expected`, when not 0, is the revision that must be there."""
    at = now_micros()
    rows = c.query(f"SELECT revision, active, updated_at FROM triggers WHERE {_KEY}", key)
    revision = rows[0][0] if rows else 0
    if expected and expected != revision:
        raise Stale(f"the trigger {key[4]!r} is at revision {revision}, not {expected}; read it again")
    updated = rows[0][2] if rows and bool(rows[0][1]) == spec.active else at
    c.execute(f"DELETE FROM triggers WHERE {_KEY}", key)
    c.execute(
        f"INSERT INTO triggers ({_COLUMNS}, deleted) VALUES ({', '.join('?' * 17)}, 0)",
        (
            *key,
            revision + 1,
            int(spec.active),
            spec.task_version,
            automation.type,
            spec.SerializeToString(deterministic=True),
            automation.SerializeToString(deterministic=True),
            by,
            by,
            at,
            updated,
            None,
            None,
        ),
    )
    _note(c, key, TriggerRevisionAction.TRIGGER_REVISION_ACTION_DEPLOY)


def triggers_of_task(c: Connection, org: str, project: str, domain: str, task_name: str) -> list[Any]:
    """TriggerDetails of the live triggers of a task, whatever its version."""
    where = "org = ? AND project = ? AND domain = ? AND task_name = ? AND deleted = 0 ORDER BY name"
    rows = c.query(f"SELECT {_COLUMNS} FROM triggers WHERE {where}", (org, project, domain, task_name))
    return [_details(row) for row in rows]


def find_trigger(c: Connection, key: Key) -> Any | None:
    """TriggerDetails; with an empty task name any trigger of that name will do."""
    where, params = (_KEY, list(key)) if key[3] else (_KEY.replace("task_name = ? AND ", ""), [*key[:3], key[4]])
    rows = c.query(f"SELECT {_COLUMNS} FROM triggers WHERE {where} AND deleted = 0", params)
    return _details(rows[0]) if rows else None


def delete_trigger(c: Connection, key: Key, by: str) -> None:
    at = now_micros()
    changed = c.execute(
        f"UPDATE triggers SET deleted = 1, active = 0, deleted_at = ?, updated_by = ?, revision = revision + 1 "
        f"WHERE {_KEY} AND deleted = 0",
        (at, by, *key),
    )
    if changed:
        _note(c, key, TriggerRevisionAction.TRIGGER_REVISION_ACTION_DELETE)


def _switch(c: Connection, key: Key, active: bool, by: str) -> None:
    changed = c.execute(
        f"UPDATE triggers SET active = ?, updated_at = ?, updated_by = ?, revision = revision + 1 "
        f"WHERE {_KEY} AND deleted = 0 AND active <> ?",
        (int(active), now_micros(), by, *key, int(active)),
    )
    if changed:
        kind = TriggerRevisionAction
        _note(c, key, kind.TRIGGER_REVISION_ACTION_ACTIVATE if active else kind.TRIGGER_REVISION_ACTION_DEACTIVATE)


def _note(c: Connection, key: Key, change: int) -> None:
    row = c.query(f"SELECT {_COLUMNS} FROM triggers WHERE {_KEY}", key)[0]
    details = _details(row)
    c.execute(
        "INSERT INTO trigger_revisions (org, project, domain, task_name, name, revision, change, details, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*key, row[5], change, details.SerializeToString(deterministic=True), now_micros()),
    )


def _details(row: tuple[Any, ...]) -> Any:
    spec = TriggerSpec.FromString(bytes(row[9]))
    spec.active = bool(row[6])
    details = TriggerDetails(
        id=_identifier(row),
        metadata=_metadata(row),
        spec=spec,
        status=_status(row),
        automation_spec=TriggerAutomationSpec.FromString(bytes(row[10])),
    )
    details.description = f"{spec.description} ({NOT_SCHEDULED})" if spec.description else NOT_SCHEDULED
    return details


def _identifier(row: tuple[Any, ...]) -> Any:
    name = TriggerName(org=row[0], project=row[1], domain=row[2], task_name=row[3], name=row[4])
    return TriggerIdentifier(name=name, revision=row[5])


def _metadata(row: tuple[Any, ...]) -> Any:
    return TriggerMetadata(deployed_by=wire.identity(row[11]), updated_by=wire.identity(row[12]))


def _status(row: tuple[Any, ...]) -> Any:
    return TriggerStatus(
        deployed_at=wire.timestamp(from_micros(row[13])),
        updated_at=wire.timestamp(from_micros(row[14])),
        triggered_at=wire.timestamp(optional_time(row[15])),
        deleted_at=wire.timestamp(optional_time(row[16])),
    )


def log_unscheduled(name: str, task_name: str) -> None:
    log.warning("trigger %s of task %s is %s", name, task_name, NOT_SCHEDULED)


def missing_trigger(key: Key) -> Missing:
    return Missing(
        f"there is no trigger {key[4]!r} of task {key[3] or '(any)'} in {key[1]}/{key[2]}; "
        "see what there is: flyte get trigger"
    )


def trigger_key(name: Any) -> Key:
    for part in ("project", "domain", "name"):
        if not getattr(name, part):
            raise InvalidRequest(f"the trigger has no {part}")
    return normalize_org(name.org), name.project, name.domain, name.task_name, name.name


def normalize_automation(automation: Any) -> Any:
    """The automation with its type set from what is in it. Raises InvalidRequest for what could never fire."""
    result = TriggerAutomationSpec()
    result.CopyFrom(automation)
    kind = automation.WhichOneof("automation")
    types = {
        "schedule": TriggerAutomationSpecType.TYPE_SCHEDULE,
        "artifact": TriggerAutomationSpecType.TYPE_ARTIFACT,
    }
    result.type = types.get(kind or "", TriggerAutomationSpecType.TYPE_NONE)
    if kind == "schedule":
        expression = automation.schedule.WhichOneof("expression")
        if expression is None:
            raise InvalidRequest("the schedule has neither a cron expression nor a rate")
        if expression == "rate" and not automation.schedule.rate.value:
            raise InvalidRequest("a rate of 0 would fire without end; give it a value of 1 or more")
    return result


class TriggerApi(TriggerService):  # type: ignore[misc]
    def __init__(self, db: Database, projects: Projects, user: str) -> None:
        self._db = db
        self._projects = projects
        self._user = user

    async def deploy_trigger(self, request: Any, ctx: Any) -> Any:
        key = trigger_key(request.name)
        if not key[3]:
            raise InvalidRequest(f"the trigger {key[4]!r} has no task name")
        await self._projects.check(*key[:3])
        automation = normalize_automation(request.automation_spec)
        user, expected = self._user, request.revision

        def job(c: Connection) -> Any:
            put_trigger(c, key, request.spec, automation, user, expected)
            return find_trigger(c, key)

        trigger = await self._db.write(job)
        log_unscheduled(key[4], key[3])
        return DeployTriggerResponse(trigger=trigger)

    async def get_trigger_details(self, request: Any, ctx: Any) -> Any:
        key = trigger_key(request.name)
        found = await self._db.read(lambda c: find_trigger(c, key))
        if found is None:
            raise missing_trigger(key)
        return GetTriggerDetailsResponse(trigger=found)

    async def get_trigger_revision_details(self, request: Any, ctx: Any) -> Any:
        key = trigger_key(request.id.name)
        rows = await self._db.read(
            lambda c: c.query(
                f"SELECT details FROM trigger_revisions WHERE {_KEY} AND revision = ?", (*key, request.id.revision)
            )
        )
        if not rows:
            raise Missing(f"there is no revision {request.id.revision} of trigger {key[4]!r}")
        return GetTriggerRevisionDetailsResponse(trigger=TriggerDetails.FromString(bytes(rows[0][0])))

    async def list_triggers(self, request: Any, ctx: Any) -> Any:
        limit, offset = listing.page(request.request)
        parts, params = _scope(request)
        more, bound = _TABLE.where(request.request.filters)
        order = _TABLE.order(request.request, "active DESC, updated_at DESC", "task_name, name")
        where = " AND ".join([*parts, "deleted = 0", *more])
        sql = f"SELECT {_COLUMNS} FROM triggers WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?"
        rows = await self._db.read(lambda c: c.query(sql, (*params, *bound, limit + 1, offset)))
        token = listing.next_token(rows, limit, offset)
        return ListTriggersResponse(triggers=[_summary(row) for row in rows], token=token)

    async def get_trigger_revision_history(self, request: Any, ctx: Any) -> Any:
        key = trigger_key(request.name)
        limit, offset = listing.page(request.request)
        sql = (
            f"SELECT details, change, created_at FROM trigger_revisions WHERE {_KEY} "
            "ORDER BY revision DESC LIMIT ? OFFSET ?"
        )
        rows = await self._db.read(lambda c: c.query(sql, (*key, limit + 1, offset)))
        token = listing.next_token(rows, limit, offset)
        history = []
        for details, change, at in rows:
            then = TriggerDetails.FromString(bytes(details))
            history.append(
                TriggerRevision(
                    id=then.id,
                    metadata=then.metadata,
                    status=then.status,
                    action=change,
                    created_at=wire.timestamp(from_micros(at)),
                )
            )
        return GetTriggerRevisionHistoryResponse(triggers=history, token=token)

    async def update_triggers(self, request: Any, ctx: Any) -> Any:
        await self._each(request.names, lambda c, key: _switch(c, key, request.active, self._user))
        return UpdateTriggersResponse()

    async def delete_triggers(self, request: Any, ctx: Any) -> Any:
        await self._each(request.names, lambda c, key: delete_trigger(c, key, self._user))
        return DeleteTriggersResponse()

    async def _each(self, names: Any, change: Callable[[Connection, Key], None]) -> None:
        """All in one transaction; names that do not exist are passed over."""
        keys = [trigger_key(name) for name in names]

        def job(c: Connection) -> None:
            for key in keys:
                change(c, key)

        await self._db.write(job)


def _scope(request: Any) -> tuple[list[str], list[Any]]:
    kind = request.WhichOneof("scope_by")
    if kind == "project_id":
        id = request.project_id
        return ["org = ?", "project = ?", "domain = ?"], [normalize_org(id.organization), id.name, id.domain]
    if kind in ("task_id", "task_name"):
        id = getattr(request, kind)
        parts = ["org = ?", "project = ?", "domain = ?", "task_name = ?"]
        params = [normalize_org(id.org), id.project, id.domain, id.name]
        if kind == "task_id" and id.version:
            parts.append("task_version = ?")
            params.append(id.version)
        return parts, params
    return ["org = ?"], [normalize_org(request.org)]


def _summary(row: tuple[Any, ...]) -> Any:
    return Trigger(
        id=_identifier(row),
        metadata=_metadata(row),
        status=_status(row),
        active=bool(row[6]),
        automation_spec=TriggerAutomationSpec.FromString(bytes(row[10])),
    )
