"""Errors of the command line: what happened to which thing, and the one command to run next."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rich_click as click

EXIT_FAILED = 1
EXIT_USAGE = 2
"""A flag or a setting is wrong (also what click uses)."""
EXIT_NOT_RUNNING = 3
"""`status` and `stop` without a server."""


class CliError(Exception):
    """Not a ClickException: those are boxed and wrapped, and what is shown here has to be copied and searched for."""

    def __init__(self, message: str, next_command: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.next_command = next_command
        self.exit_code = exit_code

    def show(self) -> None:
        click.echo(f"{click.style('Error:', fg='red', bold=True)} {self.message}", err=True)
        if self.next_command:
            click.echo(f"{click.style('Next: ', bold=True)} {self.next_command}", err=True)


def command(*words: str | Path) -> str:
    """A command line that can be pasted."""
    return shlex.join(str(word) for word in words)


@contextmanager
def explained(data_dir: Path) -> Iterator[None]:
    """Turn the errors of the layers below into CliErrors."""
    try:
        yield
    except CliError:
        raise
    except Exception as error:
        found = _explain(error, data_dir)
        if found is None:
            raise
        raise found from error


def _explain(error: Exception, data_dir: Path) -> CliError | None:
    """The one table of what to do next for each kind of error."""
    from wingbeat.server.folder import AddressUnusable, FolderError, FolderFull, FolderNotWritable, NewerFolder
    from wingbeat.server.settings import SettingsError

    upgrade = command(sys.executable, "-m", "pip", "install", "--upgrade", "wingbeat")
    elsewhere = command("wingbeat", "up", "--data-dir", other_folder(data_dir))
    doctor = command("wingbeat", "doctor", "--data-dir", data_dir)
    if isinstance(error, SettingsError):
        return CliError(str(error), "wingbeat up --help", EXIT_USAGE)
    if isinstance(error, NewerFolder):
        return CliError(str(error), upgrade)
    if isinstance(error, FolderFull):
        return CliError(str(error), command("df", "-h", existing(data_dir)))
    if isinstance(error, (FolderNotWritable, FolderError)):
        return CliError(str(error), elsewhere)

    from wingbeat.server.gate import ListenRefused

    if isinstance(error, (ListenRefused, AddressUnusable)):
        return CliError(str(error), "wingbeat up --host 127.0.0.1", EXIT_USAGE)

    from wingbeat.database import CorruptDatabase, DatabaseUnavailable, NewerDatabase
    from wingbeat.storage import StorageFull, StorageUnavailable, StorageUnusable
    from wingbeat.storage.signing import BadToken

    if isinstance(error, NewerDatabase):
        return CliError(str(error), upgrade)
    if isinstance(error, CorruptDatabase):
        return CliError(str(error), doctor)
    if isinstance(error, StorageFull):
        return CliError(str(error), command("df", "-h", existing(data_dir)))
    if isinstance(error, StorageUnusable):
        return CliError(
            str(error), command("wingbeat", "doctor", "--data-dir", data_dir, "--storage", error.storage), EXIT_USAGE
        )
    if isinstance(error, (DatabaseUnavailable, StorageUnavailable, BadToken)):
        return CliError(str(error), doctor)
    if type(error).__name__ == "PortTaken":
        return CliError(str(error), "wingbeat up")
    return None


def existing(path: Path) -> Path:
    """`path`, or the nearest folder above it that is there."""
    while not _exists(path) and path != path.parent:
        path = path.parent
    return path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        return False


def other_folder(data_dir: Path) -> Path:
    """A data folder to suggest where this one does not do."""
    home = Path.home() / ".local" / "share" / "wingbeat"
    return home if home != data_dir else Path(f"/var/tmp/wingbeat-{Path.home().name}")
