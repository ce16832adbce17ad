"""`make demo`: start Wingbeat, run a real workflow with the flyte CLI, show where to look.

Everything it makes is in `.demo/` and goes with it. With CI=1 or DEMO_KEEP=0 the server is stopped at the end.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parent.parent
DATA = ROOT / ".demo"
BIN = pathlib.Path(sys.executable).parent
KEEP = os.environ.get("DEMO_KEEP", "0" if os.environ.get("CI") else "1") != "0"
ENV = {**os.environ, "DO_NOT_TRACK": "1", "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
FLYTE = ["flyte", "--config", str(DATA / "flyte.yaml")]


def title(text: str) -> None:
    print(f"\n\033[1m== {text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


def show(*command: str) -> None:
    """Run a command as a user would, showing it first; a failure ends the demo with its exit code."""
    words = [str(pathlib.Path(w).relative_to(ROOT)) if w.startswith(str(ROOT)) else w for w in command]
    print(f"$ {' '.join(words)}", flush=True)
    code = subprocess.run(command, cwd=ROOT, env=ENV).returncode
    if code != 0:
        print(f"demo: that ended with exit code {code}; the server's log is {DATA / 'server.log'}", file=sys.stderr)
        stop()
        raise SystemExit(code)


def stop() -> None:
    subprocess.run(["wingbeat", "stop", "--data-dir", str(DATA)], cwd=ROOT, env=ENV)


def main() -> None:
    begin = time.monotonic()
    title("Start Wingbeat in the background: no Docker, no Kubernetes, no account")
    show("wingbeat", "up", "--detach", "--data-dir", str(DATA))

    title("Run a workflow with the flyte CLI: files side by side, a data frame, a retried step, a report")
    run = f"demo{int(time.time()) % 10**8}"
    show(*FLYTE, "run", "--follow", "--name", run, "examples/bookshelf.py", "main", "--texts", "4")

    title("What it did: every step was a process of its own; the flaky one took two attempts")
    show(*FLYTE, "get", "action", run)

    title("What came out")
    show(*FLYTE, "get", "io", run)

    title(f"Done in {time.monotonic() - begin:.0f} s. Now yours")
    endpoint = next(
        line.split("endpoint:")[1].strip()
        for line in (DATA / "flyte.yaml").read_text().splitlines()
        if "endpoint:" in line
    )
    print(
        f"  look inside   {endpoint}/v2/domain/development/project/default/runs/{run}\n"
        f"  run a file    .venv/bin/flyte --config .demo/flyte.yaml run examples/hello.py main --n 3\n"
        f"  its logs      .venv/bin/flyte --config .demo/flyte.yaml get logs {run}\n"
        f"  how it is     .venv/bin/wingbeat status --data-dir .demo\n"
        f"  stop          .venv/bin/wingbeat stop --data-dir .demo"
    )
    if not KEEP:
        title("Stop (CI or DEMO_KEEP=0)")
        stop()


if __name__ == "__main__":
    main()
