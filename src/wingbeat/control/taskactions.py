"""Building TaskActions, with their records: of a new run, and of a child that a running parent asks for."""

from __future__ import annotations

import datetime as dt
from typing import Any

from flyteidl2.task.run_pb2 import CacheLookupScope

from wingbeat.control.blobs import inputs_path
from wingbeat.control.settings import ControlSettings
from wingbeat.resources import (
    ActionId,
    ActionRecord,
    ActionType,
    ObjectMeta,
    OwnerReference,
    TaskAction,
    TaskActionSpec,
    TaskId,
)
from wingbeat.resources.taskaction import (
    ACTION_TYPE_CONDITION,
    ACTION_TYPE_TASK,
    ANNOTATION_ABORT_REASON,
    ANNOTATION_ABORTED_BY,
    ANNOTATION_CACHE_OVERWRITE,
    ANNOTATION_CACHE_SCOPE,
    ANNOTATION_DEPTH,
    ANNOTATION_RAW_DATA_PREFIX,
    ANNOTATION_RUN_START_TIME,
    FINALIZER,
    LABEL_ACTION,
    LABEL_ACTION_TYPE,
    LABEL_COMPLETED_TIME,
    LABEL_DOMAIN,
    LABEL_IS_ROOT,
    LABEL_ORG,
    LABEL_PROJECT,
    LABEL_RUN,
    LABEL_TERMINATION_STATUS,
)

SCOPE_GLOBAL = "GLOBAL"
SCOPE_PROJECT_DOMAIN = "PROJECT_DOMAIN"

_NOT_INHERITED = (ANNOTATION_ABORT_REASON, ANNOTATION_ABORTED_BY, LABEL_TERMINATION_STATUS, LABEL_COMPLETED_TIME)


def identity_labels(id: ActionId, action_type: str, *, root: bool) -> dict[str, str]:
    labels = {
        LABEL_ORG: id.org,
        LABEL_PROJECT: id.project,
        LABEL_DOMAIN: id.domain,
        LABEL_RUN: id.run,
        LABEL_ACTION: id.action,
        LABEL_ACTION_TYPE: action_type,
    }
    return labels | {LABEL_IS_ROOT: "true" if root else "false"}


def run_annotations(run_spec: Any, settings: ControlSettings, start: dt.datetime) -> dict[str, str]:
    """What the run specification says that the custom resource has no field for."""
    annotations = dict(run_spec.annotations.values)
    annotations[ANNOTATION_DEPTH] = "0"
    annotations[ANNOTATION_RUN_START_TIME] = start.isoformat()
    if run_spec.overwrite_cache or run_spec.cache_config.overwrite_cache:
        annotations[ANNOTATION_CACHE_OVERWRITE] = "true"
    scope = run_spec.cache_config.cache_lookup_scope
    if scope == CacheLookupScope.CACHE_LOOKUP_SCOPE_GLOBAL:
        annotations[ANNOTATION_CACHE_SCOPE] = SCOPE_GLOBAL
    elif scope == CacheLookupScope.CACHE_LOOKUP_SCOPE_PROJECT_DOMAIN:
        annotations[ANNOTATION_CACHE_SCOPE] = SCOPE_PROJECT_DOMAIN
    prefix = run_spec.raw_data_storage.raw_data_prefix or settings.raw_data_prefix
    if prefix:
        annotations[ANNOTATION_RAW_DATA_PREFIX] = prefix
    return annotations


def root_action(
    id: ActionId,
    *,
    template: Any,
    short_name: str,
    run_spec: Any,
    annotations: dict[str, str],
    input_uri: str,
    run_output_base: str,
    cache_key: str,
) -> TaskAction:
    labels = dict(run_spec.labels.values) | identity_labels(id, ACTION_TYPE_TASK, root=True)
    return TaskAction(
        metadata=ObjectMeta(name=id.object_name, labels=labels, annotations=annotations, finalizers=[FINALIZER]),
        spec=TaskActionSpec(
            run_name=id.run,
            project=id.project,
            domain=id.domain,
            action_name=id.action,
            action_type=ACTION_TYPE_TASK,
            input_uri=input_uri,
            run_output_base=run_output_base,
            cache_key=cache_key,
            task_type=template.type,
            short_name=short_name,
            task_template=template.SerializeToString(deterministic=True),
            env_vars={pair.key: pair.value for pair in run_spec.envs.values},
            interruptible=run_spec.interruptible.value if run_spec.HasField("interruptible") else None,
        ),
    )


def child_action(id: ActionId, parent: TaskAction, request: Any) -> TaskAction:
    """`request` is an `actions.Action` with a task or a condition. What a run says for all of its actions comes from
    the parent: the request does not carry it."""
    condition = request.WhichOneof("spec") == "condition"
    action_type = ACTION_TYPE_CONDITION if condition else ACTION_TYPE_TASK
    labels = {k: v for k, v in parent.metadata.labels.items() if k not in _NOT_INHERITED}
    annotations = {k: v for k, v in parent.metadata.annotations.items() if k not in _NOT_INHERITED}
    annotations[ANNOTATION_DEPTH] = str(int(annotations.get(ANNOTATION_DEPTH, "0")) + 1)
    owner = OwnerReference(
        name=parent.metadata.name, uid=parent.metadata.uid, controller=True, block_owner_deletion=True
    )
    spec = TaskActionSpec(
        run_name=id.run,
        project=id.project,
        domain=id.domain,
        action_name=id.action,
        parent_action_name=parent.spec.action_name,
        action_type=action_type,
        input_uri=request.input_uri,
        run_output_base=request.run_output_base,
        env_vars=dict(parent.spec.env_vars),
        interruptible=parent.spec.interruptible,
        group=request.group,
    )
    if condition:
        spec.condition_spec = request.condition.SerializeToString(deterministic=True)
        spec.short_name = request.condition.name
    else:
        task_spec = request.task.spec
        spec.cache_key = request.task.cache_key.value
        spec.task_type = task_spec.task_template.type
        spec.short_name = task_spec.short_name or task_spec.task_template.id.name.rpartition(".")[2]
        spec.task_template = task_spec.task_template.SerializeToString(deterministic=True)
    return TaskAction(
        metadata=ObjectMeta(
            name=id.object_name,
            labels=labels | identity_labels(id, action_type, root=False),
            annotations=annotations,
            owner_references=[owner],
            # What the engine would add first, in a write of its own.
            finalizers=[FINALIZER],
        ),
        spec=spec,
    )


def child_record(id: ActionId, request: Any, task: TaskId | None, at: dt.datetime) -> ActionRecord:
    """The record of a task or a condition that was just asked for."""
    record = ActionRecord(
        id=id,
        parent=request.parent_action_name,
        group=request.group,
        created_at=at,
        updated_at=at,
        input_uri=inputs_path(request.input_uri),
        run_output_base=request.run_output_base,
    )
    if request.WhichOneof("spec") == "condition":
        record.action_type = ActionType.CONDITION
        record.name = request.condition.name
        return record
    task_spec = request.task.spec
    record.task = task
    record.task_type = task_spec.task_template.type
    record.name = task_spec.short_name or task_spec.task_template.id.name.rpartition(".")[2]
    record.environment = task_spec.environment.name
    return record
