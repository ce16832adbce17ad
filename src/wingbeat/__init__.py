"""Wingbeat runs Flyte 2 work: engine, control plane and apps in one Python program."""

__version__ = "0.1.0"
