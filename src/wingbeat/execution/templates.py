"""Variables in a task's argument list, such as `{{.outputPrefix}}`, and what they become.

Names are matched without regard to case, with optional blanks and `.` or `$` before the name, as Flyte's renderer
does. Unknown names stay as they are: the SDK itself falls back to the environment for `{{.runName}}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_VARIABLE = re.compile(r"\{\{[\t\n\f\r ]*[.$]([A-Za-z][A-Za-z0-9_]*)[\t\n\f\r ]*\}\}")
_LEADING = re.compile(r"^[^A-Za-z_]+")
_OTHERS = re.compile(r"[^A-Za-z0-9_]+")


def per_retry_key(generated_name: str) -> str:
    """`perRetryUniqueKey`: the generated name made fit for an identifier."""
    return _OTHERS.sub("_", _LEADING.sub("a", generated_name))


def render(args: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """`args` with each known variable replaced; `values` is keyed by lower-case name."""

    def value(match: re.Match[str]) -> str:
        return values.get(match.group(1).lower(), match.group(0))

    return [_VARIABLE.sub(value, arg) for arg in args]
