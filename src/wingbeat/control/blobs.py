"""Inputs and outputs as messages in the storage, and where the code of a task is."""

from __future__ import annotations

import hashlib
from typing import Any

from flyteidl2.task.common_pb2 import Inputs, Outputs
from google.protobuf.message import DecodeError

from wingbeat.control.errors import InvalidRequest, Missing, NotNow
from wingbeat.storage import ObjectMissing, Storage

INPUTS = "inputs.pb"
MAX_READ_BYTES = 256 * 1024 * 1024
"""Of one inputs.pb or outputs.pb. Larger values belong into files."""


def inputs_path(uri: str) -> str:
    """The full path of the inputs.pb, whether `uri` names it or the prefix it is in."""
    return uri if not uri or uri.endswith("/" + INPUTS) else f"{uri.rstrip('/')}/{INPUTS}"


async def _read(storage: Storage, uri: str, what: str) -> bytes:
    try:
        return await storage.get(uri, limit=MAX_READ_BYTES)
    except ObjectMissing:
        raise Missing(f"the {what} are not in the storage (any more): {uri}. Run it again: flyte run ...") from None
    except ValueError:
        raise NotNow(f"the {what} at {uri} are larger than {MAX_READ_BYTES} bytes; read the file itself") from None


async def read_inputs(storage: Storage, uri: str) -> Any:
    """Raises Missing, whose text says "inputs" (the SDK looks for the word), InvalidRequest for what is no Inputs."""
    data = await _read(storage, inputs_path(uri), "inputs")
    try:
        return Inputs.FromString(data)
    except DecodeError as error:
        raise InvalidRequest(f"the inputs at {uri} cannot be read: {error}") from None


async def read_outputs(storage: Storage, uri: str) -> Any:
    """`uri` is the full path. Raises Missing."""
    data = await _read(storage, uri, "outputs")
    try:
        return Outputs.FromString(data)
    except DecodeError as error:
        raise NotNow(f"the outputs at {uri} cannot be read: {error}") from None


async def put_inputs(storage: Storage, base: str, inputs: Any) -> str:
    """Keep `inputs` below `base` under the digest of all of them, so that no two runs overwrite each other's.
    Returns the full path."""
    data = inputs.SerializeToString(deterministic=True)
    uri = f"{base.rstrip('/')}/offloaded-inputs/{hashlib.sha256(data).hexdigest()}/{INPUTS}"
    try:
        await storage.head(uri)
    except ObjectMissing:
        await storage.put(uri, data)
    return uri


def bundle_uri(template: Any) -> str:
    """Where the code of a task is; empty when it is not in a bundle."""
    args = list(template.container.args)
    for index, arg in enumerate(args[:-1]):
        if arg in ("--tgz", "--pkl"):
            return str(args[index + 1])
    return str(template.metadata.code_bundle_uri)
