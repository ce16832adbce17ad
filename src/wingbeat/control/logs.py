"""Logs of attempts, whoever keeps them."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol

import msgspec

from wingbeat.resources import ActionId, ActionRecord, CacheStatus

BATCH = 100
"""Lines in one message."""
BUFFER = 2000
"""Lines read ahead of a slow client."""


class LogLine(msgspec.Struct, frozen=True):
    timestamp: dt.datetime
    originator: str
    """`user` or `system`."""
    text: str
    """Without its end of line."""
    complete: bool = True
    """False for a piece of a long line, which goes on with the next one."""


class LogSource(Protocol):
    async def available(self, id: ActionId, attempt: int) -> bool:
        """Whether there is a log of this attempt (it may be empty yet)."""

    def read(self, id: ActionId, attempt: int, *, follow: bool) -> AsyncIterator[LogLine]:
        """The lines, oldest first. With `follow` also those that come, until the attempt's process has ended."""


class NoLogs:
    """For a server that keeps none."""

    async def available(self, id: ActionId, attempt: int) -> bool:
        return False

    async def read(self, id: ActionId, attempt: int, *, follow: bool) -> AsyncIterator[LogLine]:
        return
        yield


def instead_of_log(record: ActionRecord) -> list[LogLine]:
    """What is said for an action that ended and has no log, as no process of it was started: why. Who follows a run
    would otherwise wait for a log and then learn only that there is none."""
    if not record.phase.terminal:
        return []
    if record.error is not None:
        text = f"{record.error.code}: {record.error.message}" if record.error.code else record.error.message
    elif record.abort_reason:
        text = f"aborted: {record.abort_reason}"
    elif record.cache_status == CacheStatus.HIT:
        text = "no process was started: the outputs were in the cache"
    else:
        return []
    at = record.ended_at or record.created_at
    return [LogLine(at, "system", line) for line in text.splitlines()]


async def in_batches(lines: AsyncIterator[LogLine], silence: float) -> AsyncGenerator[list[LogLine], None]:
    """The lines in lists of at most BATCH, as soon as they are there; an empty list after `silence` seconds without
    any. Reads at most BUFFER lines ahead."""
    buffer: list[LogLine] = []
    changed = asyncio.Event()
    space = asyncio.Event()
    space.set()

    async def pump() -> None:
        try:
            async for line in lines:
                buffer.append(line)
                changed.set()
                if len(buffer) >= BUFFER:
                    space.clear()
                    await space.wait()
                elif len(buffer) % BATCH == 0:
                    await asyncio.sleep(0)
        finally:
            changed.set()

    pumping = asyncio.ensure_future(pump())
    try:
        while True:
            if not buffer and not pumping.done():
                changed.clear()
                try:
                    await asyncio.wait_for(changed.wait(), silence)
                except TimeoutError:
                    yield []
                    continue
            taken = buffer[:BATCH]
            del buffer[:BATCH]
            space.set()
            if taken:
                yield taken
            elif pumping.done():
                await pumping
                return
    finally:
        pumping.cancel()
        await asyncio.gather(pumping, return_exceptions=True)
