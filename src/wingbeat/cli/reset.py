"""`wingbeat reset`: an empty data folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import rich_click as click

from wingbeat.cli.errors import CliError, command, explained
from wingbeat.cli.leftovers import end_leftovers
from wingbeat.cli.options import setting_options, settings_of
from wingbeat.server.folder import DataFolder
from wingbeat.server.settings import CONFIG_NAME

KEPT = frozenset({CONFIG_NAME, "lock", "id", "layout", "port", "flyte.yaml"})
"""Settings, and what clients know the server by."""


@click.command()
@setting_options("data_dir", "database", "storage")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def reset(yes: bool, **values: Any) -> None:
    """Remove all runs, data and logs of the data folder. Settings and port stay."""
    settings = settings_of(values)
    folder = DataFolder(settings.data_dir)
    if not folder.path.exists():
        click.echo(f"There is no data folder {folder.path}: nothing to remove.")
        return
    if not folder.is_ours():
        raise CliError(f"{folder.path} is no data folder of Wingbeat; nothing was removed", "wingbeat config")
    with explained(folder.path):
        held = folder.lock()
    if held is None:
        raise CliError(
            f"a server uses the data folder {folder.path}; nothing was removed",
            command("wingbeat", "stop", "--data-dir", folder.path),
        )
    with held:
        doomed = sorted(path for path in folder.path.iterdir() if path.name not in KEPT)
        if not doomed:
            click.echo(f"The data folder {folder.path} is empty already.")
            return
        if not yes:
            names = ", ".join(path.name for path in doomed)
            click.confirm(f"Remove all runs and data in {folder.path} ({names})?", abort=True)
        end_leftovers(folder)
        for path in doomed:
            _remove(path)
    click.echo(f"Removed {len(doomed)} entries of {folder.path}.")
    for name, place in (("database", settings.database), ("storage", settings.storage)):
        if place:
            click.echo(f"The {name} is elsewhere and was not touched: {settings.shown()[name]}")


def _remove(path: Path) -> None:
    """Links are removed, never what they lead to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
