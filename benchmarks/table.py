"""What a program measured: rows of ours, the peer or floor, and their ratio; printed as a table and kept as JSON."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import platform
import statistics
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


@dataclasses.dataclass
class Row:
    """`ours` and `theirs` hold a value for each round. The ratio is taken round by round, so that both sides of it
    saw the same machine."""

    what: str
    unit: str
    ours: list[float]
    theirs: list[float] = dataclasses.field(default_factory=list)
    peer: str = ""
    target: str = ""

    @property
    def ratios(self) -> list[float]:
        if len(self.ours) == len(self.theirs):
            return [a / b for a, b in zip(self.ours, self.theirs, strict=True) if b]
        return [statistics.median(self.ours) / statistics.median(self.theirs)] if self.ours and self.theirs else []

    def cells(self) -> list[str]:
        return [
            self.what,
            self.unit,
            spread(self.ours),
            spread(self.theirs),
            spread(self.ratios),
            self.peer,
            self.target,
        ]


def spread(values: list[float]) -> str:
    """The median, and the least and greatest where there are several."""
    if not values:
        return ""
    middle = number(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({number(min(values))}..{number(max(values))})"


def number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


HEADS = ["what", "unit", "ours", "other", "ours / other", "the other is", "target"]


def markdown(rows: list[Row]) -> str:
    table = [HEADS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEADS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in table
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": [round(x, 1) for x in os.getloadavg()],
    }


def save(name: str, rows: list[Row], notes: list[str]) -> None:
    """Into results/<name>.json, and into results/latest.json with what the other programs said last."""
    RESULTS.mkdir(exist_ok=True)
    value = {
        "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "rows": [{**dataclasses.asdict(row), "ratios": row.ratios} for row in rows],
        "notes": notes,
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(value, indent=1) + "\n")
    latest = RESULTS / "latest.json"
    everything = json.loads(latest.read_text()) if latest.exists() else {}
    everything[name] = value
    latest.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n")
