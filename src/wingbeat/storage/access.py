"""The variables by which a cloud's storage is reached: endpoint, keys and the like, as whoever starts the server sets
them.

The server and its tasks read the same ones: those of the Flyte SDK (`FLYTE_AWS_*`) and those of the cloud itself
(`AWS_*`, `GOOGLE_*`, `AZURE_*`). They are secrets. Nothing here is ever written to disk or to a log.
"""

from __future__ import annotations

from collections.abc import Mapping

_PREFIXES = {
    "s3": ("AWS_", "FLYTE_AWS_"),
    "gs": ("GOOGLE_",),
    "abfs": ("AZURE_",),
    "abfss": ("AZURE_",),
}

_S3_CONFIG = {
    "FLYTE_AWS_ENDPOINT": "endpoint",
    "FLYTE_AWS_ACCESS_KEY_ID": "access_key_id",
    "FLYTE_AWS_SECRET_ACCESS_KEY": "secret_access_key",
}
_S3_STYLE = "FLYTE_AWS_S3_ADDRESSING_STYLE"

_TWINS = {
    "FLYTE_AWS_ENDPOINT": "AWS_ENDPOINT_URL_S3",
    "FLYTE_AWS_ACCESS_KEY_ID": "AWS_ACCESS_KEY_ID",
    "FLYTE_AWS_SECRET_ACCESS_KEY": "AWS_SECRET_ACCESS_KEY",
}
"""Arrow, with which the SDK reads tables, has an S3 client of its own that only knows Amazon's names."""

_KINDS = (
    frozenset(["FLYTE_AWS_ENDPOINT", "AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"]),
    frozenset(
        [
            "FLYTE_AWS_ACCESS_KEY_ID",
            "FLYTE_AWS_SECRET_ACCESS_KEY",
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_PROFILE",
        ]
    ),
)
"""Variables that only make sense together: half a key of one account and half of another opens nothing."""


def access_variables(storage_uri: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Those of `environ` that are about the cloud of `storage_uri`; none where the storage is a folder."""
    scheme, separator, _ = storage_uri.partition("://")
    prefixes = _PREFIXES.get(scheme, ()) if separator else ()
    return {name: value for name, value in environ.items() if value and name.startswith(prefixes)} if prefixes else {}


def store_config(access: Mapping[str, str]) -> dict[str, str]:
    """What `access` says beyond the cloud's own variables, which obstore reads itself, in obstore's words. The SDK
    translates its variables in the same way, so server and tasks come to the same store."""
    config = {key: access[name] for name, key in _S3_CONFIG.items() if access.get(name)}
    if style := access.get(_S3_STYLE):
        config["virtual_hosted_style_request"] = "true" if style == "virtual" else "false"
    return config


def task_variables(access: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """What a task needs of `access`, beside the variables `own` that it has already. Where those hold an endpoint or a
    key, it gets nothing of that kind from us."""
    offered = dict(access)
    for kind in _KINDS:
        twins = {twin: access[name] for name, twin in _TWINS.items() if name in kind and name in access}
        if not any(name in kind and not name.startswith("FLYTE_") for name in access):
            offered |= twins
        if any(own.get(name) for name in kind):
            offered = {name: value for name, value in offered.items() if name not in kind}
    return {name: value for name, value in offered.items() if name not in own}
