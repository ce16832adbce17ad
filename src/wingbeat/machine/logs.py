"""Reading the log files of launches.

A log is a file of lines `<microseconds since 1970> <kind> <text>`. Kinds: `U` a line of the process's output, `u` a
piece of one that goes on with the next, `S` a line of the machine's own. Past half of the launch's limit it goes on in
numbered pieces beside the file (`<path>.1`, `<path>.2`, ...), of which only the newest two are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

BLOCK = 1 << 18
POLL_SECONDS = 0.1
FIRST_POLL_SECONDS = 0.02


class LogLine(NamedTuple):
    timestamp: dt.datetime
    originator: str
    """`user` or `system`."""
    text: str
    """Without its end of line."""
    complete: bool = True
    """False for a piece of a line that goes on with the next one."""


def log_files(path: str | Path) -> list[Path]:
    """The files that make up a log, oldest first; those that are there."""
    path = Path(path)
    pieces = []
    with contextlib.suppress(OSError):
        for candidate in path.parent.iterdir():
            suffix = candidate.name[len(path.name) + 1 :]
            if candidate.name.startswith(path.name + ".") and suffix.isdigit():
                pieces.append((int(suffix), candidate))
    return ([path] if path.exists() else []) + [piece for _, piece in sorted(pieces)]


def remove_log(path: str | Path) -> None:
    """Delete a log with all its pieces."""
    for file in log_files(path):
        file.unlink(missing_ok=True)


def append_note(path: str | Path, text: str) -> None:
    """Add a line of the machine's own; for when no zygote does it. One write, so it never tears another line."""
    files = log_files(path)
    target = files[-1] if files else Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    line = f"{time.time_ns() // 1000} S {text}\n".encode(errors="replace")
    with open(target, "ab", buffering=0) as file:
        file.write(line)


def read_log(path: str | Path) -> Iterator[LogLine]:
    """Every line that is there now, oldest first, in bounded memory."""
    reader = _Reader(Path(path))
    try:
        while lines := reader.read():
            yield from lines
    finally:
        reader.close()


def tail_log(path: str | Path, count: int, *, most_bytes: int = BLOCK) -> list[LogLine]:
    """About the last `count` lines that are there now, oldest first, from the last `most_bytes` of the log."""
    chunks: list[bytes] = []
    left = most_bytes
    for file in reversed(log_files(path)):
        with contextlib.suppress(OSError), open(file, "rb") as handle:
            size = handle.seek(0, 2)
            handle.seek(max(0, size - left))
            data = handle.read(left)
            if size > left:
                data = data.partition(b"\n")[2]
            chunks.append(data)
            left -= len(data)
        if left <= 0:
            break
    reader = _Reader(Path(path))
    lines = [line for line in b"".join(reversed(chunks)).split(b"\n") if line]
    return [reader.parse(line) for line in lines[-count:]]


async def follow_log(
    path: str | Path, done: Callable[[], Awaitable[object]], *, poll: float = POLL_SECONDS
) -> AsyncIterator[LogLine]:
    """Every line, and new ones as they come. `done()` is awaited once; when it returns, the process has ended, what
    is in the log is yielded to its end, and the iterator ends. The file need not be there yet."""
    reader = _Reader(Path(path))
    ended = asyncio.ensure_future(done())
    pause = FIRST_POLL_SECONDS
    try:
        while True:
            last = ended.done()
            while lines := await asyncio.to_thread(reader.read):
                pause = FIRST_POLL_SECONDS
                for line in lines:
                    yield line
            if last:
                await ended
                return
            await asyncio.wait([ended], timeout=pause)
            pause = min(pause * 1.5, poll)
    finally:
        ended.cancel()
        reader.close()


class _Reader:
    """Reads forward through the pieces of a log, from wherever it stands."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0
        self._file: BinaryIO | None = None
        self._rest = b""
        self._time = dt.datetime.now(dt.UTC)

    def read(self) -> list[LogLine]:
        """The next lines, about BLOCK bytes; empty when there are no more for now."""
        while True:
            if self._file is None and not self._open():
                return []
            assert self._file is not None
            # Whether there is a next piece is asked before the read: what is written between would be lost else.
            following = self._following()
            data = self._file.read(BLOCK)
            if data:
                *lines, self._rest = (self._rest + data).split(b"\n")
                if lines:
                    return [self.parse(line) for line in lines]
                continue
            if following is None:
                return []
            skipped = following - self._number - 1
            self.close()
            self._number = following
            if skipped:
                return [LogLine(self._time, "system", "... the log passed its limit; a part is missing here ...")]

    def _open(self) -> bool:
        path = self._path if self._number == 0 else self._path.with_name(f"{self._path.name}.{self._number}")
        try:
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by close()
        except FileNotFoundError:
            following = self._following()
            if following is None:
                return False
            self._number = following
            return self._open()
        self._rest = b""
        return True

    def _following(self) -> int | None:
        """The number of the next piece that is there."""
        numbers = [int(file.name[len(self._path.name) + 1 :]) for file in log_files(self._path) if file != self._path]
        return min((number for number in numbers if number > self._number), default=None)

    def parse(self, line: bytes) -> LogLine:
        stamp, _, rest = line.partition(b" ")
        kind, _, text = rest.partition(b" ")
        try:
            self._time = dt.datetime.fromtimestamp(int(stamp) / 1e6, dt.UTC)
        except (ValueError, OverflowError, OSError):
            return LogLine(self._time, "user", line.decode(errors="replace"))
        originator = "system" if kind == b"S" else "user"
        return LogLine(self._time, originator, text.decode(errors="replace"), kind != b"u")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
