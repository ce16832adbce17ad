"""The processes around the tasks are killed: the zygote that forks them, the data process, the server with its zygote.

A task whose zygote dies is ended, since nobody could tell how it ends; its attempt begins again without being charged.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
from faults_support import check_nothing_left, overlaps, stamps, starts, until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(600)]

N = 120


def check_ended_with_relaunches(server, folder, flock, run, *, kills):
    """As `check_ended_once`, but for attempts that were alive when their zygote was killed: those may begin again."""
    seen = server.summary(run)
    assert (seen["phase"], seen["outputs"]) == ("SUCCEEDED", [flock.expected(N)])
    assert seen["phases"] == {"SUCCEEDED": N}
    written = stamps(folder)
    assert not [pair for each in written.values() for pair in overlaps(each)]
    begun = {name: starts(each) for name, each in written.items()}
    assert {max(each) for each in begun.values()} == {0, 1}
    assert max(n for each in begun.values() for n in each.values()) <= 1 + kills
    again = sum(n - 1 for each in begun.values() for n in each.values())
    assert 0 < again <= kills * 16, "about as many as were alive at once"
    assert seen["attempts"] == dict(Counter(str(max(each) + 1) for each in begun.values()))
    check_nothing_left(server)


def amid(folder, n):
    until(lambda: len(list(folder.iterdir())) >= n, 150, f"{n} actions have begun")


def test_a_run_succeeds_although_its_zygote_is_killed(server, folder, flock):
    server.up("--cpus", "4")
    run = server.start("flock", "main", "--folder", str(folder), "--n", str(N))
    amid(folder, N // 3)
    (zygote,) = server.zygotes()
    os.kill(zygote, signal.SIGKILL)
    amid(folder, 2 * N // 3)
    check_ended_with_relaunches(server, folder, flock, run, kills=1)


def test_a_run_succeeds_although_server_and_zygote_are_killed_together(server, folder, flock):
    server.up("--cpus", "4")
    run = server.start("flock", "main", "--folder", str(folder), "--n", str(N))
    amid(folder, N // 2)
    (zygote,) = server.zygotes()
    pid = server.pid
    os.kill(pid, signal.SIGKILL)
    os.kill(zygote, signal.SIGKILL)
    server.wait_gone(pid)
    server.up("--cpus", "4")
    check_ended_with_relaunches(server, folder, flock, run, kills=1)


def test_uploads_and_a_run_go_on_after_the_data_process_is_killed(server, folder, flock):
    server.up("--cpus", "4")
    run = server.start("flock", "main", "--folder", str(folder), "--n", str(N))
    amid(folder, N // 4)
    before = server.data_process()
    os.kill(before, signal.SIGKILL)
    until(lambda: [p for p in server.data_processes() if p != before], 30, "another data process")
    # Needs an upload of its code.
    second = server.start("flock", "leaf", "--i", "7", "--folder", str(folder.parent), "--seconds", "0")
    assert server.summary(second)["outputs"] == [7]
    seen = server.summary(run)
    assert (seen["phase"], seen["outputs"]) == ("SUCCEEDED", [flock.expected(N)])
    check_nothing_left(server)


def test_urls_of_the_data_process_stay_good_over_a_kill_of_the_server(server):
    server.up()
    port = (server.data / "transfer" / "port").read_text()
    server.kill()
    server.up()
    assert (server.data / "transfer" / "port").read_text() == port
