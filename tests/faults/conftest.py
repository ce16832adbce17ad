"""Servers to be killed, starved and stopped."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from faults_support import PROGRAMS, Server


@pytest.fixture
def make_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Servers that are not started yet, each with a data folder of its own (or with `data`)."""
    made: list[Server] = []

    def make(data: pathlib.Path | None = None) -> Server:
        root = tmp_path_factory.mktemp("faults")
        (root / "home").mkdir()
        made.append(Server(data or root / "data", root / "home"))
        return made[-1]

    yield make
    for server in made:
        server.stop(check=False)
        if (server.data / "id").exists():
            server.kill_all()


@pytest.fixture
def server(make_server: Callable[..., Server]) -> Server:
    return make_server()


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Where tasks leave their stamps."""
    path = tmp_path / "stamps"
    path.mkdir()
    return path


@pytest.fixture(scope="session")
def flock() -> Any:
    """The module programs/flock.py, for what it says of itself."""
    spec = importlib.util.spec_from_file_location("flock", PROGRAMS / "flock.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
