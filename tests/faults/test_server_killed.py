"""kill -9 of the server at every named point, amid a run: what was accepted ends, once, and nothing is left over.

Task processes live on while there is no server. So no attempt may begin a second time, except where its process was
ended with the server (test_supervisors_killed.py).
"""

from __future__ import annotations

import pytest
from faults_support import check_ended_once

from wingbeat.crashpoints import POINTS

N = 300
AT = {"commit.before": 200, "commit.after": 200, "progress.before-write": 200, "progress.after-write": 200}
"""At which passing of a point the server dies, where it is not the hundredth."""
OF_AN_ABORT = {point for point in POINTS if point.startswith("abort")}


def killed_amid_a_run(server, folder, point, passing, n):
    """The name of a run; the server has died at `point` amid it, and is up again."""
    server.up("--cpus", "4", crash_at=f"{point}:{passing}")
    pid = server.pid
    run = server.start("flock", "main", "--folder", str(folder), "--n", str(n))
    server.wait_gone(pid, 200)
    begun = len(list(folder.iterdir()))
    assert 0 < begun < n, f"{point} was passed for the {passing}th time when {begun} of {n} actions had begun"
    server.up("--cpus", "4")
    return run


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", sorted({*POINTS} - OF_AN_ABORT))
def test_a_run_of_three_hundred_actions_ends_once_when_the_server_dies_at(point, server, folder, flock):
    run = killed_amid_a_run(server, folder, point, AT.get(point, 100), N)
    check_ended_once(server, folder, run, N, value=flock.expected(N))


@pytest.mark.faults
def test_a_small_run_ends_once_when_the_server_dies_after_a_fork(server, folder, flock):
    run = killed_amid_a_run(server, folder, "launch.after-fork", 4, 12)
    check_ended_once(server, folder, run, 12, value=flock.expected(12))
