"""Plugins do the work of actions: the protocol, and one folder for each kind."""

from wingbeat.plugins.protocol import PermanentPluginError, Plugin, Transition
from wingbeat.plugins.registry import PluginRegistry

__all__ = ["PermanentPluginError", "Plugin", "PluginRegistry", "Transition"]
