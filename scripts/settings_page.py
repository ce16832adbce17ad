"""Writes docs/settings.md from the settings themselves; a test fails when the page is stale."""

from __future__ import annotations

import pathlib

from pydantic_core import PydanticUndefined

from wingbeat.server.settings import ENV_PREFIX, Settings, flag

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "settings.md"


def render() -> str:
    """The page as it should be."""
    lines = [
        "# Settings",
        "",
        "Each setting can be given on the command line, in the environment, or in `wingbeat.yaml` in the data folder (or the",
        "file that `--config` names), by its name with underscores. The first of these that says something wins.",
        "`wingbeat config` prints the effective values and where each came from.",
        "",
        "| option | environment | default | meaning |",
        "|---|---|---|---|",
    ]
    for name, field in Settings.model_fields.items():
        if field.default_factory is not None:
            default = {"data_dir": "`~/.local/share/wingbeat`", "python": "the one Wingbeat runs in"}[name]
        elif field.default in (None, "", (), PydanticUndefined):
            default = ""
        elif isinstance(field.default, tuple):
            default = f"`{','.join(field.default)}`"
        else:
            default = f"`{field.default}`"
        lines.append(f"| `{flag(name)}` | `{ENV_PREFIX}{name.upper()}` | {default} | {field.description} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render())
