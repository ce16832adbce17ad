"""Times as the tables hold them: whole microseconds since 1970, UTC."""

from __future__ import annotations

import datetime as dt

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def to_micros(time: dt.datetime) -> int:
    """Exact, unlike `timestamp()`. A time without a zone is taken as UTC."""
    if time.tzinfo is None:
        time = time.replace(tzinfo=dt.UTC)
    return (time - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=micros)


def optional_micros(time: dt.datetime | None) -> int | None:
    return None if time is None else to_micros(time)


def optional_time(micros: int | None) -> dt.datetime | None:
    return None if micros is None else from_micros(micros)
