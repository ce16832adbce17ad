"""The real SDK, in a process of its own, with a local raw-data prefix: what a task made in a temporary folder stays."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wingbeat.storage import COPYING_SCRIPT

ENVIRONMENT = {**os.environ, "DO_NOT_TRACK": "1", "FSSPEC_FILE": '{"auto_mkdir": true}'}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    prefix = tmp_path_factory.mktemp("raw") / "run" / "a0"
    command = [sys.executable, Path(__file__).with_name("task_operations.py"), prefix, COPYING_SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


EXPECTED = {
    "install": ["", ""],
    "in prefix": [True] * 5,
    "names": ["a.txt", "tree", "/chosen"],
    "hashes": ["5d41402abc4b2a76b9719d911017c592", "key", None],
    "exists": [True, True],
    "open": "hello",
    "download": ["hello"] * 3,
    "download folder": ["tree/sub", "tree/sub/y", "tree/x"],
    "walk": ["x", "y"],
    "new remote": "streamed",
    "pandas": [1, 2],
    "arrow": [{"a": 3}],
    "frame": [1, 2],
    "frame passed on": [[1, 2], True, "key", 0],
    "rewritten": ["first", "second", ["outputs.pb"]],
    "not written": ["folder.pb"],
    "sync open": "hello",
    "sync walk": ["x", "y"],
    "missing": "File not found: /no/such/file",
    "outside a task": True,
}


@pytest.mark.parametrize("operation", EXPECTED)
def test_a_file_operation_of_a_task_works_on_a_local_folder(seen: dict[str, object], operation: str) -> None:
    assert seen[operation] == EXPECTED[operation]


def test_every_operation_that_was_tried_is_checked(seen: dict[str, object]) -> None:
    assert set(seen) == set(EXPECTED)


def test_an_sdk_that_does_not_fit_is_left_alone_and_named() -> None:
    program = f"""
import runpy, flyte.io
copying = runpy.run_path({str(COPYING_SCRIPT)!r})
flyte.io.Dir.from_local = classmethod(lambda cls, somewhere: None)
before = flyte.io.File.__dict__["from_local"]
print(copying["install"]())
assert flyte.io.File.__dict__["from_local"] is before
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (0, "Dir.from_local takes other arguments\n"), done.stderr


def test_the_script_runs_the_sdks_own_command_in_its_process(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a module beside the task shadowed one of the system')")
    done = subprocess.run(
        [sys.executable, COPYING_SCRIPT, "a0", "--help"], capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "--raw-data-path" in done.stdout
    assert done.stdout.startswith("Usage: a0 ")


def test_a_command_that_the_environment_lacks_is_named() -> None:
    done = subprocess.run([sys.executable, COPYING_SCRIPT, "nope"], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 1
    assert "has no command 'nope'" in done.stderr
