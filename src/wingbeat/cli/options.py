"""Command line options, made of the settings: each setting is described in one place only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import rich_click as click

from wingbeat.cli.errors import explained
from wingbeat.server.folder import DataFolder
from wingbeat.server.settings import Settings, default_data_dir, flag, load_settings

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def setting_options(*names: str) -> Decorator:
    """Options for the settings `names` (all without), and `--config`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(names or tuple(Settings.model_fields)):
            field = Settings.model_fields[name]
            if field.annotation is bool:
                function = click.option(
                    f"{flag(name)}/{flag('no_' + name)}", name, default=None, help=field.description
                )(function)
            else:
                choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
                metavar = "|".join(choices) or name.rpartition("_")[2].upper()
                function = click.option(flag(name), name, default=None, metavar=metavar, help=field.description)(
                    function
                )
        return click.option(
            "--config", type=click.Path(path_type=Path), metavar="FILE", help="YAML file with settings."
        )(function)

    return decorate


def output_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--output", "-o", type=click.Choice(["text", "json"]), default="text", help="For people, or for programs."
    )(function)


def settings_of(values: dict[str, Any]) -> Settings:
    """The effective settings for the options that were given. Raises CliError."""
    flags = {name: value for name, value in values.items() if name in Settings.model_fields}
    folder = Path(flags.get("data_dir") or default_data_dir())
    with explained(folder):
        return load_settings(flags, values.get("config"))


def folder_of(values: dict[str, Any]) -> DataFolder:
    return DataFolder(settings_of(values).data_dir)


def as_arguments(values: dict[str, Any]) -> list[str]:
    """The options that were given, as one would write them."""
    arguments: list[str] = []
    for name, value in values.items():
        if name in Settings.model_fields and isinstance(value, bool):
            arguments.append(flag(name) if value else flag("no_" + name))
        elif value is not None and (name in Settings.model_fields or name == "config"):
            arguments.append(f"{flag(name)}={value}")
    return arguments
