"""The CustomResourceDefinition of TaskActions, generated from the structs: `python -m wingbeat.resources.crd`.

Names, limits and printer columns are those of Flyte's executor (`flyte.org/v1`, `taskactions`), so objects made by one
are valid for the other.
"""

from __future__ import annotations

import datetime as dt
import types
import typing
from typing import Any

import msgspec

from wingbeat.resources import taskaction
from wingbeat.resources.taskaction import KIND, TaskActionSpec, TaskActionStatus

GROUP, VERSION, PLURAL = "flyte.org", "v1", "taskactions"

_NAME = {"minLength": 1, "maxLength": 30}
_SCOPE = {"minLength": 1, "maxLength": 63}
_RULES: dict[tuple[str, str], dict[str, Any]] = {
    ("TaskActionSpec", "runName"): _NAME,
    ("TaskActionSpec", "project"): _SCOPE,
    ("TaskActionSpec", "domain"): _SCOPE,
    ("TaskActionSpec", "actionName"): _NAME,
    ("TaskActionSpec", "parentActionName"): _NAME,
    ("TaskActionSpec", "actionType"): {"enum": [taskaction.ACTION_TYPE_TASK, taskaction.ACTION_TYPE_CONDITION]},
    ("TaskActionSpec", "cacheKey"): {"maxLength": 256},
    ("TaskActionSpec", "taskType"): {"maxLength": 63},
    ("TaskActionSpec", "shortName"): {"maxLength": 63},
    ("TaskActionSpec", "group"): {"maxLength": 256},
    ("TaskActionStatus", "pluginPhaseVersion"): {"format": "int32", "minimum": 0},
    ("TaskActionStatus", "pluginStateVersion"): {"minimum": 0, "maximum": 255},
    ("TaskActionStatus", "attempts"): {"format": "int32", "minimum": 0},
    ("TaskActionStatus", "systemFailures"): {"format": "int32", "minimum": 0},
    ("TaskActionStatus", "cacheStatus"): {"format": "int32"},
    ("Condition", "status"): {"enum": ["True", "False", "Unknown"]},
    ("Condition", "observedGeneration"): {"format": "int64", "minimum": 0},
}
_REQUIRED = {
    "TaskActionSpec": ["actionName", "domain", "project", "runName"],
    "Condition": ["lastTransitionTime", "message", "reason", "status", "type"],
    "PhaseTransition": ["occurredAt", "phase"],
}
_COLUMNS = (
    ("Run", "string", ".spec.runName", 0),
    ("Action", "string", ".spec.actionName", 0),
    ("TaskType", "string", ".spec.taskType", 0),
    ("Status", "string", ".status.conditions[?(@.type=='Progressing')].reason", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Progressing", "string", ".status.conditions[?(@.type=='Progressing')].status", 1),
    ("Succeeded", "string", ".status.conditions[?(@.type=='Succeeded')].status", 1),
    ("Failed", "string", ".status.conditions[?(@.type=='Failed')].status", 1),
)


def schema(kind: Any) -> dict[str, Any]:
    """The structural schema of a type used in the resource."""
    if kind is str:
        return {"type": "string"}
    if kind is bool:
        return {"type": "boolean"}
    if kind is int:
        return {"type": "integer"}
    if kind is bytes:
        return {"type": "string", "format": "byte"}
    if kind is dt.datetime:
        return {"type": "string", "format": "date-time"}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return {"type": "array", "items": schema(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema(arguments[1])}
    if origin is types.UnionType:
        (inner,) = [a for a in arguments if a is not type(None)]
        return schema(inner)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(kind)
    raise TypeError(f"{kind!r} has no place in the resource")


def _struct(kind: type[msgspec.Struct]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    properties = {}
    for field in msgspec.structs.fields(kind):
        rules = _RULES.get((kind.__name__, field.encode_name), {})
        properties[field.encode_name] = {**schema(hints[field.name]), **rules}
    result: dict[str, Any] = {"type": "object", "properties": dict(sorted(properties.items()))}
    if kind.__name__ in _REQUIRED:
        result["required"] = _REQUIRED[kind.__name__]
    return result


def definition() -> dict[str, Any]:
    """The whole CustomResourceDefinition."""
    status = _struct(TaskActionStatus)
    status["properties"]["conditions"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    columns = [
        {"name": name, "type": kind, "jsonPath": path, **({"priority": priority} if priority else {})}
        for name, kind, path, priority in _COLUMNS
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"kind": KIND, "listKind": f"{KIND}List", "plural": PLURAL, "singular": KIND.lower()},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "required": ["spec"],
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "kind": {"type": "string"},
                                "metadata": {"type": "object"},
                                "spec": _struct(TaskActionSpec),
                                "status": status,
                            },
                        }
                    },
                }
            ],
        },
    }


if __name__ == "__main__":
    import yaml  # type: ignore[import-untyped]

    print("# Generated: python -m wingbeat.resources.crd\n" + yaml.safe_dump(definition(), sort_keys=False), end="")
