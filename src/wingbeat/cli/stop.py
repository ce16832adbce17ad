"""`wingbeat stop`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import rich_click as click

from wingbeat.cli.errors import EXIT_NOT_RUNNING, CliError, command
from wingbeat.cli.leftovers import end_leftovers
from wingbeat.cli.options import setting_options, settings_of
from wingbeat.cli.running import wait_until
from wingbeat.server.folder import DataFolder, StopRequest


@click.command()
@setting_options("data_dir")
@click.option("--keep-tasks", is_flag=True, help="Leave running tasks alone; the next server takes them up.")
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds to wait for its end.")
def stop(keep_tasks: bool, timeout: float, **values: Any) -> None:
    """Stop the server, and what it has started. Runs go on at the next `wingbeat up`."""
    folder = DataFolder(settings_of(values).data_dir)
    info = folder.server()
    if info is None:
        if folder.is_served():
            raise CliError(
                f"the server of {folder.path} is just starting or ending",
                command("wingbeat", "status", "--data-dir", folder.path),
            )
        ended = False if keep_tasks else _end_leftovers(folder)
        what = "; ended the tasks that an earlier server had left" if ended else ""
        click.echo(f"Wingbeat is not running (data folder {folder.path}){what}.")
        sys.exit(EXIT_NOT_RUNNING)
    folder.request_stop(StopRequest(keep_tasks=keep_tasks))
    try:
        # By a handle of the process: a pid may have been given to another one meanwhile.
        handle = os.pidfd_open(info.pid)
        try:
            if info.is_alive():
                signal.pidfd_send_signal(handle, signal.SIGTERM)
        finally:
            os.close(handle)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise CliError(
            f"the server (pid {info.pid}) belongs to another user",
            command("sudo", "wingbeat", "stop", "--data-dir", folder.path),
        ) from None
    if not wait_until(lambda: not info.is_alive(), timeout):
        raise CliError(
            f"the server (pid {info.pid}) still runs after {timeout:g} s", command("kill", "-9", str(info.pid))
        )
    kept = " Its tasks run on; `wingbeat up` takes them up." if keep_tasks else ""
    click.echo(f"Stopped the server (pid {info.pid}).{kept}")


def _end_leftovers(folder: DataFolder) -> bool:
    if not folder.is_ours():
        return False
    held = folder.lock()
    if held is None:  # a server has just started: what is left is its own now
        return False
    with held:
        return end_leftovers(folder)
