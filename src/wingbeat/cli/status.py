"""`wingbeat status`."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import rich_click as click

from wingbeat.cli.errors import EXIT_FAILED, EXIT_NOT_RUNNING, command
from wingbeat.cli.options import folder_of, output_option, setting_options
from wingbeat.cli.running import describe, readiness
from wingbeat.server.settings import default_data_dir


@click.command()
@setting_options("data_dir")
@output_option
def status(output: str, **values: Any) -> None:
    """Say whether the server runs, and where. Exit code 0: ready; 1: running, not ready; 3: not running."""
    folder = folder_of(values)
    info = folder.server()
    ready, why = readiness(info.endpoint) if info else (False, "")
    if info is None:
        starting = folder.is_served()
        state = "starting" if starting else "stopped"
        here = () if folder.path == default_data_dir().resolve() else ("--data-dir", folder.path)
        facts: dict[str, Any] = {"state": state, "data_dir": str(folder.path)}
        text = f"Wingbeat is {'starting' if starting else 'not running'} (data folder {folder.path})." + (
            "" if starting else f"\nStart it:\n  {command('wingbeat', 'up', '--detach', *here)}"
        )
        code = EXIT_FAILED if starting else EXIT_NOT_RUNNING
    else:
        facts = {
            "state": "ready" if ready else "not ready",
            "reason": why,
            "pid": info.pid,
            "endpoint": info.endpoint,
            "version": info.version,
            "seconds": round(time.time() - info.started_at, 1),
            "data_dir": str(folder.path),
            "client_config": str(folder.client_config),
            "python": info.python,
            "python_version": info.python_version,
            "sdk_version": info.sdk_version,
            "log": info.log,
        }
        what = "ready" if ready else f"running, but not ready: {why}"
        since = _duration(time.time() - info.started_at)
        text = f"Wingbeat {info.version} is {what} (pid {info.pid}, for {since}).\n{describe(folder, info)}"
        code = 0 if ready else EXIT_FAILED
    click.echo(json.dumps(facts, indent=2) if output == "json" else text)
    sys.exit(code)


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
