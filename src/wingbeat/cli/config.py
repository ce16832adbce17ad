"""`wingbeat config`."""

from __future__ import annotations

import json
from typing import Any

import rich_click as click

from wingbeat.cli.options import output_option, setting_options, settings_of


@click.command()
@setting_options()
@output_option
def config(output: str, **values: Any) -> None:
    """The value of every setting, and where it comes from."""
    settings = settings_of(values)
    shown, origins = settings.shown(), settings.origins
    if output == "json":
        facts = {name: {"value": value, "origin": origins[name]} for name, value in shown.items()}
        click.echo(json.dumps(facts, indent=2))
        return
    texts = {name: _text(value) for name, value in shown.items()}
    wide, long = max(map(len, texts)), max(map(len, texts.values()))
    for name, text in texts.items():
        click.echo(f"{name:<{wide}}  {text:<{long}}  {origins[name]}")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
