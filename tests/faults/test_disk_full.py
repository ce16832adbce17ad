"""The disk of the data folder fills up amid a run: clear words, nothing accepted is lost, and it goes on afterwards."""

from __future__ import annotations

import sqlite3
import subprocess

import pytest
from faults_support import check_nothing_left, overlaps, pause, stamps, until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(400)]

N = 60


@pytest.fixture
def disk(tmp_path):
    """A small disk of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", place], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"a small disk can only be made by one who may mount: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def crowded(disk, make_server):
    """A server on the small disk; stopped before the disk goes."""
    server = make_server(disk / "data")
    yield server
    server.stop(check=False)


def fill(disk):
    """Take every byte that is left."""
    with (disk / "ballast").open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with pytest.raises(OSError, match="No space left"):
                while True:
                    file.write(bytes(size))


def make_room(disk):
    (disk / "ballast").unlink()


def words(done):
    return " ".join((done.stdout + done.stderr).replace("│", " ").split())


def accepted(done):
    """Whether a command has done its work; one that has not says why."""
    assert ("is full" in words(done)) == (done.returncode != 0), words(done)[-2000:]
    return done.returncode == 0


def check_database(server):
    with sqlite3.connect(server.data / "wingbeat.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_run_goes_on_when_there_is_room_again(crowded, disk, folder, flock):
    server = crowded
    server.up("--cpus", "4")
    pid = server.pid
    run = server.start("flock", "main", "--folder", str(folder), "--n", str(N), "--seconds", "0.3")
    until(lambda: len(list(folder.iterdir())) >= 10, 60, "some actions have begun")
    fill(disk)
    # A small thing may find a place inside the database's files, or that of an attempt that has ended: then it was
    # accepted, and is kept like any other.
    secret = accepted(server.flyte("create", "secret", "large", "--value", "x" * 50_000, check=False))
    given = ("--i", "1", "--folder", str(folder.parent), "--seconds", "0")
    small = accepted(server.flyte("run", "--name", "small", "flock.py", "leaf", *given, check=False))
    fill(disk)  # what ended meanwhile has made a little room
    bulky = accepted(
        server.flyte("run", "flock.py", "leaf", "--i", "1", "--folder", "x" * 100_000, *given[4:], check=False)
    )
    assert not (secret and small and bulky), "the disk was not full"
    pause(5)
    assert server.pid == pid and server.is_alive()
    assert len(list(folder.iterdir())) < N
    make_room(disk)
    seen = server.summary(run)
    assert (seen["phase"], seen["outputs"]) == ("SUCCEEDED", [flock.expected(N)])
    assert seen["phases"] == {"SUCCEEDED": N}
    assert not [pair for each in stamps(folder).values() for pair in overlaps(each)]
    assert ("large" in server.flyte("get", "secret").stdout) == secret
    if small:
        assert server.summary("small")["outputs"] == [1]
    check_nothing_left(server)
    check_database(server)


def test_an_abort_ends_its_processes_on_a_full_disk(crowded, disk, folder):
    server = crowded
    server.up("--cpus", "4")
    gate = folder.parent / "never"
    run = server.start("flock", "waiting", "--folder", str(folder), "--gate", str(gate), "--n", "2")
    until(lambda: len(stamps(folder)) == 3, 60, "all of them run")
    pids = {each[0].pid for each in stamps(folder).values()}
    fill(disk)
    said = server.flyte("abort", "run", run, "--reason", "no room", check=False)
    if said.returncode != 0:
        # It was not accepted, and said why. Then nothing has happened.
        assert "disk is full" in words(said)
        make_room(disk)
        server.flyte("abort", "run", run, "--reason", "no room")
    until(lambda: not pids & {*server.processes()}, 30, "the processes are gone")
    if (disk / "ballast").exists():
        make_room(disk)
    seen = server.details(run)
    assert {(a["phase"], a["abort_reason"]) for a in seen["actions"].values()} == {("ABORTED", "no room")}
    check_nothing_left(server)
    check_database(server)


def test_a_server_that_is_killed_on_a_full_disk_opens_when_there_is_room_again(crowded, disk, folder, flock):
    server = crowded
    server.up("--cpus", "4")
    run = server.start("flock", "main", "--folder", str(folder), "--n", str(N), "--seconds", "0.3")
    until(lambda: len(list(folder.iterdir())) >= 10, 60, "some actions have begun")
    fill(disk)
    pause(2)
    server.kill()
    refused = server.wingbeat("up", "--detach", check=False)
    assert refused.returncode != 0 and "is full" in words(refused)
    make_room(disk)
    server.up("--cpus", "4")
    seen = server.summary(run)
    assert (seen["phase"], seen["outputs"]) == ("SUCCEEDED", [flock.expected(N)])
    assert not [pair for each in stamps(folder).values() for pair in overlaps(each)]
    check_nothing_left(server)
    check_database(server)
