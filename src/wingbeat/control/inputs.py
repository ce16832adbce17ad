"""Inputs against the interface of a task: what is missing, what has the wrong type, and the keys for caching."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from flyteidl2.core.interface_pb2 import TypedInterface, VariableEntry
from flyteidl2.core.literals_pb2 import Literal, Scalar, Union, Void
from flyteidl2.core.types_pb2 import LiteralType, SimpleType
from flyteidl2.task.common_pb2 import Inputs

from wingbeat.control.errors import InvalidRequest

KICKOFF_KEY = "_u_kickoff_time_input_arg"
"""In the context of inputs: names the one that the task's runtime sets to the start time of the run."""

_PRIMITIVES = {
    SimpleType.INTEGER: ("integer",),
    SimpleType.FLOAT: ("float_value", "integer"),
    SimpleType.STRING: ("string_value",),
    SimpleType.BOOLEAN: ("boolean",),
    SimpleType.DATETIME: ("datetime",),
    SimpleType.DURATION: ("duration",),
}
_SCALARS = {
    SimpleType.NONE: ("none_type",),
    SimpleType.BINARY: ("binary",),
    SimpleType.STRUCT: ("generic", "binary"),
    SimpleType.ERROR: ("error",),
}


def describe_type(type: Any) -> str:
    """A type in a person's words, e.g. `list of integer`."""
    kind = type.WhichOneof("type")
    if kind == "simple":
        name = str(SimpleType.Name(type.simple)).lower()
        return {"struct": "struct (a dataclass or model)"}.get(name, name)
    if kind == "collection_type":
        return f"list of {describe_type(type.collection_type)}"
    if kind == "map_value_type":
        return f"map of {describe_type(type.map_value_type)}"
    if kind == "union_type":
        return " or ".join(describe_type(v) for v in type.union_type.variants)
    if kind == "enum_type":
        return "one of " + ", ".join(type.enum_type.values)
    if kind == "blob":
        return "directory" if type.blob.dimensionality else "file"
    return {"structured_dataset_type": "dataframe", "schema": "dataframe"}.get(kind or "", "any")


def describe_value(literal: Any) -> str:
    kind = literal.WhichOneof("value")
    if kind != "scalar":
        return {"collection": "a list", "map": "a map"}.get(kind or "", "nothing")
    scalar = literal.scalar.WhichOneof("value")
    if scalar == "primitive":
        which = literal.scalar.primitive.WhichOneof("value") or "empty value"
        return "the " + which.removesuffix("_value") + f" {str(getattr(literal.scalar.primitive, which, ''))[:60]!r}"
    if scalar == "union":
        return describe_value(literal.scalar.union.value)
    return {"none_type": "none", "blob": "a file", "structured_dataset": "a dataframe"}.get(scalar or "", f"a {scalar}")


def fits(literal: Any, type: Any) -> bool:
    """Whether `literal` can be a value of `type`. Lenient where the SDK has several forms for one type."""
    kind = type.WhichOneof("type")
    value = literal.WhichOneof("value")
    if kind is None or value in (None, "offloaded_metadata"):
        return value is not None
    if kind == "union_type":
        inner = literal.scalar.union.value if _scalar(literal) == "union" else literal
        return any(fits(inner, variant) for variant in type.union_type.variants)
    if _scalar(literal) == "union":
        return fits(literal.scalar.union.value, type)
    if kind == "collection_type":
        return value == "collection" and all(fits(v, type.collection_type) for v in literal.collection.literals)
    if kind == "map_value_type":
        return value == "map" and all(fits(v, type.map_value_type) for v in literal.map.literals.values())
    if value != "scalar":
        return False
    if kind == "simple":
        if type.simple in _PRIMITIVES:
            return literal.scalar.primitive.WhichOneof("value") in _PRIMITIVES[type.simple]
        return _scalar(literal) in _SCALARS.get(type.simple, (_scalar(literal),))
    if kind == "enum_type":
        return literal.scalar.primitive.string_value in type.enum_type.values
    if kind == "blob":
        return _scalar(literal) == "blob"
    if kind in ("structured_dataset_type", "schema"):
        return _scalar(literal) in ("structured_dataset", "schema")
    return True


def _scalar(literal: Any) -> str | None:
    return literal.scalar.WhichOneof("value") if literal.WhichOneof("value") == "scalar" else None


def _accepts_none(type: Any) -> bool:
    return any(v.WhichOneof("type") == "simple" and v.simple == SimpleType.NONE for v in type.union_type.variants)


def _none() -> Any:
    none = Literal(scalar=Scalar(none_type=Void()))
    return Literal(scalar=Scalar(union=Union(value=none, type=LiteralType(simple=SimpleType.NONE))))


def complete(inputs: Any, task_spec: Any, task_name: str) -> tuple[Any, bool]:
    """`inputs` with defaults for what is missing, and whether any was added. Raises InvalidRequest that names the
    input which is missing, unknown, or of another type than the interface says."""
    variables = {v.key: v.value for v in task_spec.task_template.interface.inputs.variables}
    again = f"flyte run ... {task_name.rpartition('.')[2]}"
    given = {named.name: named.value for named in inputs.literals}
    for name in given:
        if name not in variables:
            has = f"it has {', '.join(variables)}" if variables else "it takes none"
            raise InvalidRequest(f"task {task_name} has no input {name!r}; {has}, see: {again} --help")
    result = Inputs()
    result.CopyFrom(inputs)
    filled_later = {pair.value for pair in inputs.context if pair.key == KICKOFF_KEY}
    defaults = {p.name: p.parameter.default for p in task_spec.default_inputs if p.parameter.HasField("default")}
    added = False
    for name, variable in variables.items():
        if name in filled_later and name not in given:
            continue
        if name not in given:
            if name in defaults:
                given[name] = defaults[name]
            elif _accepts_none(variable.type):
                given[name] = _none()
            else:
                raise InvalidRequest(
                    f"task {task_name} needs the input {name!r} ({describe_type(variable.type)}), which is not given; "
                    f"give it: {again} --{name} VALUE"
                )
            result.literals.add(name=name, value=given[name])
            added = True
        if not fits(given[name], variable.type):
            raise InvalidRequest(
                f"the input {name!r} of task {task_name} must be {describe_type(variable.type)}, "
                f"not {describe_value(given[name])}; give it again: {again} --{name} VALUE"
            )
    return result, added


# --- keys


def _digest(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def inputs_hash(inputs: Any, ignored: Any = ()) -> str:
    """Of the literals that count for caching, in the order given; the context does not count."""
    counted = Inputs(literals=[named for named in inputs.literals if named.name not in set(ignored)])
    return _digest(counted.SerializeToString(deterministic=True))


def interface_hash(interface: Any) -> str:
    """The hash that the SDK computes too: variables sorted by name."""
    ordered = TypedInterface()
    for side in ("inputs", "outputs"):
        source = getattr(interface, side)
        if interface.HasField(side):
            entries = [VariableEntry(key=v.key, value=v.value) for v in sorted(source.variables, key=lambda v: v.key)]
            getattr(ordered, side).variables.extend(entries)
            getattr(ordered, side).SetInParent()
    return _digest(ordered.SerializeToString(deterministic=True))


def root_cache_key(template: Any, hash_of_inputs: str) -> str:
    """The key under which a run's outputs are cached; empty when the task does not cache. Children bring theirs."""
    if not template.metadata.discoverable:
        return ""
    text = hash_of_inputs + template.id.name + interface_hash(template.interface) + template.metadata.discovery_version
    return _digest(text.encode())
