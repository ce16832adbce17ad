"""Aborting a run ends everything that it has started, wherever it went, and the server's death changes nothing."""

from __future__ import annotations

import time
import uuid

import pytest
from faults_support import carrying, check_nothing_left, pause, until

from wingbeat.crashpoints import POINTS

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]


def swarm(server, folder, *sizes):
    marker = f"MARKER_OF_THE_SWARM={uuid.uuid4().hex}"
    run = server.start("swarm", "main", "--folder", str(folder), *sizes, options=("--env", marker))
    until(lambda: len(list(folder.glob("ready.*"))) == 5, 120, "five tasks have started their processes")
    return run, marker


def test_a_tree_of_two_hundred_processes_is_gone_ten_seconds_after_the_abort(server, folder):
    """Of which 20 ignore SIGTERM and 5 have forked away, to another session and parent."""
    server.up()
    run, marker = swarm(server, folder)
    assert len(carrying(marker)) >= 200
    begin = time.monotonic()
    server.flyte("abort", "run", run, "--reason", "winter")
    while left := carrying(marker):
        assert time.monotonic() - begin < 10, left
        pause()
    seen = server.details(run)
    assert len(seen["actions"]) == 6
    assert {(a["phase"], a["abort_reason"]) for a in seen["actions"].values()} == {("ABORTED", "winter")}
    check_nothing_left(server)


@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith("abort")])
def test_an_abort_is_carried_out_although_the_server_dies_at(point, server, folder):
    server.up(crash_at=f"{point}:3" if point != "abort.accepted" else point)
    pid = server.pid
    run, marker = swarm(server, folder, "--plain", "2", "--stubborn", "1")
    server.flyte("abort", "run", run, "--reason", "winter", check=False)
    server.wait_gone(pid)
    server.up()
    until(lambda: not carrying(marker), 30, f"everything of the run is gone; there are {carrying(marker)}")
    seen = server.details(run)
    assert len(seen["actions"]) == 6
    assert {(a["phase"], a["abort_reason"]) for a in seen["actions"].values()} == {("ABORTED", "winter")}
    check_nothing_left(server)


def test_a_run_that_is_aborted_while_its_children_come_leaves_none_behind(server, folder):
    """Children that were asked for but never looked at, queued, starting, running and finished ones, all at once."""
    server.up("--cpus", "4")
    run = server.start("flock", "main", "--folder", str(folder), "--n", "300")
    until(lambda: len(list(folder.iterdir())) >= 5, 60, "some children run")
    server.flyte("abort", "run", run, "--reason", "enough")
    assert server.summary(run, 60)["phase"] == "ABORTED"

    def live():
        return [a for a in server.actions(run) if a["phase"] not in ("SUCCEEDED", "FAILED", "ABORTED")]

    until(lambda: not live(), 30, f"every action has ended; there are {live()[:5]}")
    check_nothing_left(server)
