"""Sizes and durations as people write them: `8GiB`, `512M`, `90s`, `2h`, `7d`."""

from __future__ import annotations

import re
from typing import Any

_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SECONDS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_size(value: Any) -> Any:
    """Bytes. Anything but text is given back as it is, for the type check to judge."""
    if not isinstance(value, str):
        return value
    found = _QUANTITY.fullmatch(value)
    unit = found[2].lower().removesuffix("b") if found else ""
    if not found or unit not in _SIZES:
        raise ValueError(f"{value!r} is no size: write bytes, or a number with a unit, such as 512MiB or 8GiB")
    return int(float(found[1]) * _SIZES[unit])


def parse_seconds(value: Any) -> Any:
    """Seconds. Anything but text is given back as it is, for the type check to judge."""
    if not isinstance(value, str):
        return value
    found = _QUANTITY.fullmatch(value)
    if not found or found[2].lower() not in _SECONDS:
        raise ValueError(f"{value!r} is no duration: write seconds, or a number with a unit, such as 90s, 10m or 7d")
    return float(found[1]) * _SECONDS[found[2].lower()]


def format_size(size: float) -> str:
    """A size in bytes for people, with three digits or fewer."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000 or unit == "GiB":
            return f"{size:.0f} {unit}" if size >= 100 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
