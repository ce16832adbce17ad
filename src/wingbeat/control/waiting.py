"""Which parents wait: they have an open watch and a child that is not finished. Their CPU is free for others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wingbeat.resources import ActionId, ActionRecord, ActionType

SetWaiting = Callable[[ActionId, bool], None]


class Waiting:
    """Tells `set_waiting` about each change, once. The composition passes the machine's."""

    def __init__(self, set_waiting: SetWaiting) -> None:
        self._set_waiting = set_waiting
        self._watches: dict[ActionId, set[Watch]] = {}
        self._waits: set[ActionId] = set()

    def open(self, parent: ActionId) -> Watch:
        watch = Watch(self, parent)
        self._watches.setdefault(parent, set()).add(watch)
        return watch

    def waits(self, parent: ActionId) -> bool:
        return parent in self._waits

    def _close(self, watch: Watch) -> None:
        rest = self._watches.get(watch.parent, set())
        rest.discard(watch)
        if not rest:
            self._watches.pop(watch.parent, None)
        self.settle(watch.parent)

    def settle(self, parent: ActionId) -> None:
        waits = any(watch.live for watch in self._watches.get(parent, ()))
        if waits == (parent in self._waits):
            return
        (self._waits.add if waits else self._waits.discard)(parent)
        self._set_waiting(parent, waits)


class Watch:
    """One open watch of a parent, and the children that it knows to be alive."""

    def __init__(self, waiting: Waiting, parent: ActionId) -> None:
        self.parent = parent
        self.live: set[str] = set()
        self._waiting = waiting

    def saw(self, *children: ActionRecord) -> None:
        self.saw_all(children)

    def saw_all(self, children: Iterable[ActionRecord]) -> None:
        for child in children:
            if child.phase.terminal or child.action_type == ActionType.TRACE:
                self.live.discard(child.id.action)
            else:
                self.live.add(child.id.action)
        self._waiting.settle(self.parent)

    def close(self) -> None:
        self.live.clear()
        self._waiting._close(self)
