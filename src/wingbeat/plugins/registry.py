"""Which plugin serves which task type."""

from __future__ import annotations

from collections.abc import Iterable

from wingbeat.plugins.protocol import Plugin


class PluginRegistry:
    """Task type -> plugin. The first plugin that names a type serves it; `*` serves what nothing else does."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self._by_type: dict[str, Plugin] = {}
        for plugin in plugins:
            for task_type in plugin.task_types:
                self._by_type.setdefault(task_type, plugin)

    def resolve(self, task_type: str) -> Plugin | None:
        return self._by_type.get(task_type) or self._by_type.get("*")

    @property
    def task_types(self) -> list[str]:
        return sorted(self._by_type)
