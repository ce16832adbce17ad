"""An object store of a cloud (or one like it) as storage, through obstore. Endpoint and keys come from the environment
(see `access.py`), or from `config`."""

from __future__ import annotations

import datetime as dt
import os
import re
from typing import Any

import obstore
from obstore.exceptions import BaseError, NotFoundError

from wingbeat.storage.access import access_variables, store_config
from wingbeat.storage.names import checked_elements
from wingbeat.storage.protocol import (
    ELSEWHERE,
    ObjectInfo,
    ObjectMissing,
    OutsideStorage,
    StorageUnavailable,
    StorageUnusable,
    answer_of,
    unreachable,
)

MARKER = "wingbeat.txt"
"""Written when the server starts: the proof that the storage can be used, and a word to whoever finds it."""
_MARKER_TEXT = b"What is below this prefix was written by a Wingbeat server and its tasks.\n"
_CLIENT = {"allow_http": True, "connect_timeout": "10s", "timeout": "300s"}
"""The timeout is of one request with its content: a part of an upload, which may go over a slow line."""
_RETRIES = {
    "max_retries": 4,
    "retry_timeout": dt.timedelta(seconds=30),
    "backoff": {
        "init_backoff": dt.timedelta(seconds=0.2),
        "max_backoff": dt.timedelta(seconds=3),
        "base": 2,
    },
}
"""Not obstore's three minutes: people wait for the answer, and the engine tries again by itself."""
_BASE = re.compile(r"[a-z0-9]+://[A-Za-z0-9][^/?#%\\\s]*(/[^/?#%\\\s]+)*/?")


def _hint(base_uri: str) -> str:
    if not base_uri.startswith("s3:"):
        return ""
    return (
        " (FLYTE_AWS_ENDPOINT, FLYTE_AWS_ACCESS_KEY_ID, FLYTE_AWS_SECRET_ACCESS_KEY and AWS_REGION, or Amazon's own "
        "variables, say where the bucket is and with which key)"
    )


class ObjectStorage:
    """See the `Storage` protocol. `store` is an obstore store that is rooted at `base_uri`."""

    def __init__(self, base_uri: str, store: Any) -> None:
        self.base_uri = base_uri.rstrip("/")
        self.store = store
        self.raw_data_prefix = self.join("raw")

    @classmethod
    def open(cls, base_uri: str, config: dict[str, str] | None = None) -> ObjectStorage:
        """Reaches nothing yet. Raises StorageUnavailable."""
        if not _BASE.fullmatch(base_uri):
            raise StorageUnavailable(
                f"storage {base_uri!r} is not of the form s3://BUCKET/PREFIX, without blanks and the characters ?#%\\"
            )
        config = {**store_config(access_variables(base_uri, os.environ)), **(config or {})}
        try:
            store = obstore.store.from_url(  # type: ignore[call-overload, unused-ignore]
                base_uri.rstrip("/"), config=config, client_options=_CLIENT, retry_config=_RETRIES
            )
        except (BaseError, ValueError) as error:
            raise StorageUnavailable(f"{base_uri} cannot be opened as storage: {error}") from error
        return cls(base_uri, store)

    async def check(self) -> None:
        """Write, read and list something. Raises StorageUnusable, which says what was refused."""
        try:
            await obstore.put_async(self.store, MARKER, _MARKER_TEXT)
            await obstore.get_async(self.store, MARKER)
            await obstore.list(self.store, "runs/none").collect_async()
        except (BaseError, OSError) as error:
            message = f"the storage {self.base_uri} cannot be used: {answer_of(error)}{_hint(self.base_uri)}"
            raise StorageUnusable(self.base_uri, message) from error

    def join(self, *parts: str) -> str:
        return "/".join([self.base_uri, *checked_elements(parts, of="/".join(parts))])

    def key(self, uri: str) -> str:
        """The key of `uri` below the base. Raises OutsideStorage."""
        if not uri.startswith(self.base_uri + "/"):
            raise OutsideStorage(f"{uri!r} is outside {self.base_uri}, {ELSEWHERE}")
        return "/".join(checked_elements([uri.removeprefix(self.base_uri + "/").rstrip("/")], of=uri))

    async def get(self, uri: str, *, limit: int = 0) -> bytes:
        try:
            found = await obstore.get_async(self.store, self.key(uri))
            if limit and found.meta["size"] > limit:
                raise ValueError(
                    f"{uri} has {found.meta['size']} bytes, more than the {limit} that may be read at once"
                )
            return bytes(await found.bytes_async())
        except (BaseError, OSError) as error:
            raise self._problem(uri, error) from error

    async def put(self, uri: str, data: bytes) -> None:
        try:
            await obstore.put_async(self.store, self.key(uri), data)
        except (BaseError, OSError) as error:
            raise self._problem(uri, error) from error

    async def head(self, uri: str) -> ObjectInfo:
        try:
            found = await obstore.head_async(self.store, self.key(uri))
        except (BaseError, OSError) as error:
            raise self._problem(uri, error) from error
        return ObjectInfo(size=found["size"], modified_at=found["last_modified"])

    async def copy(self, source: str, target: str) -> None:
        try:
            await obstore.copy_async(self.store, self.key(source), self.key(target))
        except (BaseError, OSError) as error:
            raise self._problem(source, error) from error

    async def list(self, prefix: str) -> list[str]:
        key = "" if prefix.rstrip("/") == self.base_uri else self.key(prefix)
        try:
            found = await obstore.list(self.store, key or None).collect_async()
        except (BaseError, OSError) as error:
            raise self._problem(prefix, error) from error
        # Whole elements: a store may answer `ab/c` when asked for `a`.
        return sorted(
            f"{self.base_uri}/{item['path']}" for item in found if not key or item["path"].startswith(key + "/")
        )

    async def delete_prefix(self, prefix: str) -> int:
        key = self.key(prefix)
        keys = [uri.removeprefix(self.base_uri + "/") for uri in await self.list(prefix)]
        try:
            if not keys:
                await obstore.head_async(self.store, key)
                keys = [key]
            await obstore.delete_async(self.store, keys)
        except (NotFoundError, FileNotFoundError):
            return len(keys)
        except (BaseError, OSError) as error:
            raise self._problem(prefix, error) from error
        return len(keys)

    def _problem(self, uri: str, error: Exception) -> Exception:
        if isinstance(error, (NotFoundError, FileNotFoundError)):
            return ObjectMissing(f"there is no object {uri}")
        return unreachable(uri, error)
