"""Logs of an attempt: read within bounds, without terminal codes, and live."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from typing import Protocol, runtime_checkable

from wingbeat.control import LogLine, LogSource
from wingbeat.resources import ActionId
from wingbeat.server.pages.markup import Html, join, tag

SHOWN_LINES = 500
"""Lines from the end of the log that a page shows; the raw log has all."""
MAX_LINE = 4_000
"""Characters shown of one line."""
BATCH = 500
"""Lines between two turns of others."""
READ_SECONDS = 5.0
"""A page does not wait longer for the lines that are there already."""

_TERMINAL_CODES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
"""Escape sequences: colours and cursor moves (CSI), titles and links (OSC and its like), the short ones."""


@runtime_checkable
class BatchSource(Protocol):
    """A source that need not hand out a long log from its start, nor line by line."""

    def lines(self, id: ActionId, attempt: int, *, follow: bool, last: int = 0) -> AsyncIterator[Sequence[LogLine]]:
        """As `LogSource.read`, in batches; `last` begins that many lines before the end of what is there now."""


def clean(text: str) -> str:
    """One line of output as a terminal would leave it: no codes, and of progress bars only the last state."""
    text = _TERMINAL_CODES.sub("", text.rstrip("\r\n"))
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part), "")
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}… ({len(text) - MAX_LINE:,} more characters)"


def render(lines: Iterable[LogLine]) -> Html:
    """One element a line, each ending in a line feed."""
    return join(
        tag(
            "span",
            clean(line.text),
            "\n" if line.complete else None,
            class_="line system" if line.originator == "system" else "line",
            title=line.timestamp.astimezone(dt.UTC).isoformat(timespec="milliseconds"),
        )
        for line in lines
    )


async def read_last(source: LogSource, id: ActionId, attempt: int, limit: int = SHOWN_LINES) -> list[LogLine]:
    """The last lines there are now; of a source that reads slowly, what READ_SECONDS give."""
    found: deque[LogLine] = deque(maxlen=limit)
    try:
        async with asyncio.timeout(READ_SECONDS):
            async for line in _end_of(source, id, attempt, limit, follow=False):
                found.append(line)
    except TimeoutError:
        pass
    return list(found)


async def _yielding(lines: AsyncIterator[LogLine]) -> AsyncIterator[LogLine]:
    """The same lines; others get their turn on the event loop even if they are all there already."""
    count = 0
    async for line in lines:
        yield line
        count += 1
        if count % BATCH == 0:
            await asyncio.sleep(0)


async def _end_of(
    source: LogSource, id: ActionId, attempt: int, limit: int, *, follow: bool
) -> AsyncGenerator[LogLine, None]:
    """The last lines (of a source that can only start at the beginning: all), and with `follow` those to come."""
    if not isinstance(source, BatchSource):
        async for line in _yielding(source.read(id, attempt, follow=follow)):
            yield line
        return
    async for batch in source.lines(id, attempt, follow=follow, last=limit):
        for line in batch:
            yield line


async def raw(source: LogSource, id: ActionId, attempt: int) -> AsyncGenerator[bytes, None]:
    """The whole log as text, in pieces."""
    batch: list[str] = []
    async for line in _yielding(source.read(id, attempt, follow=False)):
        batch.append(line.text + ("\n" if line.complete else ""))
        if len(batch) >= BATCH:
            yield "".join(batch).encode("utf-8", "replace")
            batch.clear()
    yield "".join(batch).encode("utf-8", "replace")


class Tail:
    """Follows a log into a bounded buffer, so that a fast log and a slow reader cost no memory."""

    def __init__(self, source: LogSource, id: ActionId, attempt: int, limit: int = SHOWN_LINES) -> None:
        self._lines = _end_of(source, id, attempt, limit, follow=True)
        self._buffer: deque[LogLine] = deque(maxlen=limit)
        self._arrived = asyncio.Event()
        self._left_out = 0
        self.over = False
        self._task = asyncio.get_running_loop().create_task(self._pump())

    async def _pump(self) -> None:
        try:
            async for line in self._lines:
                self._left_out += len(self._buffer) == self._buffer.maxlen
                self._buffer.append(line)
                self._arrived.set()
        finally:
            self.over = True
            self._arrived.set()

    async def take(self, timeout: float) -> tuple[list[LogLine], int]:
        """New lines, and how many before them were left out; waits for at most `timeout` seconds. Raises what the
        source raised."""
        if not self._buffer and not self.over:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), timeout)
            except TimeoutError:
                return [], 0
        if self._task.done() and not self._buffer:
            self._task.result()
        lines, left_out = list(self._buffer), self._left_out
        self._buffer.clear()
        self._left_out = 0
        return lines, left_out

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
