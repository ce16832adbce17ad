"""`wingbeat version`."""

from __future__ import annotations

import json
import platform

import rich_click as click

from wingbeat import __version__
from wingbeat.cli.interpreter import package_version


@click.command()
@click.option(
    "--output", "-o", type=click.Choice(["text", "json"]), default="text", help="For people, or for programs."
)
def version(output: str) -> None:
    """Versions of Wingbeat and of what it speaks."""
    facts = {"wingbeat": __version__, "python": platform.python_version()}
    facts |= {name: package_version(name) or "not installed" for name in ("flyte", "flyteidl2", "connectrpc")}
    if output == "json":
        click.echo(json.dumps(facts, indent=2))
    else:
        click.echo("\n".join(f"{name:<11} {value}" for name, value in facts.items()))
