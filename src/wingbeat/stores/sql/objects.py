"""What the store does, as plain functions of a connection: one call is one part of a transaction.

Nothing here knows of event loops. Every change is notified as a `Change` on topic `taskactions`.
"""

from __future__ import annotations

import copy
import datetime as dt
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from wingbeat.database import Connection, apply_events, insert_record, set_wait_reason
from wingbeat.resources import (
    ActionEvent,
    ActionId,
    ActionPhase,
    ActionRecord,
    ObjectMeta,
    RunId,
    TaskAction,
    TaskActionStatus,
)
from wingbeat.resources.taskaction import ANNOTATION_ABORT_REASON, ANNOTATION_ABORTED_BY
from wingbeat.stores.protocol import AlreadyExists, Conflict, MetadataPatch, NotFound, WatchType
from wingbeat.stores.selection import owner_uid_of
from wingbeat.stores.sql.rows import COLUMNS, KEY, Row, Rows, decode_status, encode_labels, encode_status, key

TOPIC = "taskactions"

_INHERITED = (ANNOTATION_ABORT_REASON, ANNOTATION_ABORTED_BY)
"""Annotations that a cascade hands down, so that what is aborted with its parent can say why."""

_UPDATE_STATUS = f"UPDATE taskactions SET status = ?, terminal = ?, resource_version = ? WHERE {KEY}"
_UPDATE_STATUS_IF = _UPDATE_STATUS + " AND resource_version = ?"


