"""This suite itself: every program is listed and used, and nothing is skipped in silence."""

import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
PROGRAMS = sorted(p.stem for p in (HERE / "programs").glob("*.py"))


def test_the_readme_lists_every_program_in_a_line_each():
    listed = re.findall(r"^- `(\w+)\.py`: \S", (HERE / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == PROGRAMS


def test_every_program_is_run_by_a_test():
    texts = "".join(p.read_text() for p in [*HERE.glob("*.py"), *(HERE / "programs").glob("*.py")])
    unused = [p for p in PROGRAMS if not re.search(rf"[\"']{p}(\.py)?[\"']|from {p} import|import {p}\b", texts)]
    assert not unused


def test_a_skipped_test_and_a_skipped_module_fail_the_run(tmp_path):
    shutil.copy(HERE / "conftest.py", tmp_path)
    (tmp_path / "test_one.py").write_text("import pytest\ndef test_one():\n    pytest.skip('not today')\n")
    (tmp_path / "test_two.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    more = ("--continue-on-collection-errors", ".")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", tmp_path, *more],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "1 failed" in done.stdout and "1 error" in done.stdout and "skipped" not in done.stdout.splitlines()[-1]
    assert done.stdout.count("counts as failed") >= 2, done.stdout
