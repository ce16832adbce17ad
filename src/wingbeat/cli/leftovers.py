"""What a server left running when it was killed, or was asked to keep its tasks: zygotes and task processes."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

from wingbeat.server.folder import DataFolder

ATTEMPTS = "attempts"
"""Where the server keeps what it knows of launches, in the data folder."""


def end_leftovers(folder: DataFolder) -> bool:
    """End them; whether there were any. The caller holds the folder's lock."""
    found = [path for path in folder.runtime_dir.glob("z-*.sock") if _is_served(path)] if folder.id else []
    if not found:
        return False
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.run(_end(folder.path / ATTEMPTS, folder.runtime_dir, folder.id))
    return True


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(5)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


async def _end(state_dir: Path, runtime_dir: Path, marker: str) -> None:
    from wingbeat.machine import LocalMachine

    # It takes up what is there, as a server would, and lets go of it by ending it.
    machine = LocalMachine(state_dir, runtime_dir, marker=marker)
    await machine.start()
    await machine.stop(keep=False)
