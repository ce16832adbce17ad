"""Whether an object is selected: one rule for listings, watches and caches."""

from __future__ import annotations

from collections.abc import Mapping

from wingbeat.resources import ActionId, TaskAction
from wingbeat.stores.protocol import Selector

EVERYTHING = Selector()


def matches_labels(selector: Selector, labels: Mapping[str, str]) -> bool:
    return all(labels.get(k) == v for k, v in selector.labels) and all(k in labels for k in selector.has_labels)


def matches_place(selector: Selector, id: ActionId, parent: str | None, owner_uid: str) -> bool:
    """The parts of a selector that cannot change while the object lives."""
    run = selector.run
    if run is not None and (id.run != run.run or id.run_id != run):
        return False
    above = selector.parent
    if above is not None and (parent != above.action or id.run_id != above.run_id):
        return False
    return not selector.owner_uid or owner_uid == selector.owner_uid


def owner_uid_of(action: TaskAction) -> str:
    owners = action.metadata.owner_references
    return owners[0].uid if owners else ""


def matches(selector: Selector, action: TaskAction) -> bool:
    if selector is EVERYTHING:
        return True
    return matches_labels(selector, action.metadata.labels) and matches_place(
        selector, action.id, action.spec.parent_action_name, owner_uid_of(action)
    )
