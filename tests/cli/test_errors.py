"""What cannot work is said before anything is changed: what, which thing, one command to run next."""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wingbeat.cli import disk
from wingbeat.cli.errors import explained
from wingbeat.server.settings import load_settings

from .conftest import Cli, Result

Golden = Callable[[str, Result, dict[str, object]], None]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_taken_port_that_was_asked_for(cli: Cli, golden: Golden, taken_port: int) -> None:
    result = cli("up", "--port", str(taken_port))
    suggested = result.err.rstrip().rpartition(" ")[2]
    assert int(suggested) > taken_port
    golden("port-taken", result, {"port": taken_port, "other": suggested})
    assert not (cli.data / "port").exists()
    detached = cli("up", "--detach", "--port", str(taken_port))
    assert (detached.code, detached.err.splitlines()[0]) == (1, result.err.splitlines()[0])


def test_a_taken_port_from_the_environment(cli: Cli, golden: Golden, taken_port: int) -> None:
    result = cli("up", WINGBEAT_PORT=str(taken_port))
    golden("port-taken-environment", result, {"port": taken_port, "other": result.err.rstrip().rpartition(" ")[2]})


def test_a_data_folder_below_a_file(cli: Cli, golden: Golden) -> None:
    (cli.home / "file").write_text("x")
    result = cli("up", "--data-dir", cli.home / "file" / "data")
    golden("folder-below-a-file", result, {"home": cli.home})


def test_a_data_folder_on_a_read_only_disk(cli: Cli, golden: Golden, read_only_disk: Path) -> None:
    result = cli("up", "--data-dir", read_only_disk / "data")
    golden("folder-not-writable", result, {"home": cli.home})


def test_a_data_folder_of_somebody_else(cli: Cli, golden: Golden) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming somebody else needs root")
    mine = cli.home / "mine"
    mine.mkdir(mode=0o700)
    program = (
        f"import os, sys; os.setgid(65534); os.setuid(65534); sys.argv = ['wingbeat', 'up', '--data-dir', '{mine}']\n"
        "from wingbeat.cli import main; main()"
    )
    cli.home.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=cli.environment(HOME="/nonexistent")
    )
    if "ModuleNotFoundError" in done.stderr or "Permission denied" in done.stderr.partition("Error:")[0]:
        pytest.skip("another user cannot read this checkout")
    golden("folder-of-another-user", Result(done.returncode, done.stdout, done.stderr), {"home": cli.home})


@pytest.mark.faults
def test_a_full_disk(cli: Cli, golden: Golden, small_disk: Path) -> None:
    golden("disk-full", cli("up", "--data-dir", small_disk / "data"), {"home": cli.home})
    assert list(small_disk.iterdir()) == []


def test_a_data_folder_on_a_network_file_system(cli: Cli, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import sys; from wingbeat.cli import disk; disk.file_system_type = lambda path: 'nfs4'; "
        "sys.argv = ['wingbeat', 'up']; from wingbeat.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=cli.environment())
    other = done.stderr.rstrip().rpartition(" ")[2]
    golden(
        "network-file-system",
        Result(done.returncode, done.stdout, done.stderr),
        {"data": cli.data, "elsewhere": other},
    )
    assert other.startswith("/")
    assert not cli.data.exists()
    monkeypatch.setattr(disk, "file_system_type", lambda path: "nfs4")
    monkeypatch.setenv("WINGBEAT_DATA_DIR", str(cli.data))
    disk.check_disk(load_settings({"database": "postgresql://localhost/wingbeat"}))


def test_a_data_folder_of_a_newer_version(cli: Cli, golden: Golden) -> None:
    cli.folder.prepare()
    (cli.data / "layout").write_text("99\n")
    before = contents(cli.data)
    golden("newer-folder", cli("up"), {"home": cli.home, "python": sys.executable})
    assert contents(cli.data) == before


def test_a_database_of_a_newer_version(cli: Cli, golden: Golden) -> None:
    assert cli("up", "--detach").code == 0
    assert cli("stop").code == 0
    with sqlite3.connect(cli.data / "wingbeat.db") as connection:
        connection.execute("INSERT INTO schema_migrations (number, name, applied_at) VALUES (9999, 'later', 0)")
    connection.close()
    result = cli("up")
    result.err = re.sub(r"knows up to \d+", "knows up to N", result.err)
    golden("newer-database", result, {"home": cli.home, "python": sys.executable})


def test_a_corrupt_database(cli: Cli, golden: Golden) -> None:
    cli.folder.prepare()
    (cli.data / "wingbeat.db").write_bytes(b"this is no database, is it? " * 1000)
    before = (cli.data / "wingbeat.db").read_bytes()
    golden("corrupt-database", cli("up"), {"home": cli.home})
    assert (cli.data / "wingbeat.db").read_bytes() == before
    found = cli("doctor")
    assert found.code == 1
    assert f"{cli.data}/wingbeat.db is damaged: file is not a database" in found.out
    assert f"-> mv {cli.data}/wingbeat.db" in found.out


def test_a_start_in_the_background_that_fails_shows_the_end_of_the_log(cli: Cli, golden: Golden) -> None:
    cli.folder.prepare()
    (cli.data / "wingbeat.db").write_bytes(b"this is no database, is it? " * 1000)
    golden("detached-start-fails", cli("up", "--detach"), {"home": cli.home})


def test_a_python_without_the_sdk(cli: Cli, golden: Golden) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", cli.home / "bare"], check=True)
    golden("python-without-sdk", cli("up", "--python", cli.home / "bare"), {"home": cli.home})


def test_a_python_that_is_not_there(cli: Cli, golden: Golden) -> None:
    golden("no-such-python", cli("up", "--python", "/no/such/python"), {"python": sys.executable})


def test_an_address_that_others_can_reach(cli: Cli, golden: Golden) -> None:
    golden("remote-host", cli("up", "--host", "0.0.0.0"), {})
    assert not cli.data.exists()


def test_an_address_that_this_computer_does_not_have(cli: Cli, golden: Golden) -> None:
    golden("foreign-host", cli("up", "--host", "192.0.2.1", "--allow-remote"), {"home": cli.home})


SETTINGS = {
    "bad-flag-value": (["config", "--mode", "fast"], ""),
    "bad-size": (["config", "--memory", "lots"], ""),
    "unknown-setting": (["config"], "prot: 1\n"),
    "bad-value-in-file": (["config"], "drain: soon\n"),
    "no-yaml": (["config"], "a: [\n"),
    "no-mapping": (["config"], "- a\n"),
    "data-dir-in-data-dir": (["config"], "data_dir: /tmp\n"),
    "no-config-file": (["config", "--config", "/no/such/file"], ""),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_cannot_be_used(cli: Cli, golden: Golden, name: str) -> None:
    arguments, yaml = SETTINGS[name]
    cli.data.mkdir()
    (cli.data / "wingbeat.yaml").write_text(yaml)
    result = cli(*arguments)
    assert result.code == 2
    golden(name, result, {"home": cli.home})


def test_errors_that_nobody_foresaw_are_not_hidden(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), explained(tmp_path):
        raise ZeroDivisionError


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    yield from _mount(tmp_path / "ro", "size=64m,ro")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from _mount(tmp_path / "small", "size=2m")


def _mount(place: Path, options: str) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True)
    if mount.returncode:
        pytest.skip(f"no mounts here: {mount.stderr.decode()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
