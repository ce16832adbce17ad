"""The time, in the two forms that the control plane needs."""

from __future__ import annotations

import datetime as dt

from wingbeat.database.times import to_micros


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def now_micros() -> int:
    """Microseconds since 1970."""
    return to_micros(now())
