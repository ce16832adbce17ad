"""The Flyte services: what the SDK, the CLI and running tasks talk to."""

from wingbeat.control.dataproxy import Links
from wingbeat.control.errors import ControlError
from wingbeat.control.logs import LogLine, LogSource
from wingbeat.control.secrets import KeyUnusable, Vault
from wingbeat.control.services import ControlPlane
from wingbeat.control.settings import ControlSettings

__all__ = [
    "ControlError",
    "ControlPlane",
    "ControlSettings",
    "KeyUnusable",
    "Links",
    "LogLine",
    "LogSource",
    "Vault",
]
