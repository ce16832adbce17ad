"""Pure data: identities, phases, the TaskAction resource, records and events. Imports nothing else of Wingbeat."""

from wingbeat.resources.ids import DEFAULT_ORG, ROOT_ACTION, ActionId, RunId, TaskId, normalize_org
from wingbeat.resources.phases import TERMINAL_PHASES, ActionPhase, CacheStatus, ErrorKind, PluginPhase
from wingbeat.resources.records import (
    ActionEvent,
    ActionRecord,
    ActionType,
    AttemptRecord,
    ErrorInfo,
    PhaseSpan,
    Reason,
)
from wingbeat.resources.taskaction import (
    Condition,
    ErrorState,
    ObjectMeta,
    OwnerReference,
    PhaseTransition,
    TaskAction,
    TaskActionSpec,
    TaskActionStatus,
    copy,
    decode,
    encode,
)

__all__ = [
    "DEFAULT_ORG",
    "ROOT_ACTION",
    "TERMINAL_PHASES",
    "ActionEvent",
    "ActionId",
    "ActionPhase",
    "ActionRecord",
    "ActionType",
    "AttemptRecord",
    "CacheStatus",
    "Condition",
    "ErrorInfo",
    "ErrorKind",
    "ErrorState",
    "ObjectMeta",
    "OwnerReference",
    "PhaseSpan",
    "PhaseTransition",
    "PluginPhase",
    "Reason",
    "RunId",
    "TaskAction",
    "TaskActionSpec",
    "TaskActionStatus",
    "TaskId",
    "copy",
    "decode",
    "encode",
    "normalize_org",
]
