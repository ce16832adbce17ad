"""Named points at which a test can end this process as `kill -9` would: `WINGBEAT_CRASH_AT=point` or `point:7`.

The number says at which passing it happens (the first if there is none). Nothing is cleaned up, nothing is flushed.
Without the variable a point costs one comparison.
"""

from __future__ import annotations

import os
import signal

POINTS = (
    "create.before-commit",
    "create.after-commit",
    "intent.before-write",
    "intent.after-write",
    "launch.before-request",
    "launch.after-request",
    "launch.before-fork",
    "launch.sent",
    "launch.after-fork",
    "progress.before-write",
    "progress.after-write",
    "result.before-write",
    "result.after-write",
    "finalize.before",
    "abort.accepted",
    "abort.before-kill",
    "abort.after-kill",
    "abort.after-event",
    "commit.before",
    "commit.after",
)
"""All there are; a test goes through every one of them."""

_point, _, _count = os.environ.get("WINGBEAT_CRASH_AT", "").partition(":")
_left = int(_count or 1)


def crash_point(name: str) -> None:
    """End the process here and now, if the environment says so."""
    global _left
    if name != _point:
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
