"""Where blobs live (inputs, outputs, bundles, reports, raw data): one object store under one base URI.

A URI is a bare absolute path (the default: a folder) or `s3://bucket/key` and its like. `local:///abs/path` and
`file:///abs/path` are read as the bare path. Why bare paths: docs/decisions/0003-raw-data.md.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Protocol

import msgspec


class ObjectInfo(msgspec.Struct, frozen=True):
    size: int
    """Bytes."""
    modified_at: dt.datetime


class ObjectMissing(Exception):
    """Nothing is stored there."""


class OutsideStorage(Exception):
    """The URI is not below a base this server serves: never read, never written."""


class StorageUnavailable(Exception):
    """The storage cannot be used now; the message says why and what to do."""


class StorageUnusable(StorageUnavailable):
    """The set-up of the storage is wrong; found out before anything is done with it."""

    def __init__(self, storage: str, message: str) -> None:
        super().__init__(message)
        self.storage = storage
        """Its base URI."""


def unreachable(uri: str, error: Exception) -> StorageUnavailable:
    """What a failed request to an object store is to whoever asked for `uri`, with the store's own answer: it says
    whether the key, the bucket or the network is at fault."""
    return StorageUnavailable(f"{uri} cannot be reached now: {answer_of(error)}")


def answer_of(error: Exception) -> str:
    """What an object store said, in one line. S3 answers in XML, with much around the two parts that help."""
    text = " ".join(str(error).split("\n\n")[0].split()) or repr(error)
    parts = [found.group(1) for tag in ("Code", "Message") if (found := re.search(f"<{tag}>([^<]+)</{tag}>", text))]
    return ": ".join(parts) if parts else text[:400]


class StorageFull(StorageUnavailable):
    """No space is left (or the quota is used up); what was being written is not there."""


ELSEWHERE = "the only place that is served. Have another one served with: wingbeat up --storage URI"
"""What OutsideStorage says after the place that is."""


class Storage(Protocol):
    base_uri: str
    """Everything of ours is below it; no trailing slash."""
    raw_data_prefix: str
    """Default prefix for raw data of runs."""

    async def check(self) -> None:
        """Whether it can be used as it is set up. Raises StorageUnavailable, which says why not."""

    def join(self, *parts: str) -> str:
        """A URI below the base; each part is one path element or more, `..` and empty elements are refused
        (OutsideStorage)."""

    async def get(self, uri: str, *, limit: int = 0) -> bytes:
        """The whole object. Raises ObjectMissing, OutsideStorage; ValueError past `limit` bytes (0: no limit)."""

    async def put(self, uri: str, data: bytes) -> None:
        """Write the whole object, atomically and durably."""

    async def head(self, uri: str) -> ObjectInfo:
        """Raises ObjectMissing."""

    async def copy(self, source: str, target: str) -> None:
        """Raises ObjectMissing; the target is replaced atomically."""

    async def list(self, prefix: str) -> list[str]:
        """The URIs of all objects in the folder `prefix` and below it, sorted; empty where there is none."""

    async def delete_prefix(self, prefix: str) -> int:
        """Remove the object `prefix` or all objects below it; the number removed. The base itself is refused."""
