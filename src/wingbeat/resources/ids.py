"""Who an action is: organisation, project, domain, run and action name, everywhere and never less.

The organisation may be empty on the wire (Flyte's own server ignores it); it is normalized once, where a
message enters, so that everything inside compares identities as plain values.
"""

from __future__ import annotations

import msgspec

DEFAULT_ORG = "local"
ROOT_ACTION = "a0"
"""The name of a run's first action (the SDK's and the run service's convention)."""


def normalize_org(org: str) -> str:
    """The organisation to use for `org` as it came over the wire: empty means the default one."""
    return org or DEFAULT_ORG


class RunId(msgspec.Struct, frozen=True, order=True):
    """One run. Hashable and ordered, so it can be a key."""

    org: str
    project: str
    domain: str
    run: str

    def action(self, name: str) -> ActionId:
        return ActionId(self.org, self.project, self.domain, self.run, name)

    def __str__(self) -> str:
        return f"{self.project}/{self.domain}/{self.run}"


class ActionId(msgspec.Struct, frozen=True, order=True):
    """One action of one run. Hashable and ordered, so it can be a key."""

    org: str
    project: str
    domain: str
    run: str
    action: str

    @property
    def run_id(self) -> RunId:
        return RunId(self.org, self.project, self.domain, self.run)

    @property
    def object_name(self) -> str:
        """The Kubernetes object name, as Flyte forms it: `<run>-<action>`, or `<run>-a0` where both are equal.

        Ambiguous by itself (`a-b` + `c` and `a` + `b-c`), so stores never use it as a key.
        """
        return f"{self.run}-{ROOT_ACTION if self.action == self.run else self.action}"

    def __str__(self) -> str:
        return f"{self.project}/{self.domain}/{self.run}/{self.action}"


class TaskId(msgspec.Struct, frozen=True, order=True):
    """One version of a registered (or inline) task."""

    org: str
    project: str
    domain: str
    name: str
    version: str
