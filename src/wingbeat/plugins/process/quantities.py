"""Kubernetes quantities (`500m`, `1Gi`, `2e3`) as numbers."""

from __future__ import annotations

import re

_SUFFIX = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
    "Ei": 2.0**60,
}
_QUANTITY = re.compile(r"([+]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)([numkMGTPE]i?|[KMGTPE]i)?")


def parse_quantity(text: str) -> float:
    """The number that `text` stands for. Raises ValueError for anything else."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or (match.group(2) or "") not in _SUFFIX:
        raise ValueError(f"{text!r} is not a quantity such as 2, 500m or 1Gi")
    return float(match.group(1)) * _SUFFIX[match.group(2) or ""]
