"""`wingbeat doctor`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import rich_click as click

from wingbeat.cli.checks import Level, run_checks
from wingbeat.cli.errors import EXIT_FAILED
from wingbeat.cli.options import output_option, setting_options, settings_of

_COLORS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


@click.command()
@setting_options("data_dir", "host", "port", "python", "database", "storage")
@output_option
def doctor(output: str, **values: Any) -> None:
    """Look at this computer for whatever stops Wingbeat from working. Exit code 1 when something does."""
    findings = run_checks(settings_of(values))
    if output == "json":
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        wide = max(len(finding.check) for finding in findings)
        for finding in findings:
            level = click.style(f"{finding.level:<4}", fg=_COLORS[finding.level], bold=finding.level is not Level.OK)
            click.echo(f"{level}  {finding.check:<{wide}}  {finding.detail}")
            if finding.todo:
                click.echo(f"{'':<{wide + 6}}  -> {finding.todo}")
    sys.exit(EXIT_FAILED if any(finding.level is Level.FAIL for finding in findings) else 0)