class Change(msgspec.Struct, frozen=True):
    """One committed change of one object."""

    type: WatchType
    id: ActionId
    row: Row
    """As of this change; for DELETED as it was last, at the revision of the deletion."""
    revision: int
    previous_labels: dict[str, str] | None
    """None for a new object."""


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Objects:
    """TaskActions in a database, and a cache of those that were written last."""

    def __init__(
        self, *, now: Callable[[], dt.datetime] = _now, tombstones: int = 200_000, cached_objects: int = 4096
    ) -> None:
        self.rows = Rows()
        self._now = now
        self._tombstones = tombstones
        self._since_trim = 0
        self._cache: dict[ActionId, Row] = {}
        self._cached = cached_objects

    # --- cache. Written on the event loop once a change is committed; read by the writer.

    def remember(self, change: Change) -> None:
        cache = self._cache
        cache.pop(change.id, None)
        if change.type is WatchType.DELETED:
            return
        cache[change.id] = change.row
        if len(cache) > self._cached:
            del cache[next(iter(cache))]

    # --- operations

    def create(self, c: Connection, action: TaskAction, record: ActionRecord | None, spec: bytes) -> TaskAction:
        id = action.id
        for owner in action.metadata.owner_references:
            found = c.query("SELECT deleting, terminal FROM taskactions WHERE uid = ?", (owner.uid,))
            if not found:
                raise NotFound(f"action {id} cannot be created: its owner {owner.name} is gone")
            if found[0][0]:
                raise Conflict(f"action {id} cannot be created: its owner {owner.name} is being deleted")
            if found[0][1]:
                # Its children have been stopped, and nobody would stop this one.
                raise Conflict(f"action {id} cannot be created: its owner {owner.name} has ended")
        given = action.metadata
        metadata = msgspec.structs.replace(
            given,
            name=given.name or id.object_name,
            uid=str(uuid.uuid4()),
            generation=1,
            creation_timestamp=self._now(),
            deletion_timestamp=None,
        )
        revision = c.next_revision()
        row = self.rows.insert(c, id, msgspec.structs.replace(action, metadata=metadata), revision)
        if row is None:
            existing = self.rows.read(c, id)
            if existing is None:
                raise Conflict(f"action {id} cannot be created: try again")
            raise AlreadyExists(existing.object)
        if record is not None:
            insert_record(c, record, spec)
        c.notify(TOPIC, Change(WatchType.ADDED, id, row, revision, None))
        return row.object

    def get(self, c: Connection, id: ActionId) -> TaskAction:
        return self._load(c, id).object

    def patch(self, c: Connection, id: ActionId, patch: MetadataPatch, resource_version: str) -> TaskAction:
        row = self._load(c, id)
        _check(row, resource_version=resource_version)
        old = row.object.metadata
        metadata = _patched(id, old, patch)
        if metadata == old:
            return row.object
        if metadata.deletion_timestamp is not None and not metadata.finalizers:
            return self._remove(c, id, row, metadata)
        return self._write_metadata(c, id, row, metadata).object

    def patch_status(
        self,
        c: Connection,
        id: ActionId,
        status: bytes,
        terminal: bool,
        resource_version: str,
        events: Sequence[ActionEvent],
        wait_reason: str | None,
    ) -> TaskAction:
        """`status` encoded, by the caller, in its own time."""
        row = self._cache.get(id)
        written = 0
        revision = 0
        if row is not None and row.object.metadata.resource_version == resource_version and row.status != status:
            revision = c.next_revision()
            written = c.execute(_UPDATE_STATUS_IF, (status, int(terminal), revision, *key(id), int(resource_version)))
        if not written:
            row = self._load(c, id)
            _check(row, resource_version=resource_version)
            if row.status != status:
                revision = c.next_revision()
                written = c.execute(_UPDATE_STATUS, (status, int(terminal), revision, *key(id)))
        assert row is not None
        if events:
            apply_events(c, events, wait_reason=wait_reason)
        if wait_reason is not None and (not events or events[-1].id != id):
            set_wait_reason(c, id, wait_reason)
        if not written:
            return row.object
        old = row.object
        changed = TaskAction(
            metadata=msgspec.structs.replace(old.metadata, resource_version=str(revision)),
            spec=old.spec,
            status=decode_status(status),
        )
        new = Row(changed, status, row.created_revision)
        c.notify(TOPIC, Change(WatchType.MODIFIED, id, new, revision, old.metadata.labels))
        return changed

    def delete(
        self, c: Connection, id: ActionId, uid: str, resource_version: str, annotations: dict[str, str] | None
    ) -> None:
        row = self._load(c, id)
        _check(row, uid=uid, resource_version=resource_version)
        self._request_deletion(c, id, row, annotations or {})

    def delete_run(self, c: Connection, run: RunId, annotations: dict[str, str] | None) -> int:
        names = c.query(
            "SELECT name FROM taskactions WHERE org = ? AND project = ? AND domain = ? AND run = ? "
            "AND terminal = 0 AND deleting = 0",
            (run.org, run.project, run.domain, run.run),
        )
        for (name,) in names:
            id = run.action(name)
            row = self.rows.read(c, id)
            if row is not None:  # else it went with its owner
                self._request_deletion(c, id, row, annotations or {})
        return len(names)

    # --- parts

    def _load(self, c: Connection, id: ActionId) -> Row:
        cached = self._cache.get(id)
        if cached is not None:
            found = c.query(f"SELECT resource_version FROM taskactions WHERE {KEY}", key(id))
            if found and found[0][0] == cached.revision:
                return cached
        row = self.rows.read(c, id)
        if row is None:
            raise NotFound(f"there is no action {id}")
        return row

    def _write_metadata(self, c: Connection, id: ActionId, row: Row, metadata: ObjectMeta) -> Row:
        """Store `metadata`, which must be a copy, and tell of it."""
        revision = c.next_revision()
        self.rows.update_metadata(c, id, metadata, revision)
        changed = TaskAction(metadata=metadata, spec=row.object.spec, status=row.object.status)
        new = Row(changed, row.status, row.created_revision)
        c.notify(TOPIC, Change(WatchType.MODIFIED, id, new, revision, row.object.metadata.labels))
        return new

    def _request_deletion(self, c: Connection, id: ActionId, row: Row, annotations: dict[str, str]) -> None:
        old = row.object.metadata
        if old.deletion_timestamp is not None:
            return
        metadata = copy.copy(old)
        if annotations:
            metadata.annotations = {**old.annotations, **annotations}
        if not old.finalizers:
            self._remove(c, id, row, metadata)
            return
        metadata.deletion_timestamp = self._now()
        metadata.generation = old.generation + 1
        self._write_metadata(c, id, row, metadata)

    def _remove(self, c: Connection, id: ActionId, row: Row, metadata: ObjectMeta) -> TaskAction:
        """Take the object away, ask for the deletion of what it owns, and end the records of what goes before its
        end (nobody looked after it yet, or its controller has told of the end already), in the same transaction."""
        removed: TaskAction | None = None
        queue: list[tuple[ActionId, Row, ObjectMeta]] = [(id, row, metadata)]
        while queue:
            id, row, metadata = queue.pop()
            gone = self._remove_one(c, id, row, metadata)
            removed = removed or gone
            inherited = {a: v for a in _INHERITED if (v := metadata.annotations.get(a))}
            owned = c.query(f"SELECT {COLUMNS} FROM taskactions WHERE owner_uid = ? AND deleting = 0", (metadata.uid,))
            for columns in owned:
                child = self.rows.decode(c, columns)
                if child.object.metadata.finalizers:
                    self._request_deletion(c, child.object.id, child, inherited)
                else:
                    own = copy.copy(child.object.metadata)
                    own.annotations = {**own.annotations, **inherited}
                    queue.append((child.object.id, child, own))
        assert removed is not None
        return removed

    def _remove_one(self, c: Connection, id: ActionId, row: Row, metadata: ObjectMeta) -> TaskAction:
        revision = c.next_revision()
        c.execute(f"DELETE FROM taskactions WHERE {KEY}", key(id))
        c.execute(
            "INSERT INTO taskaction_tombstones (revision, org, project, domain, run, name, parent, owner_uid, labels) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                revision,
                *key(id),
                row.object.spec.parent_action_name,
                owner_uid_of(row.object),
                encode_labels(metadata.labels),
            ),
        )
        last = TaskAction(
            metadata=msgspec.structs.replace(metadata, resource_version=str(revision)),
            spec=row.object.spec,
            status=row.object.status,
        )
        if not row.object.terminal:
            apply_events(c, [_aborted(id, last, self._now())])
        change = Change(
            WatchType.DELETED, id, Row(last, row.status, row.created_revision), revision, row.object.metadata.labels
        )
        c.notify(TOPIC, change)
        self._trim(c)
        return last

    def _trim(self, c: Connection) -> None:
        """Forget the oldest deletions, a batch at a time; who resumes from before them must list again."""
        self._since_trim += 1
        if self._since_trim < max(1, self._tombstones // 20):
            return
        self._since_trim = 0
        oldest = c.query(
            "SELECT revision FROM taskaction_tombstones ORDER BY revision DESC LIMIT 1 OFFSET ?", (self._tombstones,)
        )
        if oldest:
            c.execute("DELETE FROM taskaction_tombstones WHERE revision <= ?", oldest[0])
            c.execute("UPDATE taskaction_log SET floor = ? WHERE id = 1", oldest[0])


def _aborted(id: ActionId, action: TaskAction, now: dt.datetime) -> ActionEvent:
    notes = action.metadata.annotations
    return ActionEvent(
        id=id,
        attempt=action.attempt,
        phase=ActionPhase.ABORTED,
        occurred_at=now,
        abort_reason=notes.get(ANNOTATION_ABORT_REASON, "") or "aborted",
        aborted_by=notes.get(ANNOTATION_ABORTED_BY, ""),
    )


def _check(row: Row, *, uid: str = "", resource_version: str = "") -> None:
    metadata = row.object.metadata
    if resource_version and resource_version != metadata.resource_version:
        raise Conflict(
            f"action {row.object.id} is at version {metadata.resource_version}, not {resource_version}: read it again"
        )
    if uid and uid != metadata.uid:
        raise Conflict(f"action {row.object.id} was deleted and made anew: its uid is {metadata.uid}, not {uid}")


def _patched(id: ActionId, old: ObjectMeta, patch: MetadataPatch) -> ObjectMeta:
    metadata = copy.copy(old)
    if patch.labels:
        metadata.labels = _merged(old.labels, patch.labels)
    if patch.annotations:
        metadata.annotations = _merged(old.annotations, patch.annotations)
    if patch.add_finalizers or patch.remove_finalizers:
        new = [f for f in patch.add_finalizers if f not in old.finalizers]
        if new and old.deletion_timestamp is not None:
            raise Conflict(f"action {id} is being deleted: finalizer {new[0]} cannot be added any more")
        kept = (*old.finalizers, *dict.fromkeys(new))
        metadata.finalizers = [f for f in kept if f not in patch.remove_finalizers]
    return metadata


def _merged(old: dict[str, str], changes: dict[str, Any]) -> dict[str, str]:
    result = dict(old)
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = value
    return result


def encode_for_patch(status: TaskActionStatus) -> tuple[bytes, bool]:
    """The arguments of `patch_status` that can be made before the transaction."""
    return encode_status(status), any(
        s.status == "True" and s.type in ("Succeeded", "Failed") for s in status.conditions
    )
