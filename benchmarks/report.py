"""`python -m benchmarks.report`: the tables of results/latest.json, for README.md."""

from __future__ import annotations

import json
import sys

from benchmarks.table import RESULTS, Row, markdown


def main() -> int:
    path = RESULTS / "latest.json"
    if not path.exists():
        print(f"{path} is not there: run make bench first", file=sys.stderr)
        return 1
    for name, value in json.loads(path.read_text()).items():
        machine = value["machine"]
        load = "/".join(f"{x:g}" for x in machine["load"])
        print(f"### {name}\n\nMeasured {value['at']}, {machine['cpus']} CPUs, load {load} at the end.\n")
        rows = [Row(**{key: cell for key, cell in row.items() if key != "ratios"}) for row in value["rows"]]
        print(markdown(rows))
        for note in value["notes"]:
            print(f"\n{note}")
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
