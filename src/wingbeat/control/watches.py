"""The watches: subscribe, read, send what is there, then every change, and a sign of life when nothing changes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from flyteidl2.workflow.state_service_pb2 import ControlMessage

from wingbeat.control import wire
from wingbeat.control.feed import Feed
from wingbeat.control.names import missing_action
from wingbeat.control.specs import Specs
from wingbeat.control.waiting import Waiting
from wingbeat.database import RecordNotFound, Records
from wingbeat.resources import ActionId, ActionRecord, ActionType

SENTINEL = ControlMessage(sentinel=True)


class Watches:
    def __init__(self, records: Records, specs: Specs, feed: Feed, waiting: Waiting, heartbeat: float) -> None:
        self._records = records
        self._specs = specs
        self._feed = feed
        self._waiting = waiting
        self._heartbeat = heartbeat

    async def children(self, parent: ActionId) -> AsyncGenerator[Any, None]:
        """ActionUpdates of the children of `parent`, finished ones too; the sentinel (a ControlMessage) once all that
        were there are sent, and again as the sign of life. Without end.

        A condition is told of once it has ended. The SDK that hears of one before its task has asked for it (the
        second attempt of a task, a task after a restart of the server) takes it for a task, drops the answer that
        comes later, and gives None to the waiting code."""
        watch = self._waiting.open(parent)
        with self._feed.children(parent) as changes:
            changes.on_record = watch.saw
            try:
                for record in await self._records.children(parent):
                    changes.offer(record)
                for record in await changes.take(0):
                    if _is_told(record):
                        yield wire.action_update(record)
                yield SENTINEL
                while True:
                    changed = await changes.take(self._heartbeat)
                    told = [record for record in changed if _is_told(record)]
                    for record in told:
                        yield wire.action_update(record)
                    if not told:
                        yield SENTINEL
            finally:
                watch.close()

    async def record(self, id: ActionId) -> AsyncGenerator[ActionRecord, None]:
        """The states of one record, the last of which is terminal; repeated as the sign of life. Raises Missing."""
        with self._feed.action(id) as changes:
            try:
                record = await self._records.get(id)
            except RecordNotFound:
                raise missing_action(id) from None
            changes.offer(record)
            while True:
                for latest in await changes.take(self._heartbeat):
                    record = latest
                yield record
                if record.phase.terminal:
                    return

    async def details(self, id: ActionId) -> AsyncGenerator[Any, None]:
        """ActionDetails, as `record`."""
        async with aclosing(self.record(id)) as records:
            async for record in records:
                yield await self.details_of(record)

    async def details_of(self, record: ActionRecord) -> Any:
        return wire.action_details(record, await self._records.attempts(record.id), await self._specs.of(record))

    async def run_details_of(self, record: ActionRecord) -> Any:
        return wire.run_details(record, await self._records.attempts(record.id), await self._specs.of(record))


def _is_told(child: ActionRecord) -> bool:
    return child.action_type != ActionType.CONDITION or child.phase.terminal
