"""`python -m benchmarks [--quick] [name...]`: run the programs, all of them when none is named."""

from __future__ import annotations

import importlib
import os
import sys
import time

from benchmarks.table import markdown, save

PROGRAMS = ("engine", "start", "idle", "latency", "fanout", "bulk", "peers")


def main() -> int:
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    names = [word for word in sys.argv[1:] if not word.startswith("-")] or list(PROGRAMS)
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown or set(options) - {"--quick", "--install"}:
        print(f"usage: python -m benchmarks [--quick] [--install] [{'|'.join(PROGRAMS)} ...]", file=sys.stderr)
        return 2
    for name in names:
        begin = time.monotonic()
        print(f"\n## {name} (load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} CPUs)", flush=True)
        rows, notes = importlib.import_module(f"benchmarks.{name}").measure(
            quick="--quick" in options, **({"install": "--install" in options} if name == "peers" else {})
        )
        if rows:
            print(markdown(rows))
            save(name, rows, notes)
        for note in notes:
            print(f"- {note}")
        print(f"- took {time.monotonic() - begin:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
