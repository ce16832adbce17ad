"""Secrets: written here, read by tasks, never given back. Encrypted at rest; the key is a file beside the database, so
that a copy of the database alone tells nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from flyteidl2.secret.definition_pb2 import OverallStatus, Secret, SecretIdentifier, SecretMetadata, SecretStatus
from flyteidl2.secret.payload_pb2 import (
    CreateSecretResponse,
    DeleteSecretResponse,
    GetSecretResponse,
    ListSecretsResponse,
    UpdateSecretResponse,
)
from flyteidl2.secret.secret_connect import SecretService

from wingbeat.control import wire
from wingbeat.control.clock import now_micros
from wingbeat.control.errors import Exists, InvalidRequest, Missing
from wingbeat.control.listing import read_token
from wingbeat.database import Database
from wingbeat.database.times import from_micros
from wingbeat.resources import normalize_org

_NAME = re.compile(r"[-a-zA-Z0-9_]+")
_NONCE_BYTES = 12
_MAX_VALUE_BYTES = 1024 * 1024
_SCOPE = "org = ? AND project = ? AND domain = ?"

Key = tuple[str, str, str, str]
"""Organisation, project, domain, name."""


class KeyUnusable(Exception):
    """The key file is damaged, or is not the one that the secrets were written with."""


class Vault:
    """The encrypted table."""

    def __init__(self, db: Database, key_file: Path) -> None:
        self._db = db
        self._key_file = key_file
        self._cipher = AESGCM(_load_key(key_file))

    def _seal(self, key: Key, value: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, value, "\0".join(key).encode())

    def _open(self, key: Key, sealed: bytes) -> bytes:
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], "\0".join(key).encode())
        except InvalidTag:
            raise KeyUnusable(
                f"the secret {key[3]!r} cannot be decrypted: {self._key_file} is not the key it was written with. "
                f"Put that key back, or write the secret again: flyte delete secret {key[3]}; flyte create secret ..."
            ) from None

    async def create(self, key: Key, value: bytes, type: int) -> bool:
        """False when there is one already."""
        at, sealed = now_micros(), self._seal(key, value)
        return bool(
            await self._db.write(
                lambda c: c.execute(
                    "INSERT INTO secrets (org, project, domain, name, value, type, created_at, updated_at) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (*key, sealed, type, at, at),
                )
            )
        )

    async def update(self, key: Key, value: bytes, type: int) -> bool:
        sealed = self._seal(key, value)
        return bool(
            await self._db.write(
                lambda c: c.execute(
                    f"UPDATE secrets SET value = ?, type = ?, updated_at = ? WHERE {_SCOPE} AND name = ?",
                    (sealed, type, now_micros(), *key),
                )
            )
        )

    async def delete(self, key: Key) -> bool:
        return bool(await self._db.write(lambda c: c.execute(f"DELETE FROM secrets WHERE {_SCOPE} AND name = ?", key)))

    async def find(self, where: str, params: Iterable[Any], tail: str = "") -> list[tuple[Any, ...]]:
        sql = f"SELECT org, project, domain, name, type, created_at FROM secrets WHERE {where} {tail}"
        return await self._db.read(lambda c: c.query(sql, tuple(params)))

    async def resolve(self, org: str, project: str, domain: str, name: str) -> bytes:
        """The value for a task: that of the project, else of the domain, else the global one. Raises Missing."""
        for scope in ((project, domain), ("", domain), ("", "")):
            key = (org, *scope, name)
            rows = await self._db.read(
                lambda c, key=key: c.query(  # type: ignore[misc]
                    f"SELECT value FROM secrets WHERE {_SCOPE} AND name = ?", key
                )
            )
            if rows:
                return self._open(key, bytes(rows[0][0]))
        raise Missing(
            f"there is no secret {name!r} for project {project}, domain {domain}, or everywhere; "
            f"make it with: flyte create secret {name}"
        )


def _load_key(path: Path) -> bytes:
    """The key in `path`; made, readable for its owner only, when there is none."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    else:
        with open(handle, "wb") as file:
            file.write(AESGCM.generate_key(256))
            file.flush()
            os.fsync(handle)
    key = path.read_bytes()
    if len(key) != 32:
        raise KeyUnusable(
            f"{path} is damaged ({len(key)} bytes, not 32): put back a copy, or remove it and write all secrets again"
        )
    return key


class SecretApi(SecretService):  # type: ignore[misc]
    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    async def create_secret(self, request: Any, ctx: Any) -> Any:
        key, value = _key(request.id), _value(request.secret_spec)
        if not await self._vault.create(key, value, request.secret_spec.type):
            raise Exists(f"there is a secret {key[3]!r} already; delete it first: flyte delete secret {key[3]}")
        return CreateSecretResponse()

    async def update_secret(self, request: Any, ctx: Any) -> Any:
        key, value = _key(request.id), _value(request.secret_spec)
        if not await self._vault.update(key, value, request.secret_spec.type):
            raise Missing(f"there is no secret {key[3]!r} in this scope; see what there is: flyte get secret")
        return UpdateSecretResponse()

    async def get_secret(self, request: Any, ctx: Any) -> Any:
        key = _key(request.id)
        rows = await self._vault.find(f"{_SCOPE} AND name = ?", key)
        if not rows:
            raise Missing(f"there is no secret {key[3]!r} in this scope; see what there is: flyte get secret")
        return GetSecretResponse(secret=_message(rows[0]))

    async def delete_secret(self, request: Any, ctx: Any) -> Any:
        key = _key(request.id)
        if not await self._vault.delete(key):
            raise Missing(f"there is no secret {key[3]!r} in this scope; see what there is: flyte get secret")
        return DeleteSecretResponse()

    async def list_secrets(self, request: Any, ctx: Any) -> Any:
        parts, params = ["org = ?"], [normalize_org(request.organization)]
        for column in ("domain", "project"):
            if value := getattr(request, column):
                parts.append(f"{column} = ?")
                params.append(value)
        limit, offset = max(request.limit, 0) or 1_000_000, read_token(request.token)
        rows = await self._vault.find(
            " AND ".join(parts),
            (*params, limit + 1, offset),
            "ORDER BY name, domain, project LIMIT ? OFFSET ?",
        )
        token = str(offset + limit) if len(rows) > limit else ""
        return ListSecretsResponse(secrets=[_message(row) for row in rows[:limit]], token=token)


def _key(id: Any) -> Key:
    if not _NAME.fullmatch(id.name):
        raise InvalidRequest(f"the secret name {id.name[:100]!r} is not valid: use letters, digits, '-' and '_'")
    if id.project and not id.domain:
        raise InvalidRequest("a secret of a project needs a domain too")
    return normalize_org(id.organization), id.project, id.domain, id.name


def _value(spec: Any) -> bytes:
    kind = spec.WhichOneof("value")
    if kind is None:
        raise InvalidRequest("the secret has no value")
    value = spec.string_value.encode() if kind == "string_value" else bytes(spec.binary_value)
    if len(value) > _MAX_VALUE_BYTES:
        raise InvalidRequest(f"the secret has {len(value)} bytes; at most {_MAX_VALUE_BYTES} are kept")
    return value


def _message(row: tuple[Any, ...]) -> Any:
    org, project, domain, name, type, created_at = row
    return Secret(
        id=SecretIdentifier(organization=org, project=project, domain=domain, name=name),
        secret_metadata=SecretMetadata(
            created_time=wire.timestamp(from_micros(created_at)),
            secret_status=SecretStatus(overall_status=OverallStatus.FULLY_PRESENT),
            type=type,
        ),
    )
