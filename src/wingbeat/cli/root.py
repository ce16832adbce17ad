"""The command with its subcommands. Each is imported when it is asked for: `wingbeat version` loads no settings."""

from __future__ import annotations

from importlib import import_module

import rich_click as click

from wingbeat import __version__

COMMANDS = ("up", "status", "stop", "reset", "doctor", "config", "version")


class _LazyGroup(click.RichGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"wingbeat.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="wingbeat %(version)s")
def cli() -> None:
    """Runs Flyte 2 work on this computer: no Docker, no Kubernetes.

    Begin with `wingbeat up`.
    """
