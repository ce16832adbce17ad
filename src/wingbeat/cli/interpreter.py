"""The Python that tasks run in: which version, and does it have the SDK?"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_PROGRAM = """
import json, platform
from importlib import metadata
try:
    sdk = metadata.version("flyte")
except metadata.PackageNotFoundError:
    sdk = ""
print(json.dumps([platform.python_version(), sdk]))
"""


@dataclass(frozen=True)
class TaskPython:
    path: Path
    version: str = ""
    sdk: str = ""
    """Version of `flyte` there; empty when it has none."""
    problem: str = ""
    """Why it cannot run tasks; empty when it can."""
    remedy: str = ""
    """A command."""


def package_version(name: str) -> str:
    """Of an installed package of our own environment; empty without it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def look_at(path: Path) -> TaskPython:
    """Ask the interpreter at `path`; the one that we run in needs no asking."""
    if str(path) == sys.executable:
        version, sdk = platform.python_version(), package_version("flyte")
    else:
        if not path.is_file() or not os.access(path, os.X_OK):
            return TaskPython(
                path, problem=f"there is no Python at {path}", remedy=f"wingbeat up --python {sys.executable}"
            )
        try:
            # From the root folder, so that no file of the user's is taken for a module.
            done = subprocess.run([path, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, cwd="/")
            version, sdk = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            return TaskPython(
                path,
                problem=f"{path} does not run as a Python: {error}",
                remedy=f"wingbeat up --python {sys.executable}",
            )
    if tuple(int(part) for part in version.split(".")[:2]) < (3, 10):
        return TaskPython(
            path, version, sdk, f"{path} is Python {version}; the SDK needs 3.10 or newer", "uv python install 3.12"
        )
    if not sdk:
        return TaskPython(
            path,
            version,
            problem=f"the Python that tasks run in, {path}, does not have the package flyte",
            remedy=f"{path} -m pip install flyte",
        )
    return TaskPython(path, version, sdk)
