"""Each check has a case in which it is not content, and says what to do."""

import json
import socket
import sys
from pathlib import Path

import pytest

from wingbeat.cli import checks
from wingbeat.cli.checks import Finding, Level, run_checks
from wingbeat.cli.disk import file_system_type
from wingbeat.server.settings import Settings, load_settings

from .conftest import Cli


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("WINGBEAT_DATA_DIR", str(tmp_path / "data"))
    return load_settings()


def find(settings: Settings, check: str) -> Finding:
    return next(finding for finding in run_checks(settings) if finding.check == check)


def test_a_good_computer_has_no_failure_and_every_finding_is_told(cli: Cli) -> None:
    result = cli("doctor", "-o", "json")
    findings = json.loads(result.out)
    assert result.code == 0, result.out
    names = [finding["check"] for finding in findings]
    for name in ("port", "data folder", "file system", "disk space", "task Python", "task SDK", "tar", "open files"):
        assert name in names
    for name in ("processes", "pid_max", "memory limits", "localhost", "proxy", "user", "server"):
        assert name in names
    assert not cli.data.exists(), "looking changes nothing"
    text = cli("doctor")
    assert text.code == 0
    assert all(name in text.out for name in names)


def test_whatever_is_not_right_comes_with_what_to_do(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, unused_port: int
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:1")
    monkeypatch.setenv("no_proxy", "localhost")
    monkeypatch.setattr(checks, "file_system_type", lambda path: "nfs")
    monkeypatch.setattr(checks, "free_space", lambda path: 1 << 20)
    monkeypatch.setattr(checks.shutil, "which", lambda name: None)
    monkeypatch.setattr(checks.socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("10.0.0.1", 0))])
    monkeypatch.setattr(checks, "_number", lambda path: 7)
    settings = settings.model_copy(update={"python": Path("/no/such/python"), "port": unused_port})
    findings = {finding.check: finding for finding in run_checks(settings) if finding.level is not Level.OK}
    assert {name: finding.level for name, finding in findings.items() if name != "inodes"} == {
        "file system": Level.FAIL,
        "disk space": Level.FAIL,
        "task Python": Level.FAIL,
        "tar": Level.FAIL,
        "pid_max": Level.WARN,
        "inotify watches": Level.WARN,
        "processes (cgroup)": Level.WARN,
        "localhost": Level.FAIL,
        "proxy": Level.WARN,
    }
    assert all(finding.todo for finding in findings.values())
    assert "127.0.0.1" in findings["proxy"].detail
    assert "localhost" not in findings["proxy"].detail


def test_a_taken_port_fails_only_when_it_was_asked_for(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert find(settings.model_copy(update={"port": port}), "port").level is Level.FAIL
        monkeypatch.setattr(checks, "DEFAULT_PORT", port)
        assert find(settings, "port").level is Level.WARN


def test_another_version_of_the_client_is_noticed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "package_version", lambda name: "1.2.3")
    finding = find(settings, "client SDK")
    assert (finding.level, finding.todo) == (Level.WARN, f"{sys.executable} -m pip install flyte==1.2.3")


def test_a_running_server_is_found_and_its_port_is_no_problem(cli: Cli) -> None:
    assert cli("up", "--detach").code == 0
    findings = {finding["check"]: finding for finding in json.loads(cli("doctor", "-o", "json").out)}
    assert "ready at" in findings["server"]["detail"]
    assert "port" not in findings


def test_the_file_system_is_that_of_the_nearest_folder_that_exists() -> None:
    assert file_system_type(Path("/proc/self/no/such/folder")) == "proc"
    assert file_system_type(Path("/")) != "unknown"
