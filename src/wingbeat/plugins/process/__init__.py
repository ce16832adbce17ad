"""Tasks as processes on this machine."""

from wingbeat.plugins.process.plugin import ProcessPlugin, ProcessSettings, Secrets

__all__ = ["ProcessPlugin", "ProcessSettings", "Secrets"]
