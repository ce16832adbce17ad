"""The kept texts themselves."""

import re

import pytest

from .conftest import EXPECTED

COMMAND = re.compile(
    r"flyte (run|get|create|delete|rerun|signal|--version)\b|wingbeat (up|config)\b|pip install|apt-get install|"
    r"tar -tvf|realpath"
)
OF_THE_CLIENT = {"missing-input", "taken-run-name", "unknown-task", "unknown-version", "wrong-json-type", "wrong-type"}
"""Words of the `flyte` command in place of ours."""
NO_ERRORS = {"trigger-listed", "trigger-shown"}


@pytest.mark.parametrize("name", sorted(path.stem for path in EXPECTED.iterdir()))
def test_each_error_names_a_command_to_run_next(name):
    assert COMMAND.search((EXPECTED / f"{name}.txt").read_text()) or name in OF_THE_CLIENT | NO_ERRORS


def test_what_the_client_says_in_its_own_words_is_kept_in_ours_too():
    for name in ("missing-input", "taken-run-name", "unknown-task", "unknown-version", "wrong-type"):
        assert (EXPECTED / f"raw-{name}.txt").exists()
