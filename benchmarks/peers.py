"""Prefect and Dagster on the same fan-out of trivial tasks, in process and with a process for each task.

They live in a virtual environment of their own, outside of the project: `--install` makes it, and without it this
program says NOT RUN. Their servers are not started where they can do without; results are kept in SQLite.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.fanout import fan_out
from benchmarks.serving import Server, folder
from benchmarks.table import Row

HOME = Path(os.environ.get("WINGBEAT_PEERS", Path(tempfile.gettempdir()) / "wingbeat-peers"))
PROGRAMS = Path(__file__).parent / "programs"
KINDS = {
    "prefect-inprocess": "Prefect, in process (threads)",
    "prefect-process": "Prefect, process pool",
    "dagster-inprocess": "Dagster, in process",
    "dagster-process": "Dagster, a process a step",
}


def python(*, install: bool) -> Path | None:
    path = HOME / "bin" / "python"
    if install and not path.exists():
        subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True)
        subprocess.run([str(path), "-m", "pip", "install", "-q", "prefect", "dagster"], check=True)
    return path if path.exists() else None


def peer(interpreter: Path, kind: str, count: int, home: Path) -> tuple[float, str]:
    """Tasks a second as the peer's own program measured them, and its version. Raises RuntimeError."""
    env = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR")}
    env |= {
        "HOME": str(home),
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_LOGGING_LEVEL": "ERROR",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "DO_NOT_TRACK": "1",
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "DAGSTER_HOME": str(home / "dagster"),
        "PYTHONPATH": str(PROGRAMS),
    }
    (home / "dagster").mkdir(exist_ok=True)
    (home / "dagster" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    program = PROGRAMS / f"peer_{kind.partition('-')[0]}.py"
    done = subprocess.run(
        [str(interpreter), str(program), kind.partition("-")[2], str(count)],
        env=env,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=600,
    )
    found = re.findall(r"^RESULT (\{.*\})$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not found:
        raise RuntimeError(f"{kind} failed:\n{(done.stdout + done.stderr)[-1500:]}")
    result = json.loads(found[-1])
    return count / float(result["seconds"]), str(result["version"])


def measure(*, quick: bool, install: bool) -> tuple[list[Row], list[str]]:
    interpreter = python(install=install)
    if interpreter is None:
        return [], [
            f"NOT RUN: there is no environment with the peers; `python -m benchmarks --install peers` makes {HOME}"
        ]
    rounds, count = (1, 10) if quick else (5, 40)
    ours: list[float] = []
    theirs: dict[str, list[float]] = {kind: [] for kind in KINDS}
    versions: dict[str, str] = {}
    failures: dict[str, str] = {}
    with folder() as home, Server(home) as server:
        server.wait_zygote()
        fan_out(server, 4)
        for _ in range(rounds):
            ours.append(count / fan_out(server, count)["seconds"])
            for kind in KINDS:
                if kind in failures:
                    continue
                try:
                    rate, version = peer(interpreter, kind, count, home)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    failures[kind] = str(error)
                else:
                    theirs[kind].append(rate)
                    versions[kind.partition("-")[0]] = version
    rows = [
        Row(f"fan-out of {count}, isolated", "tasks/s", ours, theirs[kind], text)
        for kind, text in KINDS.items()
        if kind not in failures
    ]
    notes = [f"versions: {', '.join(f'{name} {version}' for name, version in sorted(versions.items()))}"]
    return rows, notes + [f"NOT RUN: {KINDS[kind]}: {why}" for kind, why in failures.items()]
