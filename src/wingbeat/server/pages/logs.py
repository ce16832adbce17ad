"""Logs of an attempt: read within bounds, without terminal codes, and live."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from typing import Protocol

from wingbeat.resources import ActionId
from wingbeat.server.pages.markup import Html, join, tag

SHOWN_LINES = 500
"""Lines from the end of the log that a page shows; the raw log has all."""
MAX_LINE = 4_000
"""Characters shown of one line."""
READ_SECONDS = 5.0
"""A page does not wait longer for the lines that are there already."""

_TERMINAL_CODES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
"""Escape sequences: colours and cursor moves (CSI), titles and links (OSC and its like), the short ones."""


class LogLine(Protocol):
    """One line of output, or a piece of a very long one."""

    @property
    def timestamp(self) -> dt.datetime: ...

    @property
    def originator(self) -> str:
        """`user`: the process wrote it; `system`: it was said about the process."""

    @property
    def text(self) -> str: ...

    @property
    def complete(self) -> bool:
        """False for a piece of a line that goes on with the next one."""


class LogSource(Protocol):
    """Where the lines of an attempt come from."""

    def lines(self, id: ActionId, attempt: int, *, follow: bool, last: int = 0) -> AsyncIterator[Sequence[LogLine]]:
        """Batches of lines, oldest first. `last` starts that many lines before the end (0: at the start). With
        `follow` it ends when the attempt has; without, at what is there now. No log: no batch."""


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
    """The last lines there are now, in READ_SECONDS at most."""
    found: deque[LogLine] = deque(maxlen=limit)
    try:
        async with asyncio.timeout(READ_SECONDS):
            iterator = source.lines(id, attempt, follow=False, last=limit)
            async for batch in iterator:
                found.extend(batch)
    except TimeoutError:
        pass
    return list(found)


async def raw(source: LogSource, id: ActionId, attempt: int) -> AsyncGenerator[bytes, None]:
    """The whole log as text, in pieces."""
    async for batch in source.lines(id, attempt, follow=False):
        yield "".join(line.text.rstrip("\n") + ("\n" if line.complete else "") for line in batch).encode(
            "utf-8", "replace"
        )


class Tail:
    """Follows a log into a bounded buffer, so that a fast log and a slow reader cost no memory."""

    def __init__(self, source: LogSource, id: ActionId, attempt: int, limit: int = SHOWN_LINES) -> None:
        self._lines = source.lines(id, attempt, follow=True, last=limit)
        self._buffer: deque[LogLine] = deque(maxlen=limit)
        self._arrived = asyncio.Event()
        self._left_out = 0
        self.over = False
        self._task = asyncio.get_running_loop().create_task(self._pump())

    async def _pump(self) -> None:
        try:
            async for batch in self._lines:
                limit = self._buffer.maxlen or 0
                self._left_out += max(0, len(self._buffer) + len(batch) - limit)
                self._buffer.extend(batch)
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
