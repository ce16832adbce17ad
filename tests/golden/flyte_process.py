"""The `flyte` command without its start-up: `flyte_process.py` imports the SDK once and then runs one command a line.

Each is run in a fork of its own, by the command's own entry point, so nothing of one is left for the next. A line is a
JSON object with `args`, `cwd` and `output` (the file that takes what the command prints); the answer is its exit code.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

import flyte
import flyte.cli.main
from flyte.syncify import syncify

# What a command would import later, so that it is shared as well.
for name in ("_run", "_get", "_deploy", "_rerun", "_delete", "_common", "_params"):
    importlib.import_module(f"flyte.cli.{name}")


def run(ask: dict[str, Any]) -> int:
    """The exit code of the command."""
    output = os.open(ask["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor, target in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
        os.dup2(descriptor, target)
    # A fork has one thread; the loop that the SDK runs in the background needs its own again.
    syncify._bg_loop.__init__("flyte_syncify")  # type: ignore[misc]
    os.chdir(ask["cwd"])
    sys.argv = ["flyte", *ask["args"]]
    code: Any = 0
    try:
        flyte.cli.main.main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


def main() -> None:
    for line in sys.stdin:
        ask = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code = run(ask)
            finally:
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
