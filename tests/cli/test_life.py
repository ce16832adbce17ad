"""From `up` to `reset`, each command in a process of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from wingbeat.cli.running import readiness
from wingbeat.server.folder import DataFolder, ServerInfo, process_start

from .conftest import Cli, Result


def wait(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        os.sched_yield()


def server(cli: Cli) -> ServerInfo:
    info = cli.folder.server()
    assert info is not None
    return info


def processes_of(marker: str) -> list[str]:
    """The pids of all that carry the marker of a data folder in their environment, the servers themselves excepted."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and f"={marker}\0".encode() in (process / "environ").read_bytes() + b"\0":
                found.append(process.name)
        except OSError:
            continue
    return sorted(found)


def ready(cli: Cli) -> bool:
    info = cli.folder.server()
    return info is not None and readiness(info.endpoint)[0]


def test_up_in_the_background_is_ready_when_it_returns_and_says_where(cli: Cli) -> None:
    result = cli("up", "--detach")
    assert result.code == 0, result.err
    info = server(cli)
    assert readiness(info.endpoint) == (True, "")
    for said in (info.endpoint, cli.data, info.python, cli.data / "server.log"):
        assert str(said) in result.out
    assert f"cd {cli.data}/example && flyte --config ../flyte.yaml run hello.py main --n 3" in result.out
    assert f"wingbeat stop --data-dir {cli.data}" in result.out
    assert cli.data.stat().st_mode & 0o777 == 0o700
    for name in ("flyte.yaml", "server.json", "server.log", "port", "id"):
        assert (cli.data / name).stat().st_mode & 0o077 == 0, name


def test_the_flyte_command_reads_the_written_configuration(cli: Cli) -> None:
    assert cli("up", "--detach", "--project", "birds").code == 0
    flyte = Path(sys.executable).with_name("flyte")
    done = subprocess.run(
        [flyte, "--config", cli.data / "flyte.yaml", "--output-format", "json", "get", "project"],
        capture_output=True,
        text=True,
        env=cli.environment(),
    )
    assert done.returncode == 0, done.stderr
    assert "birds" in done.stdout
    program = (
        "import flyte; flyte.init_from_config({!r}); from flyte._initialize import get_init_config as g; c = g()\n"
        "print(c.org, c.project, c.domain, c.client.endpoint, c.image_builder)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program.format(str(cli.data / "flyte.yaml"))],
        capture_output=True,
        text=True,
        env=cli.environment(),
    )
    assert done.stdout.split() == ["local", "birds", "development", server(cli).endpoint, "remote"], done.stderr


def test_a_second_up_names_the_first_ones_endpoint(cli: Cli) -> None:
    assert cli("up", "--detach").code == 0
    first = server(cli)
    for arguments in (["up"], ["up", "--detach"], ["up", "--port", "1"]):
        result = cli(*arguments)
        assert result.code == 0
        assert f"runs already (pid {first.pid})" in result.out
        assert first.endpoint in result.out
        assert ("not used: --port=1" in result.err) is ("--port" in arguments)
    assert server(cli) == first


def test_several_that_start_at_once_agree_on_one(cli: Cli) -> None:
    started = [cli.start("--detach") for _ in range(3)]
    outputs = [process.communicate(timeout=80) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], outputs
    endpoint = server(cli).endpoint
    assert all(endpoint in out for out, _ in outputs)


def test_the_port_is_taken_again_and_another_one_only_when_it_must(cli: Cli, unused_port: int) -> None:
    assert cli("up", "--detach", "--port", str(unused_port)).code == 0
    first = server(cli).endpoint
    assert cli("stop").code == 0
    assert cli("up", "--detach").code == 0
    assert server(cli).endpoint == first
    assert cli("stop").code == 0
    with socket.create_server(("127.0.0.1", int(first.rpartition(":")[2]))):
        assert cli("up", "--detach").code == 0
        assert server(cli).endpoint != first
        assert "is taken by another program; using" in (cli.data / "server.log").read_text()
    assert f"endpoint: {server(cli).endpoint}" in (cli.data / "flyte.yaml").read_text()


def test_stop_ends_the_server_and_says_how_it_wants_it(cli: Cli) -> None:
    assert cli("up", "--detach").code == 0
    info = server(cli)
    result = cli("stop")
    assert (result.code, result.out) == (0, f"Stopped the server (pid {info.pid}).\n")
    assert process_start(info.pid) == 0
    assert not cli.folder.is_served()
    assert not (cli.data / "server.json").exists()
    assert not (cli.data / "stop.json").exists()


