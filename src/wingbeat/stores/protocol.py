"""What engine and control plane know of a store: Kubernetes semantics, whoever keeps the objects.

Rules every store follows, and one conformance suite checks:

- `resource_version` is one store-wide sequence in commit order. A write with a stale one is refused (Conflict).
- Status and the rest are written apart: `patch` never touches status, `patch_status` touches nothing else.
- `delete` of an object with finalizers sets `deletion_timestamp`; it is gone when the last finalizer is removed.
- When an object is gone, what it owns (owner references by uid) is deleted too.
- `watch` resumes from a resource version; one that is older than the change log is Expired: list again.
- A status write and the events and records that tell of it are one transaction (SQL), or the status itself carries
  the events until they are acknowledged (Kubernetes).
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from wingbeat.resources import ActionEvent, ActionId, ActionRecord, RunId, TaskAction, TaskActionStatus


class StoreError(Exception):
    """Base of what a store refuses."""


class NotFound(StoreError):
    """No such object (any more)."""


class AlreadyExists(StoreError):
    """An object of this identity is there. `existing` is it."""

    def __init__(self, existing: TaskAction) -> None:
        super().__init__(f"action {existing.id} already exists")
        self.existing = existing


class Conflict(StoreError):
    """The precondition (resource version or uid) does not hold: read again and decide again."""


class Expired(StoreError):
    """The change log no longer reaches back to that resource version: list again."""


class Unavailable(StoreError):
    """The store cannot serve now (disk full, database away); trying later may help."""


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """What to list or watch; all given parts must match."""

    labels: tuple[tuple[str, str], ...] = ()
    """Equality of labels."""
    has_labels: tuple[str, ...] = ()
    """Labels that must be there, whatever their value."""
    run: RunId | None = None
    parent: ActionId | None = None
    """Only direct children of this action."""
    owner_uid: str = ""


class ListPage(msgspec.Struct, frozen=True):
    items: list[TaskAction]
    resource_version: str
    """A watch from here sees every change after this listing. The same on all pages of one listing."""
    continue_token: str = ""
    """Empty on the last page."""


class WatchType(enum.StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class WatchEvent(msgspec.Struct, frozen=True):
    type: WatchType
    id: ActionId | None
    """None for a bookmark."""
    object: TaskAction | None
    """The object as of this change or later (changes may coalesce, the last is never lost). None when DELETED was
    read from the change log after the object was gone, and for bookmarks. Shared: do not change it."""
    resource_version: str


class MetadataPatch(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to metadata. A label or annotation mapped to None is removed."""

    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {}
    add_finalizers: tuple[str, ...] = ()
    remove_finalizers: tuple[str, ...] = ()


class Store(Protocol):
    """Where TaskActions live. Objects handed out are shared and must not be changed: copy first."""

    async def create(self, action: TaskAction, *, record: ActionRecord | None = None, spec: bytes = b"") -> TaskAction:
        """Store a new action, and with it, in the same transaction, its record and the serialized spec the record's
        `spec_digest` is then set from. Sets uid, resource version, creation timestamp and generation 1. The owner
        named in `owner_references` must exist, not be deleting and not have ended (NotFound, Conflict).
        Raises AlreadyExists (with the object that is there)."""

    async def get(self, id: ActionId) -> TaskAction:
        """The action now. Raises NotFound."""

    async def list(self, selector: Selector = ..., *, limit: int = 0, continue_token: str = "") -> ListPage:
        """Actions by identity order. `limit` 0 means all. Raises Expired for a continue token that is too old."""

    async def patch(self, id: ActionId, patch: MetadataPatch, *, resource_version: str = "") -> TaskAction:
        """Change metadata. Removing the last finalizer of a deleting object removes the object (returned as it was
        last). Raises NotFound, Conflict."""

    async def patch_status(
        self,
        id: ActionId,
        status: TaskActionStatus,
        *,
        resource_version: str,
        events: Sequence[ActionEvent] = (),
        wait_reason: str | None = None,
    ) -> TaskAction:
        """Replace the status if the object is still at `resource_version`, and apply `events` to the records in the
        same transaction. `wait_reason`, when not None, is written to the record. Raises NotFound, Conflict."""

    async def apply_events(self, events: Sequence[ActionEvent]) -> None:
        """Apply events to the records alone, e.g. ABORTED when the object is about to go."""

    async def delete(
        self, id: ActionId, *, uid: str = "", resource_version: str = "", annotations: dict[str, str] | None = None
    ) -> None:
        """Ask for deletion; `annotations` are written with the deletion timestamp (first request wins). An object
        without finalizers goes at once; the record of one that goes before its end becomes ABORTED in the same
        transaction. Raises NotFound, Conflict. Deleting what is already deleting is fine."""

    async def delete_run(self, run: RunId, *, annotations: dict[str, str] | None = None) -> int:
        """Ask for deletion of all actions of a run that are not terminal, in one transaction; returns how many."""

    def watch(self, resource_version: str, selector: Selector = ...) -> AsyncIterator[WatchEvent]:
        """Changes after `resource_version`, without end; at least one bookmark every 10 s of silence.
        Raises Expired. Closing the iterator frees what it holds."""
