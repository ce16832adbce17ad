"""Where an attempt's files go: the sharded output prefix, and the names of the files in it.

The algorithm is Flyte's (reference vectors are tests): two characters that spread keys over a bucket, from the
FNV-1a hash of `<namespace>/<object name>`, stand before the path of the run's output base. Flyte puts them right
after the bucket, or at the root of the file system for a bare local base. Here they go *below* the storage's own
root where the base is in it, so that no written path ever leaves it: a folder, or the one prefix of a bucket that is
ours. For a root that is a whole bucket, and for bases elsewhere, the result is Flyte's.
"""

from __future__ import annotations

import posixpath
import re
import string
from functools import lru_cache
from urllib.parse import quote, urlsplit

import msgspec

from wingbeat.resources import ActionId

_ALPHABET = string.ascii_lowercase + string.digits
_SHARDS = [a + b for a in _ALPHABET for b in _ALPHABET]
_GO_PATH_SAFE = "/$&+,:;=@"
"""Characters that Go's `net/url` leaves as they are when it prints a path."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class BadOutputBase(ValueError):
    """The run's output base cannot be used; the message names it and says why."""


class AttemptPaths(msgspec.Struct, frozen=True):
    """URIs of one attempt. Two attempts of one action never share a prefix."""

    prefix: str
    previous_checkpoint: str
    """Prefix of the checkpoint that the attempt before wrote; empty for the first attempt."""
    raw_data: str

    @property
    def outputs(self) -> str:
        return self.prefix + "/outputs.pb"

    @property
    def error(self) -> str:
        return self.prefix + "/error.pb"

    @property
    def report(self) -> str:
        return self.prefix + "/report.html"

    @property
    def checkpoint(self) -> str:
        return self.prefix + "/_flytecheckpoints"


def fnv1a_32(data: bytes) -> int:
    """The 32-bit FNV-1a hash (Go's `hash/fnv` New32a)."""
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def shard(namespace: str, object_name: str) -> str:
    """The two characters that spread the outputs of this object."""
    return _SHARDS[fnv1a_32(f"{namespace}/{object_name}".encode()) % len(_SHARDS)]


@lru_cache(maxsize=4096)
def output_prefix(base: str, *, namespace: str, object_name: str, action: str, attempt: int, root: str = "") -> str:
    """The output prefix of one attempt, without a trailing slash.

    `root` is the storage's base: bare local bases must lie in it, and the shard comes after it. Raises BadOutputBase
    for a base with a query or a fragment, for one that climbs (`..`), and for a local one outside the root: Flyte
    computes a useless path there.
    """
    two = shard(namespace, object_name)
    if _SCHEME.match(base):
        parts = urlsplit(base)
        if parts.query or parts.fragment or "?" in base or "#" in base:
            raise BadOutputBase(f"the output base {base!r} has a query or a fragment; use a plain prefix")
        if ".." in parts.path.split("/"):
            raise BadOutputBase(f"the output base {base!r} climbs with '..'; use a plain prefix")
        head = base[: base.index("://") + 3] + parts.netloc
        root = root.rstrip("/")
        if root.startswith(head + "/") and (base.rstrip("/") + "/").startswith(root + "/"):
            rest, head = base[len(root) :].strip("/"), root
        else:
            rest = parts.path.strip("/")
        path = "/".join([two, *([rest] if rest else []), action, str(attempt)])
        return head + "/" + quote(path, safe=_GO_PATH_SAFE)
    if not base.startswith("/"):
        raise BadOutputBase(f"the output base {base!r} is neither an absolute path nor a URI with a scheme")
    root = root.rstrip("/") or "/"
    clean = posixpath.normpath(base)
    if ".." in base.split("/") or not (clean == root or clean.startswith(root.rstrip("/") + "/")):
        raise BadOutputBase(f"the output base {base!r} is outside of the data folder {root}")
    rest = clean[len(root) :].strip("/")
    return "/".join([root.rstrip("/"), two, *([rest] if rest else []), action, str(attempt)])


def attempt_paths(
    id: ActionId, *, base: str, namespace: str, attempt: int, raw_data_prefix: str, root: str = ""
) -> AttemptPaths:
    """All URIs of attempt `attempt` (1-based). Raises BadOutputBase."""

    def prefix(number: int) -> str:
        return output_prefix(
            base,
            namespace=namespace,
            object_name=id.object_name,
            action=id.action,
            attempt=number,
            root=root,
        )

    raw = "/".join([raw_data_prefix.rstrip("/"), id.project, id.domain, id.run, id.action, str(attempt)])
    previous = prefix(attempt - 1) + "/_flytecheckpoints" if attempt > 1 else ""
    return AttemptPaths(prefix=prefix(attempt), previous_checkpoint=previous, raw_data=raw)
