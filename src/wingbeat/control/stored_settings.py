"""The settings of an organisation, a domain, a project: kept and versioned. Runs do not take them over yet."""

from __future__ import annotations

from typing import Any

from flyteidl2.settings.settings_definition_pb2 import Settings, SettingsKey
from flyteidl2.settings.settings_service_connect import SettingsService
from flyteidl2.settings.settings_service_pb2 import (
    CreateSettingsResponse,
    GetSettingsForEditResponse,
    SettingsRecord,
    UpdateSettingsResponse,
)

from wingbeat.control.errors import Exists, InvalidRequest, Missing, Stale
from wingbeat.database import Connection, Database
from wingbeat.resources import normalize_org

Scope = tuple[str, str, str]
"""Organisation, domain, project."""


class SettingsApi(SettingsService):  # type: ignore[misc]
    def __init__(self, db: Database) -> None:
        self._db = db

    async def get_settings_for_edit(self, request: Any, ctx: Any) -> Any:
        """One record for each level from the organisation down to what was asked for; absent ones have version 0."""
        org, domain, project = _scope(request.key)
        scopes: list[Scope] = [(org, "", "")]
        if domain:
            scopes.append((org, domain, ""))
        if project:
            scopes.append((org, domain, project))
        levels = await self._db.read(lambda c: [_read(c, s) for s in scopes])
        return GetSettingsForEditResponse(requestedKey=request.key, levels=levels)

    async def create_settings(self, request: Any, ctx: Any) -> Any:
        scope, body = _scope(request.key), request.settings.SerializeToString(deterministic=True)

        def job(c: Connection) -> Any:
            values = "VALUES (?, ?, ?, 1, ?) ON CONFLICT DO NOTHING"
            if not c.execute(f"INSERT INTO settings (org, domain, project, version, body) {values}", (*scope, body)):
                raise Exists("there are settings for this scope already; update them")
            return _read(c, scope)

        return CreateSettingsResponse(settingsRecord=await self._db.write(job))

    async def update_settings(self, request: Any, ctx: Any) -> Any:
        scope, body = _scope(request.key), request.settings.SerializeToString(deterministic=True)
        if not request.version:
            raise InvalidRequest("the version that was read must be given")

        def job(c: Connection) -> Any:
            there = _read(c, scope).version
            if not there:
                raise Missing("there are no settings for this scope; create them")
            if there != request.version:
                raise Stale(f"the settings were changed meanwhile (version {there}, not {request.version}); read again")
            c.execute(
                "UPDATE settings SET version = version + 1, body = ? WHERE org = ? AND domain = ? AND project = ?",
                (body, *scope),
            )
            return _read(c, scope)

        return UpdateSettingsResponse(settingsRecord=await self._db.write(job))


def _scope(key: Any) -> Scope:
    if key.project and not key.domain:
        raise InvalidRequest("settings of a project need a domain too")
    return normalize_org(key.org), key.domain, key.project


def _read(c: Connection, scope: Scope) -> Any:
    rows = c.query("SELECT version, body FROM settings WHERE org = ? AND domain = ? AND project = ?", scope)
    key = SettingsKey(org=scope[0], domain=scope[1], project=scope[2])
    if not rows:
        return SettingsRecord(key=key)
    return SettingsRecord(key=key, version=rows[0][0], settings=Settings.FromString(bytes(rows[0][1])))
