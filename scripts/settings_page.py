"""Writes docs/settings.md from the settings themselves; a test fails when the page is stale."""

from __future__ import annotations

import pathlib
from typing import Literal, get_args, get_origin

from pydantic_core import PydanticUndefined

from wingbeat.server.quantities import parse_seconds, parse_size
from wingbeat.server.settings import ENV_PREFIX, Settings, flag

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "settings.md"


def values(annotation: object, metadata: list[object]) -> str:
    """What may be given, where the description alone does not tell."""
    if get_origin(annotation) is Literal:
        return f"One of {', '.join(f'`{each}`' for each in get_args(annotation))}."
    kinds = {getattr(each, "func", None) for each in metadata}
    if parse_seconds in kinds:
        return "Seconds, or e.g. `90s`, `10m`, `1h`."
    return "Bytes, or e.g. `512MiB`, `8GiB`." if parse_size in kinds else ""


def render() -> str:
    """The page as it should be."""
    lines = [
        "# Settings",
        "",
        "Each setting can be given on the command line, in the environment, or in `wingbeat.yaml` in the data folder",
        "(or the file that `--config` names), by its name with underscores. The first of these that says something",
        "wins.",
        "`wingbeat config` prints the effective values and where each came from.",
        "Lists are separated by commas.",
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
        meaning = f"{field.description} {values(field.annotation, field.metadata)}".strip()
        lines.append(f"| `{flag(name)}` | `{ENV_PREFIX}{name.upper()}` | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render())
