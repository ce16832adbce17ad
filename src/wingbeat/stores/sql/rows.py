"""TaskActions as rows of table `taskactions`: three msgpack parts, so that a status write touches only the status.

The task template is kept once, by digest; objects share its bytes.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock
from typing import Any

import msgspec

from wingbeat.database import Connection, get_blob
from wingbeat.resources import ActionId, ObjectMeta, TaskAction, TaskActionSpec, TaskActionStatus
from wingbeat.resources.taskaction import LABEL_COMPLETED_TIME, LABEL_IS_ROOT, LABEL_TERMINATION_STATUS
from wingbeat.stores.selection import owner_uid_of

KEY = "org = ? AND project = ? AND domain = ? AND run = ? AND name = ?"
COLUMNS = "org, project, domain, run, name, created_revision, resource_version, template_digest, metadata, spec, status"
"""What `Rows.decode` reads."""

LABEL_COLUMNS = {
    LABEL_IS_ROOT: "is_root",
    LABEL_TERMINATION_STATUS: "termination_status",
    LABEL_COMPLETED_TIME: "completed_time",
}
"""Labels that have a column of their own, for selection."""

_INSERT = (
    "INSERT INTO taskactions (org, project, domain, run, name, uid, parent, owner_uid, resource_version, "
    "created_revision, deleting, terminal, is_root, termination_status, completed_time, template_digest, metadata, "
    "spec, status) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_UPDATE_METADATA = (
    "UPDATE taskactions SET resource_version = ?, deleting = ?, is_root = ?, termination_status = ?, "
    f"completed_time = ?, metadata = ? WHERE {KEY}"
)

_encode = msgspec.msgpack.Encoder().encode
_decode_metadata = msgspec.msgpack.Decoder(ObjectMeta).decode
_decode_spec = msgspec.msgpack.Decoder(TaskActionSpec).decode
_decode_status = msgspec.msgpack.Decoder(TaskActionStatus).decode
_labels = msgspec.msgpack.Decoder(dict[str, str])

Key = tuple[str, str, str, str, str]


def key(id: ActionId) -> Key:
    return (id.org, id.project, id.domain, id.run, id.action)


def encode_status(status: TaskActionStatus) -> bytes:
    return _encode(status)


def decode_status(data: bytes) -> TaskActionStatus:
    return _decode_status(data)


def encode_labels(labels: dict[str, str]) -> bytes:
    return _encode(labels)


def decode_labels(data: bytes) -> dict[str, str]:
    return _labels.decode(data)


class Row(msgspec.Struct, frozen=True):
    """An object, and what its row says besides."""

    object: TaskAction
    status: bytes
    """The encoded status."""
    created_revision: int

    @property
    def revision(self) -> int:
        return int(self.object.metadata.resource_version)


class Rows:
    """Reads and writes rows. Safe to use from several threads."""

    def __init__(self, templates: int = 512) -> None:
        self._templates: OrderedDict[str, bytes] = OrderedDict()
        self._limit = templates
        self._lock = Lock()

    def read(self, c: Connection, id: ActionId) -> Row | None:
        rows = c.query(f"SELECT {COLUMNS} FROM taskactions WHERE {KEY}", key(id))
        return self.decode(c, rows[0]) if rows else None

    def decode(self, c: Connection, row: tuple[Any, ...]) -> Row:
        metadata = _decode_metadata(row[8])
        metadata.resource_version = str(row[6])
        spec = _decode_spec(row[9])
        if row[7]:
            spec.task_template = self._template(c, row[7])
        return Row(TaskAction(metadata=metadata, spec=spec, status=_decode_status(row[10])), row[10], row[5])

    def insert(self, c: Connection, id: ActionId, action: TaskAction, revision: int) -> Row | None:
        """Store a new object (whose metadata is complete but for the resource version); None if there is one."""
        metadata = msgspec.structs.replace(action.metadata, resource_version="")
        template = action.spec.task_template
        spec = _encode(msgspec.structs.replace(action.spec, task_template=b"") if template else action.spec)
        status = _encode(action.status)
        encoded = _encode(metadata)
        digest = hashlib.sha256(template).hexdigest() if template else ""
        inserted = c.execute(
            _INSERT,
            (
                *key(id),
                metadata.uid,
                action.spec.parent_action_name,
                owner_uid_of(action),
                revision,
                revision,
                int(metadata.deletion_timestamp is not None),
                int(action.terminal),
                *(metadata.labels.get(label) for label in LABEL_COLUMNS),
                digest,
                encoded,
                spec,
                status,
            ),
        )
        if not inserted:
            return None
        if template:
            c.execute("INSERT INTO blobs (digest, data) VALUES (?, ?) ON CONFLICT DO NOTHING", (digest, template))
        # Decoded anew: the caller goes on with its own objects, ours are shared and must not change.
        own = self._shared(digest, template) if template else b""
        result = TaskAction(metadata=_decode_metadata(encoded), spec=_decode_spec(spec), status=_decode_status(status))
        result.metadata.resource_version = str(revision)
        result.spec.task_template = own
        return Row(result, status, revision)

    def update_metadata(self, c: Connection, id: ActionId, metadata: ObjectMeta, revision: int) -> None:
        metadata.resource_version = ""
        encoded = _encode(metadata)
        metadata.resource_version = str(revision)
        c.execute(
            _UPDATE_METADATA,
            (
                revision,
                int(metadata.deletion_timestamp is not None),
                *(metadata.labels.get(label) for label in LABEL_COLUMNS),
                encoded,
                *key(id),
            ),
        )

    def _template(self, c: Connection, digest: str) -> bytes:
        with self._lock:
            known = self._templates.get(digest)
            if known is not None:
                self._templates.move_to_end(digest)
                return known
        data = get_blob(c, digest)
        if data is None:
            raise LookupError(f"the task template {digest} is missing from the database")
        return self._shared(digest, data)

    def _shared(self, digest: str, data: bytes) -> bytes:
        """The one bytes object that stands for `digest`."""
        with self._lock:
            known = self._templates.setdefault(digest, data)
            self._templates.move_to_end(digest)
            if len(self._templates) > self._limit:
                self._templates.popitem(last=False)
            return known
