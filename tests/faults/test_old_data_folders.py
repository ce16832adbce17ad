"""A data folder that an earlier version made opens in this one, with everything in it, and its live actions go on.

The folders are made by make_fixture.py, once for each version.
"""

from __future__ import annotations

import shutil
import tarfile

import pytest
from faults_support import check_nothing_left, stamps, starts, until
from make_fixture import FIXTURES, PLACE

FOLDERS = sorted(path.name for path in FIXTURES.glob("data-*.tar.gz"))


@pytest.fixture(params=FOLDERS)
def old(request, make_server):
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    with tarfile.open(FIXTURES / request.param) as archive:
        archive.extractall(PLACE, filter="tar")
    yield make_server(PLACE / "data")
    shutil.rmtree(PLACE)


def test_the_folders_of_released_versions_are_kept():
    assert "data-0.1.0.tar.gz" in FOLDERS


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_everything_in_an_old_data_folder_can_be_read_and_what_was_live_goes_on(old):
    old.up("--cpus", "4")
    finished = old.details("finished")
    assert (finished["phase"], finished["outputs"]) == ("SUCCEEDED", [5])
    assert old.ask("io", run="finished") == {"inputs": {"x": 2, "y": 3}, "outputs": [5]}
    assert "adding" in old.ask("logs", run="finished")
    failed = old.details("failed")["root"]
    assert (failed["phase"], failed["error"]["code"]) == ("FAILED", "ValueError")
    assert "no storm today" in failed["error"]["message"]
    # Deployed, and with a secret that was encrypted then.
    assert "nest-key" in old.flyte("get", "secret").stdout
    run = old.start("keepsakes", "tell")
    assert old.summary(run)["outputs"] == ["twigs"]
    old.flyte("run", "--name", "again", "deployed-task", "keepsakes.add", "--x", "20", "--y", "3")
    assert old.summary("again")["outputs"] == [23]
    # Its process ran when the folder was packed. It is gone, so it begins again.
    until(lambda: starts(stamps(PLACE / "stamps")["a0"])[0] == 2, 60, "the parent runs again")
    (PLACE / "gate").touch()
    live = old.details("unfinished")
    assert live["phase"] == "SUCCEEDED"
    assert {a["attempts"] for a in live["actions"].values()} == {1}
    check_nothing_left(old)
