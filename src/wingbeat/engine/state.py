"""Engine state that the custom resource has no field for: one versioned JSON object inside `status.stateJson`.

Flyte keeps `{phase, actionId, timestamp}` there for people to look at and never reads it back, so the same object can
carry ours under the key `wingbeat`; an executor of Flyte's that takes over simply drops it.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from wingbeat.resources import ActionPhase, TaskAction

VERSION = 1


class EngineState(msgspec.Struct, omit_defaults=True):
    """All times are UTC. Everything here survives a restart of the engine."""

    v: int = VERSION
    generation: int = 0
    """Counts launches of the action, over attempts and system failures; 0 is the first."""
    not_before: dt.datetime | None = None
    """Nothing is launched before this moment (back-off)."""
    queued_at: dt.datetime | None = None
    """When the current attempt began to wait."""
    started_at: dt.datetime | None = None
    """When the current attempt's process first ran."""
    first_queued_at: dt.datetime | None = None
    total_system_failures: int = 0
    cache_checked: bool = False
    """The catalog was asked for the current attempt; it is never asked after a launch."""
    plugin: dict[str, Any] | None = None
    """What the plugin returned last in this attempt."""
    event_version: int = 0
    """Numbers events of the current attempt, so that no two share a key."""
    phase: ActionPhase = ActionPhase.UNSPECIFIED
    """The action phase that was last told to the records."""
    reason: str = ""
    logs_available: bool = False


class _Envelope(msgspec.Struct, rename="camel", omit_defaults=True):
    phase: str = ""
    action_id: str = ""
    timestamp: str = ""
    wingbeat: EngineState | None = None


_decoder = msgspec.json.Decoder(_Envelope)
_encoder = msgspec.json.Encoder()


def read_state(action: TaskAction) -> EngineState:
    """The engine state of an action; a fresh one where there is none (or it is a foreign executor's)."""
    text = action.status.state_json
    if not text:
        return EngineState()
    try:
        return _decoder.decode(text).wingbeat or EngineState()
    except msgspec.MsgspecError:
        return EngineState()


def write_state(action: TaskAction, state: EngineState, now: dt.datetime) -> str:
    """The text for `status.stateJson`."""
    envelope = _Envelope(
        phase=action.status.plugin_phase,
        action_id=f"{action.spec.run_name}/{action.spec.action_name}",
        timestamp=now.isoformat(timespec="seconds").replace("+00:00", "Z"),
        wingbeat=state,
    )
    return _encoder.encode(envelope).decode()
