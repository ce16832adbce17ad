"""Plain pages behind the links that the `flyte` command prints: rendered here, safe against what they show, live."""

from wingbeat.server.pages.application import run_pages
from wingbeat.server.pages.logs import BatchSource

__all__ = ["BatchSource", "run_pages"]