@pytest.mark.faults
def test_what_a_server_left_running_is_taken_up_by_the_next_or_ended_by_stop_and_reset(cli: Cli) -> None:
    def left() -> list[str]:
        return processes_of(cli.folder.id)

    assert cli("up", "--detach").code == 0
    wait(lambda: left() and "zygote_started" in (cli.data / "server.log").read_text())
    zygote = left()
    assert "Its tasks run on" in cli("stop", "--keep-tasks").out
    assert left() == zygote
    assert cli("up", "--detach").code == 0
    assert set(zygote) <= set(left())
    assert cli("stop").code == 0
    assert left() == []
    assert cli("up", "--detach").code == 0
    wait(lambda: (cli.data / "server.log").read_text().count("zygote_started") == 2)
    os.kill(server(cli).pid, signal.SIGKILL)
    wait(lambda: not cli.folder.is_served())
    assert left()
    result = cli("stop")
    assert (result.code, "ended the tasks that an earlier server had left" in result.out) == (3, True)
    assert left() == []


def test_stop_and_status_without_a_server_say_so(cli: Cli) -> None:
    assert f"wingbeat up --detach --data-dir {cli.data}" in cli("status").out
    for name in ("stop", "status"):
        result = cli(name)
        assert (result.code, "not running" in result.out) == (3, True)
    assert not cli.data.exists()


def test_status_tells_ready_from_stopped(cli: Cli) -> None:
    assert cli("up", "--detach").code == 0
    info = server(cli)
    result = cli("status")
    assert (result.code, info.endpoint in result.out) == (0, True)
    facts = json.loads(cli("status", "--output", "json").out)
    assert (facts["state"], facts["endpoint"], facts["pid"]) == ("ready", info.endpoint, info.pid)
    assert cli("stop").code == 0
    result = cli("status", "--output", "json")
    assert (result.code, json.loads(result.out)["state"]) == (3, "stopped")


@pytest.mark.faults
def test_status_of_a_server_that_hangs_says_so(cli: Cli) -> None:
    assert cli("up", "--detach").code == 0
    info = server(cli)
    os.kill(info.pid, signal.SIGSTOP)
    try:
        result = cli("status", "--output", "json")
    finally:
        os.kill(info.pid, signal.SIGCONT)
    assert (result.code, json.loads(result.out)["state"]) == (1, "not ready")


@pytest.mark.faults
def test_what_a_killed_server_left_behind_harms_nobody(cli: Cli, unused_port: int) -> None:
    assert cli("up", "--detach", "--port", str(unused_port)).code == 0
    info = server(cli)
    # Its record stays. Another process may get the pid: what it says must not be believed.
    os.kill(info.pid, signal.SIGKILL)
    wait(lambda: not cli.folder.is_served())
    assert (cli.data / "server.json").exists()
    assert cli("status").code == 3
    assert cli("stop").code == 3
    assert cli("up", "--detach").code == 0
    assert server(cli).endpoint == info.endpoint


def test_a_record_with_the_pid_of_another_process_is_not_believed(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.prepare()
    held = folder.lock()
    assert held is not None
    with held:
        me = ServerInfo(pid=os.getpid(), started=1, started_at=0, endpoint="http://x", version="0", python="")
        folder.announce(me)
        assert folder.server() is None
        folder.announce(
            ServerInfo(**{f: getattr(me, f) for f in me.__struct_fields__} | {"started": process_start(os.getpid())})
        )
        assert folder.server() is not None
    assert folder.server() is None


def test_in_the_foreground_it_says_where_it_is_and_what_ctrl_c_does(cli: Cli) -> None:
    process = cli.start()
    wait(lambda: ready(cli) and (cli.data / "port").exists())
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "Ctrl-C once" in out
    assert "Ctrl-C twice" in out
    assert not cli.folder.is_served()


def test_reset_asks_and_keeps_settings_port_and_what_is_outside(cli: Cli) -> None:
    outside = cli.home / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    assert cli("up", "--detach").code == 0
    running = cli("reset", "--yes")
    assert (running.code, "a server uses the data folder" in running.err) == (1, True)
    port = (cli.data / "port").read_text()
    assert cli("stop").code == 0
    (cli.data / "wingbeat.yaml").write_text("project: birds\n")
    (cli.data / "storage").mkdir(exist_ok=True)
    (cli.data / "storage" / "link").symlink_to(outside)
    (cli.data / "top-link").symlink_to(outside)
    refused = cli("reset", answer="n\n")
    assert (refused.code, (cli.data / "wingbeat.db").exists()) == (1, True)
    assert "wingbeat.db" in refused.out
    assert cli("reset", answer="y\n").code == 0
    assert (outside / "kept").read_text() == "x"
    assert {path.name for path in cli.data.iterdir()} == {"wingbeat.yaml", "lock", "id", "layout", "port", "flyte.yaml"}
    assert (cli.data / "port").read_text() == port
    assert "empty already" in cli("reset", "--yes").out


def test_reset_removes_nothing_of_a_folder_that_is_not_ours(cli: Cli) -> None:
    cli.data.mkdir()
    (cli.data / "thesis.tex").write_text("x")
    result = cli("reset", "--yes")
    assert (result.code, "no data folder of Wingbeat" in result.err) == (1, True)
    assert (cli.data / "thesis.tex").exists()


def test_reset_without_a_folder_is_fine(cli: Cli) -> None:
    assert cli("reset", "--yes") == Result(0, f"There is no data folder {cli.data}: nothing to remove.\n", "")
