"""A server that is stopped amid runs, in each of the ways there are, and started again on its data folder."""

from __future__ import annotations

import os
import signal

import pytest
from faults_support import check_nothing_left, overlaps, stamps, starts, until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]


def waiting(server, folder, n):
    """A parent and `n` children, which end once there is a file `go` beside their stamps."""
    return server.start("flock", "waiting", "--folder", str(folder), "--gate", str(folder.parent / "go"), "--n", str(n))


def let_go(folder):
    (folder.parent / "go").touch()


def begun(folder, n):
    """Once `n` actions have begun: their stamps."""
    return until(lambda: (seen := stamps(folder)) and len(seen) >= n and seen, 60, f"{n} actions have begun")


def test_a_stop_interrupts_actions_and_the_next_start_resumes_them_at_no_charge(server, folder):
    server.up("--cpus", "4")
    run = waiting(server, folder, 3)
    begun(folder, 4)
    server.stop()
    assert not server.processes()
    assert all(len(each) == 1 for each in stamps(folder).values()), "nothing has ended by itself"
    let_go(folder)
    server.up("--cpus", "4")
    seen = server.details(run)
    assert seen["phase"] == "SUCCEEDED"
    assert len(seen["actions"]) == 4
    # None of these tasks has retries, so any charge would have failed it.
    assert {a["attempts"] for a in seen["actions"].values()} == {1}
    assert {a["phase"] for a in seen["actions"].values()} == {"SUCCEEDED"}
    written = stamps(folder)
    assert all(starts(each) == {0: 2} for each in written.values())
    assert not [pair for each in written.values() for pair in overlaps(each)]
    check_nothing_left(server)


def test_many_stops_in_a_row_do_not_use_up_any_budget(server, folder):
    server.up("--cpus", "4")
    run = waiting(server, folder, 1)
    for times in range(5):
        until(lambda n=times: sum(map(len, stamps(folder).values())) == 2 * (n + 1), 60, "both run")
        server.stop()
        server.up("--cpus", "4")
    let_go(folder)
    assert server.summary(run)["phases"] == {"SUCCEEDED": 2}
    check_nothing_left(server)


def test_tasks_that_a_stop_left_alone_go_on_as_the_same_processes(server, folder):
    server.up("--cpus", "4")
    run = waiting(server, folder, 2)
    before = {name: each[0].pid for name, each in begun(folder, 3).items()}
    server.stop("--keep-tasks")
    assert {*before.values()} <= {*server.processes()}
    server.up("--cpus", "4")
    let_go(folder)
    seen = server.details(run)
    assert seen["phase"] == "SUCCEEDED"
    assert {a["attempts"] for a in seen["actions"].values()} == {1}
    written = stamps(folder)
    assert all([s.event for s in each] == ["start", "end"] for each in written.values())
    assert {name: each[-1].pid for name, each in written.items()} == before
    check_nothing_left(server)


def test_a_waiting_parent_hears_of_children_that_ended_while_the_server_was_dead(server, folder):
    server.up("--cpus", "4")
    run = waiting(server, folder, 2)
    begun(folder, 3)
    server.kill()
    let_go(folder)
    until(lambda: sum(len(each) == 2 for each in stamps(folder).values()) == 2, 30, "both children have ended")
    server.up("--cpus", "4")
    seen = server.details(run)
    assert seen["phase"] == "SUCCEEDED"
    written = stamps(folder)
    assert all([s.event for s in each] == ["start", "end"] for each in written.values()), "nobody was started again"
    assert sorted(seen["outputs"][0]) == sorted(each[0].pid for name, each in written.items() if name != "a0")
    check_nothing_left(server)


def test_a_second_start_names_the_first_server_and_changes_nothing(server, folder):
    server.up()
    pid, endpoint = server.pid, server.endpoint
    done = server.wingbeat("up", "--detach")
    assert endpoint in done.stdout and str(pid) in done.stdout
    done = server.wingbeat("up")
    assert endpoint in done.stdout
    assert server.pid == pid


def test_ten_servers_in_a_row_are_killed_and_one_run_ends(server, folder, flock):
    """Each lives for a moment only, whatever it was about to do."""
    server.up("--cpus", "4")
    run = server.start("flock", "main", "--folder", str(folder), "--n", "60")
    for _ in range(10):
        server.kill()
        server.up("--cpus", "4")
    seen = server.summary(run)
    assert (seen["phase"], seen["outputs"]) == ("SUCCEEDED", [flock.expected(60)])
    written = stamps(folder)
    assert all(set(starts(each).values()) == {1} for each in written.values())
    check_nothing_left(server)


def test_a_terminated_server_ends_like_a_stopped_one(server, folder):
    server.up("--cpus", "4")
    run = waiting(server, folder, 1)
    begun(folder, 2)
    pid = server.pid
    os.kill(pid, signal.SIGTERM)
    server.wait_gone(pid)
    assert not server.processes()
    let_go(folder)
    server.up("--cpus", "4")
    assert server.summary(run)["phases"] == {"SUCCEEDED": 2}
    check_nothing_left(server)
