"""Cached outputs: what an earlier execution with the same key left, by scope."""

from wingbeat.catalog.outputs import OutputCatalog

__all__ = ["OutputCatalog"]
