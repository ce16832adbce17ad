"""A decision, and the status in the making that it comes from."""

from __future__ import annotations

import datetime as dt

import msgspec

from wingbeat.engine.state import EngineState, read_state, write_state
from wingbeat.engine.status import copy_status
from wingbeat.resources import (
    ActionEvent,
    ActionPhase,
    CacheStatus,
    ErrorInfo,
    Reason,
    TaskAction,
    TaskActionStatus,
)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell must do, in this order: abort, persist status with events, finalize, wake."""

    status: TaskActionStatus | None = None
    """The status to persist; None: nothing changed."""
    events: tuple[ActionEvent, ...] = ()
    wait_reason: str | None = None
    abort_attempt: bool = False
    """End what runs for this attempt before the status is written."""
    finalize_attempt: bool = False
    """Free what the attempt holds once the status is written."""
    again: bool = False
    wake_at: dt.datetime | None = None


class Draft:
    """A status in the making: a copy of the action, its engine state, and the events that go with them."""

    def __init__(self, action: TaskAction, state: EngineState, now: dt.datetime) -> None:
        self.original = action
        self.action = msgspec.structs.replace(action, status=copy_status(action.status))
        self.state = msgspec.structs.replace(state)
        self.now = now
        self.events: list[ActionEvent] = []

    @property
    def status(self) -> TaskActionStatus:
        return self.action.status

    def event(
        self,
        phase: ActionPhase,
        *,
        at: dt.datetime | None = None,
        final: bool = True,
        error: ErrorInfo | None = None,
        reasons: tuple[Reason, ...] = (),
        output_uri: str = "",
        report_uri: str = "",
        cache: CacheStatus = CacheStatus.DISABLED,
        value: bytes = b"",
        signalled_by: str = "",
        abort_reason: str = "",
        aborted_by: str = "",
    ) -> None:
        self.events.append(
            ActionEvent(
                id=self.action.id,
                attempt=self.action.attempt,
                phase=phase,
                version=self.state.event_version,
                occurred_at=at or self.now,
                final=final,
                error=error,
                reasons=reasons,
                output_uri=output_uri,
                report_uri=report_uri,
                cache_status=cache,
                value=value,
                signalled_by=signalled_by,
                abort_reason=abort_reason,
                aborted_by=aborted_by,
                logs_available=self.state.logs_available,
            )
        )
        self.state.event_version += 1
        self.state.phase = phase

    def finish(
        self,
        *,
        wait_reason: str | None = None,
        abort: bool = False,
        finalize: bool = False,
        again: bool = False,
        wake_at: dt.datetime | None = None,
    ) -> Decision:
        old, new = self.original.status, self.status
        new.attempts = new.attempts or 1
        new.state_json = old.state_json
        changed = bool(self.events) or new != old or self.state != read_state(self.original)
        if changed:
            new.state_json = write_state(self.action, self.state, self.now)
        return Decision(
            status=new if changed else None,
            events=tuple(self.events),
            wait_reason=wait_reason if changed else None,
            abort_attempt=abort,
            finalize_attempt=finalize,
            again=again,
            wake_at=wake_at,
        )
