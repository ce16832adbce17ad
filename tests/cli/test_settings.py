"""Where a value comes from: command line, environment, file, default."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from wingbeat.server.quantities import format_size, parse_seconds, parse_size
from wingbeat.server.settings import Settings, load_settings

from .conftest import Cli


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"WINGBEAT_{name.upper()}", raising=False)
    monkeypatch.delenv("WINGBEAT_CONFIG", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))


def test_the_stronger_source_wins_and_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "xdg" / "wingbeat"
    folder.mkdir(parents=True)
    file = folder / "wingbeat.yaml"
    file.write_text("port: 1001\nproject: from-file\ncpus: 1\ndomains: [a, b]\n")
    monkeypatch.setenv("WINGBEAT_PORT", "1002")
    monkeypatch.setenv("WINGBEAT_CPUS", "2")
    settings = load_settings({"cpus": "3", "memory": None})
    assert (settings.cpus, settings.port, settings.project, settings.domains) == (3, 1002, "from-file", ("a", "b"))
    assert {name: settings.origins[name] for name in ("cpus", "port", "project", "host")} == {
        "cpus": "--cpus",
        "port": "WINGBEAT_PORT",
        "project": str(file),
        "host": "default",
    }


def test_another_file_takes_the_place_of_the_one_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "xdg" / "wingbeat"
    folder.mkdir(parents=True)
    (folder / "wingbeat.yaml").write_text("port: 1001\n")
    other = tmp_path / "other.yaml"
    other.write_text(f"data_dir: {tmp_path}/elsewhere\nproject: birds\n")
    settings = load_settings(config=other)
    assert (settings.port, settings.project, settings.data_dir) == (None, "birds", tmp_path / "elsewhere")
    monkeypatch.setenv("WINGBEAT_CONFIG", str(other))
    assert load_settings().project == "birds"


def test_the_file_is_looked_for_where_the_flag_says_the_data_folder_is(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "wingbeat.yaml").write_text("port: 1001\n")
    assert load_settings({"data_dir": str(tmp_path / "mine")}).port == 1001


@pytest.mark.parametrize("value", ["", "relative/path"])
def test_the_data_folder_is_below_home_without_a_good_xdg_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_settings().data_dir == tmp_path / ".local" / "share" / "wingbeat"


def test_lists_and_quantities_are_written_as_people_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINGBEAT_PRELOAD", "numpy, pandas,")
    settings = load_settings({"memory": "1.5GiB", "gc_ttl": "7d", "drain": "0"})
    assert (settings.preload, settings.memory, settings.gc_ttl, settings.drain) == (
        ("numpy", "pandas"),
        1610612736,
        604800,
        0,
    )


def test_passwords_are_not_shown() -> None:
    settings = load_settings({"database": "postgresql://me:secret@host/db"})
    assert settings.shown()["database"] == "postgresql://me:***@host/db"
    assert settings.database_location == "postgresql://me:secret@host/db"


def test_an_environment_is_its_python_and_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    assert load_settings({"python": str(tmp_path / "env")}).python == tmp_path / "env" / "bin" / "python"


SIZES = {"0": 0, "1024": 1024, "1k": 1000, "1 KiB": 1024, "2Mi": 2 << 20, "3G": 3 * 10**9, "1TiB": 1 << 40, "10 B": 10}


@pytest.mark.parametrize("text", SIZES)
def test_a_size_is_read(text: str) -> None:
    assert parse_size(text) == SIZES[text]


@pytest.mark.parametrize("text", ["", "x", "1 x", "-1", "1e3", "GiB", "1..2M"])
def test_what_is_no_size_and_no_duration_is_refused(text: str) -> None:
    for parse in (parse_size, parse_seconds):
        with pytest.raises(ValueError, match=r"no size|no duration"):
            parse(text)


DURATIONS = {
    "0": 0,
    "1.5": 1.5,
    "250ms": 0.25,
    "90s": 90,
    "10m": 600,
    "10 min": 600,
    "2h": 7200,
    "7d": 604800,
    "1w": 604800,
}


@pytest.mark.parametrize("text", DURATIONS)
def test_a_duration_is_read(text: str) -> None:
    assert parse_seconds(text) == DURATIONS[text]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KiB"),
        (32 << 20, "32.0 MiB"),
        (500 << 20, "500 MiB"),
        (3 << 40, "3072 GiB"),
    ],
)
def test_a_size_is_written(size: int, text: str) -> None:
    assert format_size(size) == text


def test_config_prints_every_setting_with_its_origin(cli: Cli) -> None:
    facts = json.loads(cli("config", "--drain", "5m", "-o", "json", WINGBEAT_PORT="1234").out)
    assert set(facts) == set(Settings.model_fields)
    assert facts["port"] == {"value": 1234, "origin": "WINGBEAT_PORT"}
    assert facts["drain"] == {"value": 300.0, "origin": "--drain"}
    text = cli("config", "--drain", "5m").out.splitlines()
    assert [line.split() for line in text if line.startswith("drain")] == [["drain", "300", "--drain"]]
    assert len(text) == len(facts)


def test_every_setting_is_an_option_of_up(cli: Cli) -> None:
    shown = cli("up", "--help", COLUMNS="200").out
    missing = [name for name in Settings.model_fields if f"--{name.replace('_', '-')}" not in shown]
    assert missing == []


def test_version_names_what_it_speaks(cli: Cli) -> None:
    facts = json.loads(cli("version", "--output", "json").out)
    assert set(facts) == {"wingbeat", "python", "flyte", "flyteidl2", "connectrpc"}
    assert all(facts.values())


@pytest.mark.parametrize("module", ["flyteidl2", "connectrpc", "google", "obstore", "pydantic", "asyncio"])
def test_the_command_starts_without_what_it_does_not_need(module: str) -> None:
    program = f"import sys, wingbeat.cli, wingbeat.cli.root, wingbeat.cli.version; sys.exit({module!r} in sys.modules)"
    needed = module == "asyncio"  # rich-click imports it
    assert subprocess.run([sys.executable, "-c", program]).returncode in (0, int(needed))


def test_checks_and_settings_import_no_wire() -> None:
    program = "import sys, wingbeat.cli.up, wingbeat.cli.doctor; sys.exit('flyteidl2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
