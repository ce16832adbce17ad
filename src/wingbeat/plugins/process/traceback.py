"""The user's own traceback, found in what the process wrote: the SDK's error file holds only the exception's text."""

from __future__ import annotations

import re
from collections.abc import Sequence

HEADER = "Traceback (most recent call last):"
SEARCHED_LINES = 400
MAX_LINES = 80
_SDK_FRAME = re.compile(r'\s+File "[^"]*/site-packages/flyte/[^"]*", line ')
_FRAME = re.compile(r'\s+File "')
_WORK = re.compile(r'(\s+File ")[^"]*/work/(?:\./)*')


def last_traceback(lines: Sequence[str]) -> str:
    """The last traceback in `lines`, without the frames of the SDK and with paths relative to the task's folder; empty
    where there is none. Bounded by MAX_LINES (the innermost frames are kept)."""
    start = max((i for i, line in enumerate(lines) if line.rstrip() == HEADER), default=None)
    if start is None:
        return ""
    frames: list[str] = []
    skipping = False
    end: list[str] = []
    for line in lines[start + 1 :]:
        if line.startswith((" ", "\t")) or not line.strip():
            if _FRAME.match(line):
                skipping = bool(_SDK_FRAME.match(line))
            if not skipping:
                frames.append(_WORK.sub(r"\1", line.rstrip()))
            continue
        end.append(line.rstrip())
        break
    if not end:
        return ""
    return "\n".join([HEADER, *frames[-MAX_LINES:], *end])
