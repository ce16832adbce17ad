"""Signed URLs: who has one may upload or download exactly one object until it expires, and needs nothing else.

The token in the URL says what is allowed and is signed (HMAC-SHA256) with a key that only this user can read. It holds
no secret. Key and port outlive restarts, so do the URLs.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import hmac
import os
import secrets
from pathlib import Path

import msgspec

MAX_UPLOAD = 5 << 40
"""Bytes: the most that one upload may ask for unless it says less."""


AGAIN = "get a new one by running the same command again, such as: flyte run ..."


class Grant(msgspec.Struct, frozen=True, rename={"method": "m", "uri": "u", "md5": "d", "expires": "e", "limit": "n"}):
    """What a token allows."""

    method: str
    """PUT or GET (which includes HEAD)."""
    uri: str
    md5: str
    """Hex; empty when the content is not known beforehand."""
    expires: float
    """Seconds since 1970."""
    limit: int
    """Bytes."""


class BadToken(Exception):
    """The URL is no good; the message is for the client who used it."""


class Signer:
    """Makes and checks the tokens. `base_url` is where the data process listens."""

    def __init__(self, key: bytes, base_url: str = "") -> None:
        self._key = key
        self.base_url = base_url

    @classmethod
    def load(cls, key_file: Path, base_url: str = "") -> Signer:
        """Read the key, or make one (mode 0600)."""
        try:
            handle = os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            with open(handle, "wb") as file:
                file.write(secrets.token_bytes(32))
                file.flush()
                os.fsync(handle)
        key = key_file.read_bytes()
        if len(key) != 32:
            raise BadToken(
                f"{key_file} is damaged ({len(key_file.read_bytes())} bytes, not 32): remove it and start again"
            )
        return cls(key, base_url)

    def upload_url(self, uri: str, md5: bytes, expires: dt.timedelta, *, limit: int = MAX_UPLOAD) -> str:
        """Where to PUT the object `uri`, whose content has the digest `md5` (16 bytes, or none)."""
        return f"{self.base_url}/upload/{self._token('PUT', uri, md5.hex(), expires, limit)}"

    def download_url(self, uri: str, expires: dt.timedelta) -> str:
        """Where to GET the object `uri`."""
        return f"{self.base_url}/download/{self._token('GET', uri, '', expires, 0)}"

    def _token(self, method: str, uri: str, md5: str, expires: dt.timedelta, limit: int) -> str:
        until = dt.datetime.now(dt.UTC) + expires
        payload = msgspec.json.encode(Grant(method, uri, md5, until.timestamp(), limit))
        return f"{_encode(payload)}.{_encode(self._sign(payload))}"

    def _sign(self, payload: bytes) -> bytes:
        return hmac.digest(self._key, b"wingbeat-url-1\0" + payload, hashlib.sha256)

    def check(self, token: str, method: str) -> Grant:
        """What `token` allows for `method`. Raises BadToken."""
        head, _, tail = token.partition(".")
        try:
            payload, signature = _decode(head), _decode(tail)
        except (ValueError, binascii.Error):
            raise BadToken(f"this URL is damaged; {AGAIN}") from None
        if not hmac.compare_digest(signature, self._sign(payload)):
            raise BadToken(f"this URL was not made here or was changed; {AGAIN}")
        grant = msgspec.json.decode(payload, type=Grant)
        if grant.method != method:
            raise BadToken(f"this URL of {grant.uri} is for {grant.method}, not for {method}; {AGAIN}")
        if grant.expires <= dt.datetime.now(dt.UTC).timestamp():
            when = dt.datetime.fromtimestamp(grant.expires, dt.UTC).isoformat(" ", "seconds")
            raise BadToken(f"this URL of {grant.uri} has expired at {when}; {AGAIN}")
        return grant


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _encode(data) != text:
        raise ValueError("not canonical")
    return data
