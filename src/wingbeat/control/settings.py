"""What the control plane is told when it is put together."""

from __future__ import annotations

import msgspec

from wingbeat.resources import DEFAULT_ORG

DOMAINS = (("development", "Development"), ("staging", "Staging"), ("production", "Production"))


class ControlSettings(msgspec.Struct, frozen=True, kw_only=True):
    endpoint: str
    """The URL of this server, without a trailing slash; links are made of it."""
    run_base: str
    """Below it every run gets `<org>/<project>/<domain>/<run>` for its inputs and outputs. Within the storage."""
    raw_data_prefix: str = ""
    """Default for runs that name none; empty leaves it to the engine."""
    org: str = DEFAULT_ORG
    user: str = ""
    """Whom runs and deployments are ascribed to; empty is the user that owns the server."""
    default_project: str = "default"
    domains: tuple[tuple[str, str], ...] = DOMAINS
    """Id and display name."""
    interpreter: str = ""
    """The Python that tasks run in."""
    python_version: str = ""
    """`3.12` of that Python; empty checks nothing."""
    sdk_version: str = ""
    """The version of `flyte` in that Python; empty checks nothing."""
    heartbeat_seconds: float = 10.0
    """How long a watch may be silent; clients that are gone are noticed by it."""
    upload_seconds: int = 3600
    """The longest life of a signed URL."""
