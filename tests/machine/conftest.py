from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from machine_support import Folders

from wingbeat.machine.processes import send


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Folders]:
    short = Path(tempfile.mkdtemp(prefix="wb-", dir="/tmp"))
    found = Folders(tmp_path, short, uuid.uuid4().hex)
    yield found
    left = found.processes()
    for process in left:
        send(process, signal.SIGKILL)
    shutil.rmtree(short, ignore_errors=True)
    assert not left, "processes were left behind"
