"""Records of actions: what every reader looks at, kept by applying events (rules: `projection`).

Two layers: functions that take a `Connection`, for those who write records together with something else in one
transaction, and `Records` for everyone else. Every change notifies topic `records` with the `ActionId`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from wingbeat.database import queries
from wingbeat.database.errors import RecordNotFound
from wingbeat.database.projection import (
    ActionState,
    AttemptState,
    apply_to_action,
    apply_to_attempt,
    decode_attempt,
    encode_attempt,
    to_record,
)
from wingbeat.database.protocol import Connection, Database
from wingbeat.database.queries import Order, RecordQuery
from wingbeat.database.times import from_micros, optional_micros, optional_time, to_micros
from wingbeat.resources import (
    TERMINAL_PHASES,
    ActionEvent,
    ActionId,
    ActionPhase,
    ActionRecord,
    ActionType,
    AttemptRecord,
    CacheStatus,
    ErrorInfo,
    RunId,
    TaskId,
)

TOPIC = "records"

_KEY = "org = ? AND project = ? AND domain = ? AND run = ? AND name = ?"
_COLUMNS = (
    "org, project, domain, run, name, parent, group_name, action_type, phase, attempts, cache_status, created_at, "
    "started_at, ended_at, updated_at, spec_digest, task_org, task_project, task_domain, task_name, task_version, "
    "task_type, display_name, environment, input_uri, run_output_base, output_uri, error, abort_reason, aborted_by, "
    "value, signalled_by, wait_reason, run_spec, labels, created_by, source, trigger_name, trigger_revision, "
    "recovered_from, revision"
)
_MARKS = ", ".join("?" * (_COLUMNS.count(",") + 1))
_INSERT = f"INSERT INTO actions ({_COLUMNS}) VALUES ({_MARKS}) ON CONFLICT DO NOTHING"
_STATE = (
    "phase, attempts, cache_status, started_at, ended_at, updated_at, output_uri, error, abort_reason, aborted_by, "
    "value, signalled_by, wait_reason"
)
_SELECT_STATE = f"SELECT {_STATE} FROM actions WHERE {_KEY}"
_UPDATE_STATE = f"UPDATE actions SET {_STATE.replace(',', ' = ?,')} = ?, revision = ? WHERE {_KEY}"
_SELECT_ATTEMPT = f"SELECT body FROM attempts WHERE {_KEY} AND attempt = ?"
_UPSERT_ATTEMPT = (
    "INSERT INTO attempts (org, project, domain, run, name, attempt, body) VALUES (?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (org, project, domain, run, name, attempt) DO UPDATE SET body = excluded.body"
)
_TERMINAL = ", ".join(str(int(p)) for p in sorted(TERMINAL_PHASES))

_error = msgspec.json.Decoder(ErrorInfo)
_labels = msgspec.json.Decoder(dict[str, str])
_json = msgspec.json.Encoder()

Key = tuple[str, str, str, str, str]


def key(id: ActionId) -> Key:
    return (id.org, id.project, id.domain, id.run, id.action)


# --- functions on a connection


def put_blob(c: Connection, data: bytes) -> str:
    """Keep `data`; returns the hex SHA-256 to get it back by. The same bytes are kept once."""
    digest = hashlib.sha256(data).hexdigest()
    c.execute("INSERT INTO blobs (digest, data) VALUES (?, ?) ON CONFLICT DO NOTHING", (digest, data))
    return digest


def get_blob(c: Connection, digest: str) -> bytes | None:
    rows = c.query("SELECT data FROM blobs WHERE digest = ?", (digest,))
    return bytes(rows[0][0]) if rows else None


def get_record(c: Connection, id: ActionId) -> ActionRecord | None:
    rows = c.query(f"SELECT {_COLUMNS} FROM actions WHERE {_KEY}", key(id))
    return _record(rows[0]) if rows else None


def insert_record(c: Connection, record: ActionRecord, spec: bytes = b"") -> bool:
    """Insert unless there is one already; True if inserted. With `spec`, `spec_digest` is set from it."""
    digest = put_blob(c, spec) if spec else record.spec_digest
    task = record.task
    id = key(record.id)
    inserted = c.execute(
        _INSERT,
        (
            *id,
            record.parent,
            record.group,
            int(record.action_type),
            int(record.phase),
            record.attempts,
            int(record.cache_status),
            to_micros(record.created_at),
            optional_micros(record.started_at),
            optional_micros(record.ended_at),
            optional_micros(record.updated_at),
            digest,
            *((None,) * 5 if task is None else (task.org, task.project, task.domain, task.name, task.version)),
            record.task_type,
            record.name,
            record.environment,
            record.input_uri,
            record.run_output_base,
            record.output_uri,
            None if record.error is None else _json.encode(record.error),
            record.abort_reason,
            record.aborted_by,
            record.value,
            record.signalled_by,
            record.wait_reason,
            record.run_spec,
            _json.encode(record.labels) if record.labels else None,
            record.created_by,
            record.source,
            record.trigger_name,
            record.trigger_revision,
            record.recovered_from,
            c.next_revision(),
        ),
    )
    if not inserted:
        return False
    if record.labels:
        c.executemany(
            "INSERT INTO action_labels (org, project, domain, run, name, label, value) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(*id, label, value) for label, value in record.labels.items()],
        )
    c.notify(TOPIC, record.id)
    return True


def apply_events(c: Connection, events: Sequence[ActionEvent], *, wait_reason: str | None = None) -> None:
    """Apply events, in order. Those of actions without a record are dropped: the record was never made, or removed.
    `wait_reason`, when given, is written last to the action of the last event."""
    for index, event in enumerate(events):
        _apply(c, event, wait_reason if index == len(events) - 1 else None)


def _apply(c: Connection, event: ActionEvent, wait_reason: str | None) -> None:
    id = key(event.id)
    rows = c.query(_SELECT_STATE, id)
    if not rows:
        return
    before = rows[0]
    action = ActionState(*before)
    bodies = c.query(_SELECT_ATTEMPT, (*id, event.attempt))
    attempt = decode_attempt(bodies[0][0]) if bodies else AttemptState()
    changed = apply_to_attempt(attempt, event)
    if changed:
        c.execute(_UPSERT_ATTEMPT, (*id, event.attempt, encode_attempt(attempt)))
        apply_to_action(action, attempt, event)
    if wait_reason is not None and action.phase not in TERMINAL_PHASES:
        action.wait_reason = wait_reason
    after = msgspec.structs.astuple(action)
    if changed or after != before:
        c.execute(_UPDATE_STATE, (*after, c.next_revision(), *id))
        c.notify(TOPIC, event.id)


def set_wait_reason(c: Connection, id: ActionId, reason: str) -> None:
    """Say why the action waits ("": it does not). Nothing happens to a terminal one."""
    changed = c.execute(
        f"UPDATE actions SET wait_reason = ?, revision = ? WHERE {_KEY} AND phase NOT IN ({_TERMINAL}) "
        "AND wait_reason <> ?",
        (reason, c.next_revision(), *key(id), reason),
    )
    if changed:
        c.notify(TOPIC, id)


def set_abort(c: Connection, target: ActionId | RunId, reason: str, by: str) -> int:
    """Note that the action, or every action of the run, was asked to stop. The first request wins and what is
    terminal is left alone. Returns how many records changed."""
    scope = "org = ? AND project = ? AND domain = ? AND run = ?"
    params: list[Any] = [target.org, target.project, target.domain, target.run]
    if isinstance(target, ActionId):
        scope += " AND name = ?"
        params.append(target.action)
    rows = c.query(
        f"UPDATE actions SET abort_reason = ?, aborted_by = ?, revision = ? WHERE {scope} "
        f"AND phase NOT IN ({_TERMINAL}) AND abort_reason = '' RETURNING org, project, domain, run, name",
        (reason, by, c.next_revision(), *params),
    )
    for row in rows:
        c.notify(TOPIC, ActionId(*row))
    return len(rows)


def list_attempts(c: Connection, id: ActionId) -> list[AttemptRecord]:
    rows = c.query(f"SELECT attempt, body FROM attempts WHERE {_KEY} ORDER BY attempt", key(id))
    return [to_record(attempt, decode_attempt(body)) for attempt, body in rows]


def list_records(c: Connection, query: RecordQuery) -> list[ActionRecord]:
    condition, params = queries.where(query)
    sql = f"SELECT {_COLUMNS} FROM actions WHERE {condition} ORDER BY {queries.order(query)}"
    if query.limit or query.offset:
        sql += " LIMIT ? OFFSET ?"
        params.extend((query.limit or 2**62, query.offset))
    return [_record(row) for row in c.query(sql, params)]


def _record(row: tuple[Any, ...]) -> ActionRecord:
    task = None if row[19] is None else TaskId(*row[16:21])
    return ActionRecord(
        id=ActionId(*row[:5]),
        parent=row[5],
        group=row[6],
        action_type=ActionType(row[7]),
        phase=ActionPhase(row[8]),
        attempts=row[9],
        cache_status=CacheStatus(row[10]),
        created_at=from_micros(row[11]),
        started_at=optional_time(row[12]),
        ended_at=optional_time(row[13]),
        updated_at=optional_time(row[14]),
        spec_digest=row[15],
        task=task,
        task_type=row[21],
        name=row[22],
        environment=row[23],
        input_uri=row[24],
        run_output_base=row[25],
        output_uri=row[26],
        error=None if row[27] is None else _error.decode(row[27]),
        abort_reason=row[28],
        aborted_by=row[29],
        value=row[30],
        signalled_by=row[31],
        wait_reason=row[32],
        run_spec=row[33],
        labels={} if row[34] is None else _labels.decode(row[34]),
        created_by=row[35],
        source=row[36],
        trigger_name=row[37],
        trigger_revision=row[38],
        recovered_from=row[39],
        revision=row[40],
    )


# --- for everyone else


class Records:
    """Records of one database. All methods may raise DatabaseUnavailable."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def get(self, id: ActionId) -> ActionRecord:
        """Raises RecordNotFound."""
        record = await self._db.read(lambda c: get_record(c, id))
        if record is None:
            raise RecordNotFound(f"there is no action {id}")
        return record

    async def attempts(self, id: ActionId) -> list[AttemptRecord]:
        """By attempt number; empty before the first event, and for an unknown action."""
        return await self._db.read(lambda c: list_attempts(c, id))

    async def insert(self, record: ActionRecord, spec: bytes = b"") -> tuple[ActionRecord, bool]:
        """Insert, or find the one that is there; and whether it was inserted."""

        def job(c: Connection) -> tuple[ActionRecord, bool]:
            created = insert_record(c, record, spec)
            stored = get_record(c, record.id)
            assert stored is not None
            return stored, created

        return await self._db.write(job)

    async def children(self, parent: ActionId) -> list[ActionRecord]:
        """Direct children, oldest first."""
        query = RecordQuery(
            org=parent.org,
            project=parent.project,
            domain=parent.domain,
            run=parent.run,
            parent=parent.action,
            order_by=(Order("created_at", False),),
            limit=0,
        )
        return await self.list(query)

    async def list(self, query: RecordQuery) -> list[ActionRecord]:
        """Raises BadQuery."""
        return await self._db.read(lambda c: list_records(c, query))

    async def count(self, query: RecordQuery) -> int:
        """How many records there are, whatever limit and offset say. Raises BadQuery."""
        condition, params = queries.where(query)
        rows = await self._db.read(lambda c: c.query(f"SELECT COUNT(*) FROM actions WHERE {condition}", params))
        return int(rows[0][0])

    async def phase_counts(self, query: RecordQuery) -> dict[ActionPhase, int]:
        """How many of the records are in each phase, whatever limit and offset say. Raises BadQuery."""
        condition, params = queries.where(query)
        sql = f"SELECT phase, COUNT(*) FROM actions WHERE {condition} GROUP BY phase ORDER BY phase"
        return {ActionPhase(phase): count for phase, count in await self._db.read(lambda c: c.query(sql, params))}

    async def children_phase_counts(self, run: RunId) -> dict[str, dict[ActionPhase, int]]:
        """For each action of the run that has children: how many of them are in each phase."""
        sql = (
            "SELECT parent, phase, COUNT(*) FROM actions WHERE org = ? AND project = ? AND domain = ? AND run = ? "
            "AND parent <> '' GROUP BY parent, phase ORDER BY parent, phase"
        )
        params = (run.org, run.project, run.domain, run.run)
        result: dict[str, dict[ActionPhase, int]] = {}
        for parent, phase, count in await self._db.read(lambda c: c.query(sql, params)):
            result.setdefault(parent, {})[ActionPhase(phase)] = count
        return result

    async def blob(self, digest: str) -> bytes:
        """Raises RecordNotFound."""
        data = await self._db.read(lambda c: get_blob(c, digest))
        if data is None:
            raise RecordNotFound(f"there are no bytes with digest {digest or '(empty)'}")
        return data

    async def put_blob(self, data: bytes) -> str:
        return await self._db.write(lambda c: put_blob(c, data))

    async def apply(self, events: Sequence[ActionEvent]) -> None:
        """Apply events in order; see `projection` for the rules."""
        await self._db.write(lambda c: apply_events(c, events))

    async def set_abort(self, target: ActionId | RunId, reason: str, by: str) -> int:
        return await self._db.write(lambda c: set_abort(c, target, reason, by))

    async def set_wait_reason(self, id: ActionId, reason: str) -> None:
        await self._db.write(lambda c: set_wait_reason(c, id, reason))
