"""`make demo`: start Wingbeat, run a real workflow with the flyte CLI, show where to look.

Everything it makes is in `.demo/` and goes with it. With CI=1 or DEMO_KEEP=0 the server is stopped at the end.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.request
from typing import Any

ROOT = pathlib.Path(__file__).parent.parent
DATA = ROOT / ".demo"
BIN = pathlib.Path(sys.executable).parent
KEEP = os.environ.get("DEMO_KEEP", "0" if os.environ.get("CI") else "1") != "0"
WIDE = {} if sys.stdout.isatty() else {"COLUMNS": "150"}
ENV = {**os.environ, **WIDE, "DO_NOT_TRACK": "1", "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
FLYTE = ["flyte", "--config", str(DATA / "flyte.yaml")]
CLIENT_HOME = DATA / "client"
"""The flyte client remembers for a day what it has uploaded to an endpoint. A demo of another checkout may have had the
same endpoint with another data folder, so the demo's client has a memory of its own, which goes with the folder."""


def title(text: str) -> None:
    print(f"\n\033[1m== {text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


def show(*command: str) -> None:
    """Run a command as a user would, showing it first; a failure ends the demo with its exit code."""
    words = [str(pathlib.Path(w).relative_to(ROOT)) if w.startswith(str(ROOT)) else w for w in command]
    print(f"$ {' '.join(words)}", flush=True)
    env = ENV
    if command[0] == "flyte":
        CLIENT_HOME.mkdir(parents=True, exist_ok=True)
        env = {**ENV, "HOME": str(CLIENT_HOME)}
    code = subprocess.run(command, cwd=ROOT, env=env).returncode
    if code != 0:
        print(f"demo: that ended with exit code {code}; the server's log is {DATA / 'server.log'}", file=sys.stderr)
        stop()
        raise SystemExit(code)


def stop() -> None:
    subprocess.run(["wingbeat", "stop", "--data-dir", str(DATA)], cwd=ROOT, env=ENV)


def actions(endpoint: str, run: str) -> list[dict[str, Any]]:
    """All actions of a run. The services speak JSON too, so a few lines of any language can ask them."""
    body = {
        "runId": {"org": "local", "project": "default", "domain": "development", "name": run},
        "request": {"limit": 100},
    }
    request = urllib.request.Request(
        f"{endpoint}/flyteidl2.workflow.RunService/ListActions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return list(json.load(answer).get("actions", []))


def moment(action: dict[str, Any]) -> dt.datetime:
    """When what is told of an action happened: its end, its start, or not yet."""
    status = action["status"]
    text = status.get("endTime") or status.get("startTime")
    return dt.datetime.fromisoformat(text) if text else dt.datetime.max.replace(tzinfo=dt.UTC)


def follow(endpoint: str, run: str) -> str:
    """Print what happens in a run as it happens; returns the phase that it ends in."""
    seen: dict[str, tuple[str, int]] = {}
    start: dt.datetime | None = None
    begin = time.monotonic()
    while time.monotonic() - begin < 300:
        for action in sorted(actions(endpoint, run), key=moment):
            name, status, metadata = action["id"]["name"], action["status"], action["metadata"]
            phase = status["phase"].removeprefix("ACTION_PHASE_")
            state = (phase, status.get("attempts", 1))
            if seen.get(name) == state:
                continue
            seen[name] = state
            if phase not in ("RUNNING", "SUCCEEDED", "FAILED", "ABORTED", "TIMED_OUT"):
                continue
            start = start or moment(action)
            since = (moment(action) - start).total_seconds()
            mark = {"RUNNING": ">", "SUCCEEDED": "+"}.get(phase, "x")
            note = f"in {int(status.get('durationMs', 0)) / 1000:.1f} s" if phase != "RUNNING" else ""
            if state[1] > 1:
                note += f" (attempt {state[1]})"
            indent = "" if name == "a0" else "  "
            title = indent + metadata["task"]["shortName"]
            print(f"  {mark} {since:5.1f} s  {title:<16} {phase.lower()} {note}", flush=True)
        if seen.get("a0", ("", 0))[0] in ("SUCCEEDED", "FAILED", "ABORTED", "TIMED_OUT"):
            return seen["a0"][0]
        time.sleep(0.15)
    return "not done after 5 minutes"


def main() -> None:
    begin = time.monotonic()
    title("Start Wingbeat in the background: no Docker, no Kubernetes, no account")
    show("wingbeat", "up", "--detach", "--data-dir", str(DATA))
    config = (DATA / "flyte.yaml").read_text()
    endpoint = re.search(r"endpoint: *(\S+)", config).group(1)  # type: ignore[union-attr]

    title("Run a workflow with the flyte CLI: files side by side, a data frame, a retried step, a report")
    run = f"demo{int(time.time()) % 10**8}"
    show(*FLYTE, "run", "--name", run, "examples/bookshelf.py", "main", "--texts", "4")
    print("Each line is a process that began or ended; the merge fails once on purpose and is tried again:")
    phase = follow(endpoint, run)
    if phase != "SUCCEEDED":
        print(f"demo: the run ended as {phase}; the server's log is {DATA / 'server.log'}", file=sys.stderr)
        show(*FLYTE, "get", "logs", run)
        stop()
        raise SystemExit(1)

    title("What came out")
    show(*FLYTE, "get", "io", run)

    title(f"Done in {time.monotonic() - begin:.0f} s" + (". Now yours" if KEEP else ""))
    rows = [
        ("look inside", f"{endpoint}/v2/domain/development/project/default/runs/{run}"),
        ("run a file", ".venv/bin/flyte --config .demo/flyte.yaml run examples/hello.py main --n 3"),
        ("its logs", f".venv/bin/flyte --config .demo/flyte.yaml get logs {run}"),
        ("how it is", ".venv/bin/wingbeat status --data-dir .demo"),
        ("stop", ".venv/bin/wingbeat stop --data-dir .demo"),
    ]
    for name, value in rows if KEEP else []:
        print(f"  {name:<12} {value}")
    if not KEEP:
        print("  (CI or DEMO_KEEP=0: nothing is left running)", flush=True)
        stop()


if __name__ == "__main__":
    main()
