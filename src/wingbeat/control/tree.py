"""The actions of a run as a tree that is filtered: who is visible, and how many descendants are in which phase."""

from __future__ import annotations

from collections import Counter
from typing import Any

from flyteidl2.common.list_pb2 import Filter

from wingbeat.control.errors import InvalidRequest
from wingbeat.control.listing import phases
from wingbeat.resources import ActionRecord


class Node:
    __slots__ = ("counts", "matches", "matching_below", "parent", "record", "shown")

    def __init__(self, record: ActionRecord) -> None:
        self.record = record
        self.parent: Node | None = None
        self.counts: Counter[int] = Counter()
        """Of all descendants, by phase; zeroes are kept, so that a client sees a count go down."""
        self.matches = False
        self.matching_below = 0
        self.shown = False

    @property
    def visible(self) -> bool:
        return self.matches or self.matching_below > 0


class Tree:
    """Fed with records, in any order; one whose parent is not there yet waits for it."""

    def __init__(self, filters: Any) -> None:
        self._phases: set[int] | None = None
        self._name = ""
        for each in filters:
            field = each.field.lower()
            if field == "phase" and each.function in (Filter.VALUE_IN, Filter.EQUAL) and each.values:
                try:
                    self._phases = {int(v) for v in phases(list(each.values))}
                except ValueError:
                    raise InvalidRequest(f"phases are given as numbers, not as {list(each.values)}") from None
            elif field == "name" and each.function == Filter.CONTAINS_CASE_INSENSITIVE and each.values:
                self._name = each.values[0].lower()
            else:
                raise InvalidRequest(
                    "actions can be watched by phase (VALUE_IN) and by name (CONTAINS_CASE_INSENSITIVE) only"
                )
        self._nodes: dict[str, Node] = {}
        self._orphans: dict[str, list[ActionRecord]] = {}

    def update(self, records: list[ActionRecord]) -> list[tuple[Node, bool]]:
        """Take records in; returns the nodes to send, by creation, each with whether it is to be shown."""
        touched: dict[str, Node] = {}
        queue = list(records)
        for record in queue:
            if record.parent and record.parent not in self._nodes:
                self._orphans.setdefault(record.parent, []).append(record)
                continue
            self._place(record, touched)
            queue.extend(self._orphans.pop(record.id.action, ()))
        answer = []
        for node in sorted(touched.values(), key=lambda n: (n.record.created_at, n.record.id.action)):
            if node.visible or node.shown:
                answer.append((node, node.visible))
            node.shown = node.visible
        return answer

    def _place(self, record: ActionRecord, touched: dict[str, Node]) -> None:
        name = record.id.action
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = Node(record)
            node.parent = self._nodes.get(record.parent) if record.parent else None
            before = None
        else:
            before = int(node.record.phase)
        matched = node.matches if before is not None else False
        node.record = record
        node.matches = self._match(record)
        touched[name] = node
        step = int(node.matches) - int(matched)
        phase = int(record.phase)
        above = node.parent
        while above is not None:
            if before != phase:
                if before is not None:
                    above.counts[before] -= 1
                above.counts[phase] += 1
            above.matching_below += step
            if before != phase or step:
                touched[above.record.id.action] = above
            above = above.parent

    def _match(self, record: ActionRecord) -> bool:
        if self._phases is not None and int(record.phase) not in self._phases:
            return False
        return self._name in (record.name or record.id.action).lower()
