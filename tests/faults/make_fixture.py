"""Makes fixtures/data-<version>.tar.gz: a data folder with something of everything, and an action that is not finished.

    python tests/faults/make_fixture.py

Run it once for each released version, and never again for the same one: the point of a fixture is that it is old.
What is in it is what test_old_data_folders.py expects: a finished run, a failed one, a deployed task, a secret, and a
run whose child waits for a file.
"""

from __future__ import annotations

import pathlib
import shutil
import sys
import tarfile
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from faults_support import Server, stamps, until

import wingbeat

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
PLACE = pathlib.Path("/tmp/wingbeat-fixture")
"""Where the folder was when it was made, and must be again: what it stores are absolute paths."""
LEFT_OUT = ("venv", "__pycache__", "server.log", "lock", "server.json", "stop.json")


def make() -> pathlib.Path:
    shutil.rmtree(PLACE, ignore_errors=True)
    (PLACE / "stamps").mkdir(parents=True)
    # The Python of the tasks by a name that says nothing of this computer.
    (PLACE / "venv").symlink_to(sys.prefix)
    with tempfile.TemporaryDirectory() as home:
        server = Server(PLACE / "data", pathlib.Path(home))
        server.up("--cpus", "4", "--python", str(PLACE / "venv" / "bin" / "python"))
        fill(server)
        server.stop("--keep-tasks")
        # As if the computer had gone: nobody tells how the live processes ended.
        server.kill_all()
    check_says_nothing_of_this_computer()
    FIXTURES.mkdir(exist_ok=True)
    target = FIXTURES / f"data-{wingbeat.__version__}.tar.gz"
    with tarfile.open(target, "w:gz", compresslevel=9) as archive:
        archive.add(PLACE, arcname=".", filter=lambda entry: None if _left_out(entry.name) else _plain(entry))
    shutil.rmtree(PLACE)
    return target


def check_says_nothing_of_this_computer() -> None:
    for path in PLACE.rglob("*"):
        if path.is_file() and path.name not in LEFT_OUT and "__pycache__" not in path.parts:
            assert sys.prefix.encode() not in path.read_bytes(), path


def fill(server: Server) -> None:
    folder = PLACE / "stamps"
    server.flyte("create", "secret", "nest-key", "--value", "twigs")
    server.start("keepsakes", "add", "--x", "2", "--y", "3", options=("--name", "finished"))
    server.start("keepsakes", "fail", "--word", "storm", options=("--name", "failed"))
    server.flyte("deploy", "--version", "v1", "keepsakes.py", "env")
    for run in ("finished", "failed"):
        server.summary(run)
    server.start(
        "flock",
        "waiting",
        *("--folder", str(folder), "--gate", str(PLACE / "gate"), "--n", "1"),
        options=("--name", "unfinished"),
    )
    until(lambda: len(stamps(folder)) == 2, 60, "the parent and its child have begun")


def _left_out(name: str) -> bool:
    return name.rsplit("/", 1)[-1] in LEFT_OUT


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    made = make()
    print(f"{made}: {made.stat().st_size} bytes")
