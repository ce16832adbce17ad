"""The TaskAction resource: the custom resource `flyte.org/v1` that Flyte's executor uses, field for field.

A TaskAction is desired state (`spec`), observed state (`status`) and bookkeeping (`metadata`), with Kubernetes
semantics whatever store holds it. The structs encode to and from the JSON of the custom resource without loss.
Mutable by design: a reconcile works on its own copy and sends a patch.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from wingbeat.resources.ids import ActionId, normalize_org

API_VERSION = "flyte.org/v1"
KIND = "TaskAction"
FINALIZER = "flyte.org/plugin-finalizer"

LABEL_PROJECT = "flyte.org/project"
LABEL_DOMAIN = "flyte.org/domain"
LABEL_RUN = "flyte.org/run"
LABEL_ACTION = "flyte.org/action"
LABEL_ACTION_TYPE = "flyte.org/action-type"
LABEL_IS_ROOT = "flyte.org/is-root"
LABEL_ORG = "wingbeat.dev/org"
LABEL_TERMINATION_STATUS = "flyte.org/termination-status"
LABEL_COMPLETED_TIME = "flyte.org/completed-time"

# What an action needs to know and the custom resource has no field for; children inherit annotations.
ANNOTATION_CACHE_OVERWRITE = "wingbeat.dev/cache-overwrite"
ANNOTATION_CACHE_SCOPE = "wingbeat.dev/cache-lookup-scope"
ANNOTATION_RAW_DATA_PREFIX = "wingbeat.dev/raw-data-prefix"
ANNOTATION_RUN_START_TIME = "wingbeat.dev/run-start-time"
ANNOTATION_DEPTH = "wingbeat.dev/depth"
ANNOTATION_ABORT_REASON = "wingbeat.dev/abort-reason"
ANNOTATION_ABORTED_BY = "wingbeat.dev/aborted-by"

ACTION_TYPE_TASK = "task"
ACTION_TYPE_CONDITION = "condition"


class _Resource(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """Base of all parts: camelCase JSON, fields at their default left out."""


class OwnerReference(_Resource, kw_only=True):
    api_version: str = API_VERSION
    kind: str = KIND
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(_Resource, kw_only=True):
    """The part of Kubernetes' object metadata that matters here. `resource_version` is opaque text on a cluster;
    in SQL it is the store-wide sequence number as text."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: dt.datetime | None = None
    deletion_timestamp: dt.datetime | None = None
    finalizers: list[str] = []
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []


class TaskActionSpec(_Resource, kw_only=True):
    run_name: str = ""
    project: str = ""
    domain: str = ""
    action_name: str = ""
    parent_action_name: str | None = None
    """None means: this is the root action of its run."""
    action_type: str = ""
    """`task` or `condition`; empty is `task`."""
    condition_spec: bytes = b""
    """A serialized `flyteidl2.workflow.ConditionAction`."""
    input_uri: str = ""
    """A prefix, or the full path of an `inputs.pb`."""
    run_output_base: str = ""
    cache_key: str = ""
    task_type: str = ""
    short_name: str = ""
    task_template: bytes = b""
    """A serialized `flyteidl2.core.TaskTemplate`, kept as the bytes received."""
    env_vars: dict[str, str] = {}
    interruptible: bool | None = None
    group: str = ""


class Condition(_Resource, kw_only=True):
    """A Kubernetes condition. `last_transition_time` moves only when `status` flips."""

    type: str
    status: str
    """`True`, `False` or `Unknown`."""
    reason: str = ""
    message: str = ""
    last_transition_time: dt.datetime | None = None
    observed_generation: int = 0


class PhaseTransition(_Resource, kw_only=True):
    phase: str
    occurred_at: dt.datetime
    message: str = ""


class ErrorState(_Resource, kw_only=True):
    code: str = ""
    kind: str = ""
    message: str = ""


class TaskActionStatus(_Resource, kw_only=True):
    state_json: str = ""
    """Free text to Flyte; here one JSON object that also holds what the custom resource lacks (engine state)."""
    plugin_state: bytes = b""
    plugin_state_version: int = 0
    plugin_phase: str = ""
    plugin_phase_version: int = 0
    attempts: int = 0
    """1-based; 0 is read as 1."""
    system_failures: int = 0
    """*Consecutive* system failures."""
    cache_status: int = 0
    conditions: list[Condition] = []
    phase_history: list[PhaseTransition] = []
    error_state: ErrorState | None = None
    signal_value: bytes = b""
    """A serialized literal; only on condition actions."""
    signalled_by: str = ""
    signalled_at: dt.datetime | None = None


class TaskAction(_Resource, kw_only=True):
    api_version: str = API_VERSION
    kind: str = KIND
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: TaskActionSpec = msgspec.field(default_factory=TaskActionSpec)
    status: TaskActionStatus = msgspec.field(default_factory=TaskActionStatus)

    @property
    def id(self) -> ActionId:
        """The full identity. The organisation is not a field of the custom resource; a label carries it."""
        s = self.spec
        org = normalize_org(self.metadata.labels.get(LABEL_ORG, ""))
        return ActionId(org, s.project, s.domain, s.run_name, s.action_name)

    @property
    def parent_id(self) -> ActionId | None:
        if self.spec.parent_action_name is None:
            return None
        return self.id.run_id.action(self.spec.parent_action_name)

    @property
    def attempt(self) -> int:
        return self.status.attempts or 1

    @property
    def is_condition(self) -> bool:
        return self.spec.action_type == ACTION_TYPE_CONDITION

    @property
    def terminal(self) -> bool:
        """Finished for good: Succeeded=True or Failed=True."""
        return any(c.status == "True" and c.type in ("Succeeded", "Failed") for c in self.status.conditions)

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None


_decoder = msgspec.json.Decoder(TaskAction)
_encoder = msgspec.json.Encoder()


def encode(action: TaskAction) -> bytes:
    """The JSON of the custom resource. `apiVersion` and `kind` are always there, as Kubernetes wants them."""
    body = msgspec.to_builtins(action)
    return _encoder.encode({"apiVersion": action.api_version, "kind": action.kind, **body})


def decode(data: bytes | str) -> TaskAction:
    """The TaskAction in `data`. Raises msgspec.ValidationError where a field has a wrong type."""
    return _decoder.decode(data)


def copy(action: TaskAction) -> TaskAction:
    """A deep copy that may be changed freely."""
    return _decoder.decode(_encoder.encode(action))


def to_builtins(action: TaskAction) -> dict[str, Any]:
    result: dict[str, Any] = msgspec.to_builtins(action)
    return result
