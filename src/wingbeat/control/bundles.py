"""The code bundle that a task names, looked at before a run starts with it: it must be in the storage, be an archive,
and stay within the folder that the task unpacks it in. What a task would fail with after its start is so said at once.

This is no wall against malice (the code in a bundle runs as the server's user anyhow), but against accidents.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import posixpath
import shlex
import tarfile
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from wingbeat.control.blobs import bundle_uri
from wingbeat.control.errors import InvalidRequest, NotNow
from wingbeat.storage import ObjectMissing, OutsideStorage, Storage
from wingbeat.storage.transfer import reading

LOOK_SECONDS = 10.0
LOOK_BYTES = 2 << 30
"""Of the content of an archive, unpacked. What is behind these limits is not looked at."""
KEPT_ANSWERS = 1000

_GZIP = b"\x1f\x8b"
_BROKEN = (tarfile.TarError, EOFError, zlib.error, ValueError)

_ANEW = "Have it uploaded anew: run `flyte delete local-cache`, then submit (or deploy) it again"

Key = tuple[str, dt.datetime, int]
"""URI, time of the last change, size."""


class _Enough(Exception):
    """The time for looking is over."""


class _Reader:
    """The pieces of an object as a file that is read once."""

    def __init__(self, pieces: Iterator[bytes], until: float) -> None:
        self._pieces = pieces
        self._until = until
        self._piece = memoryview(b"")

    def read(self, size: int) -> bytes:
        if time.monotonic() > self._until:
            raise _Enough
        result = b""
        while len(result) < size:
            if not self._piece:
                self._piece = memoryview(next(self._pieces, b""))
                if not self._piece:
                    break
            wanted = size - len(result)
            result += self._piece[:wanted]
            self._piece = self._piece[wanted:]
        return result


class Bundles:
    """Checks bundles, each once: an object that has not changed has the same answer."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._answers: OrderedDict[Key, str] = OrderedDict()

    async def check(self, template: Any) -> None:
        """Raises NotNow when the bundle is not in this storage (clients remember for a day what they have uploaded),
        InvalidRequest for one that cannot be unpacked."""
        uri = bundle_uri(template)
        if not uri or "{{" in uri:
            return
        name = template.id.name
        try:
            found = await self._storage.head(uri)
        except (ObjectMissing, OutsideStorage):
            raise NotNow(
                f"the code of task {name} is not in this server's storage ({uri}): it was uploaded to another data "
                "folder, or before a reset. Run `flyte delete local-cache`, then submit (or deploy) it again"
            ) from None
        key = (uri, found.modified_at, found.size)
        problem = self._answers.get(key)
        if problem is None:
            look = _look_at_pickle if "--pkl" in template.container.args else _look_at_archive
            problem = await asyncio.to_thread(look, self._storage, uri)
            self._answers[key] = problem
            if len(self._answers) > KEPT_ANSWERS:
                self._answers.popitem(last=False)
        if problem:
            raise InvalidRequest(f"the code bundle of task {name} cannot be used: {uri} {problem}")


def _look_at_pickle(storage: Storage, uri: str) -> str:
    """What is wrong, in words; empty when nothing is seen. The pickle itself is the task's business."""
    with reading(storage, uri) as (_, pieces):
        head = b"".join(pieces(0, 2))
    if head == _GZIP:
        return ""
    return f"is not a gzip file. {_ANEW}"


def _look_at_archive(storage: Storage, uri: str) -> str:
    with reading(storage, uri) as (_, pieces):
        try:
            reader: Any = _Reader(pieces(0, -1), time.monotonic() + LOOK_SECONDS)
            with tarfile.open(fileobj=reader, mode="r|*") as archive:
                for member in archive:
                    if problem := escapes(member):
                        return f"{problem}. Look at it with: tar -tvf {shlex.quote(uri)}"
                    if member.offset > LOOK_BYTES:
                        break
        except _Enough:
            pass
        except _BROKEN as error:
            words = str(error).partition("\n")[0] or "it ends too early"
            return f"is not a tar archive ({words}). {_ANEW}"
    return ""


def escapes(member: tarfile.TarInfo) -> str:
    """How this member of an archive would get out of the folder in which it is unpacked; empty when it stays."""
    name = member.name[:200]
    if member.isdev():
        return f"holds {name!r}, which is a device or a pipe and no file"
    if _climbs(member.name):
        return f"holds {name!r}, which would be written outside of the task's folder"
    if member.issym() and _leads_out(member):
        return f"holds {name!r}, a link to {member.linkname[:200]!r}, which is outside of the task's folder"
    if member.islnk() and _climbs(member.linkname):
        return f"holds {name!r}, a hard link to {member.linkname[:200]!r}, which is outside of the task's folder"
    return ""


def _climbs(name: str) -> bool:
    return name.startswith("/") or ".." in name.split("/")


def _leads_out(member: tarfile.TarInfo) -> bool:
    """The target counts from where the link is. `..` behind a name may be anywhere, if that name is a link too."""
    target = member.linkname
    parts = [part for part in target.split("/") if part not in ("", ".")]
    climbing = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
    if target.startswith("/") or ".." in parts[climbing:]:
        return True
    return posixpath.normpath(posixpath.join(posixpath.dirname(member.name), target)).split("/")[0] == ".."
