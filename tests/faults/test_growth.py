"""A server does not grow with what it has done."""

from __future__ import annotations

import pathlib

import pytest
from faults_support import until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(600)]


def handles(pid):
    """Open files, sockets and threads of a process."""
    process = pathlib.Path(f"/proc/{pid}")
    return len(list((process / "fd").iterdir())), len(list((process / "task").iterdir()))


def resident(pid):
    """Bytes."""
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_five_hundred_actions_leave_no_handle_open_and_no_memory_behind(server, folder, flock):
    server.up("--cpus", "4")
    pid = server.pid

    def go(n):
        stamps = folder / str(n)
        stamps.mkdir()
        run = server.start("flock", "main", "--folder", str(stamps), "--n", str(n), "--seconds", "0")
        assert server.summary(run)["outputs"] == [flock.expected(n)]

    go(20)  # connections of the client, threads of pools, caches that fill once
    (zygote,) = server.zygotes()
    before, before_zygote, memory = handles(pid), handles(zygote), resident(pid)
    go(250)
    go(251)
    until(lambda: handles(pid)[0] <= before[0] + 5, 30, f"files are closed: {handles(pid)} after {before}")
    until(lambda: handles(zygote)[0] <= before_zygote[0], 30, f"the zygote's are: {handles(zygote)}")
    assert handles(pid)[1] <= before[1] + 4
    assert resident(pid) - memory < 60 << 20
    assert server.zygotes() == [zygote]
