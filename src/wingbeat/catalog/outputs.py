"""The catalog of cached outputs.

The key comes from the client (children) or the run service (root actions) and covers inputs, interface, name and
cache version. It counts within a scope: one project and domain, or the whole organisation (`GLOBAL`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import structlog
from flyteidl2.task import run_pb2

from wingbeat.database import Connection, Database
from wingbeat.engine import CatalogAnswer, TaskFacts
from wingbeat.resources import CacheStatus, TaskAction
from wingbeat.resources.taskaction import ANNOTATION_CACHE_OVERWRITE, ANNOTATION_CACHE_SCOPE
from wingbeat.storage import ObjectMissing, Storage

log = structlog.get_logger("wingbeat.catalog")


def scope_of(action: TaskAction) -> str:
    """Where the action's key counts. Without a stated scope: its project and domain."""
    id = action.id
    stated = action.metadata.annotations.get(ANNOTATION_CACHE_SCOPE, "")
    if stated in ("GLOBAL", "CACHE_LOOKUP_SCOPE_GLOBAL", str(run_pb2.CACHE_LOOKUP_SCOPE_GLOBAL)):
        return id.org
    return f"{id.org}/{id.project}/{id.domain}"


class OutputCatalog:
    """Lookup and storing, for the engine."""

    def __init__(self, database: Database, storage: Storage, clock: Callable[[], dt.datetime]) -> None:
        self._database = database
        self._storage = storage
        self._clock = clock

    async def lookup(self, action: TaskAction, facts: TaskFacts, prefix: str) -> CatalogAnswer:
        """HIT when outputs of the key are there, young enough, and were copied below `prefix`."""
        if action.metadata.annotations.get(ANNOTATION_CACHE_OVERWRITE) == "true":
            return CatalogAnswer(CacheStatus.SKIPPED)
        scope, key = scope_of(action), action.spec.cache_key

        def find(connection: Connection) -> list[tuple[object, ...]]:
            return connection.query(
                "SELECT output_uri, report_uri, updated_at FROM cached_outputs WHERE scope = ? AND cache_key = ?",
                (scope, key),
            )

        try:
            rows = await self._database.read(find)
            if not rows:
                return CatalogAnswer(CacheStatus.MISS)
            output_uri, report_uri, updated_at = str(rows[0][0]), str(rows[0][1]), int(str(rows[0][2]))
            age = self._clock().timestamp() - updated_at / 1e6
            if facts.cache_max_age and age > facts.cache_max_age:
                return CatalogAnswer(CacheStatus.MISS)
            await self._storage.copy(output_uri + "/outputs.pb", prefix + "/outputs.pb")
        except ObjectMissing:
            return CatalogAnswer(CacheStatus.MISS)
        except Exception as error:
            log.warning("cache lookup failed", run=action.id.run, action=action.id.action, error=str(error))
            return CatalogAnswer(CacheStatus.LOOKUP_FAILURE)
        report = ""
        if report_uri:
            try:
                await self._storage.copy(report_uri, prefix + "/report.html")
                report = prefix + "/report.html"
            except ObjectMissing:
                pass
        return CatalogAnswer(CacheStatus.HIT, output_uri=prefix, report_uri=report)

    async def put(self, action: TaskAction, output_uri: str) -> CacheStatus:
        """Remember the outputs of a success; the newest execution of a key is the one that is kept."""
        scope, key = scope_of(action), action.spec.cache_key
        now = int(self._clock().timestamp() * 1e6)
        row = (scope, key, output_uri, output_uri + "/report.html", str(action.id), now)

        def store(connection: Connection) -> None:
            connection.execute(
                "INSERT INTO cached_outputs (scope, cache_key, output_uri, report_uri, source, updated_at) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (scope, cache_key) DO UPDATE SET "
                "output_uri = excluded.output_uri, report_uri = excluded.report_uri, source = excluded.source, "
                "updated_at = excluded.updated_at",
                row,
            )

        try:
            await self._database.write(store)
        except Exception as error:
            log.warning("cache write failed", run=action.id.run, action=action.id.action, error=str(error))
            return CacheStatus.PUT_FAILURE
        return CacheStatus.POPULATED
