"""A server for the tests to kill: launches what it is told, and dies where it is told.

usage: server_process.py FOLDERS_JSON POINT; POINT is `run`, `before-request`, `before-zygote`, `before-answer`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from machine_support import Folders

from wingbeat.machine.facts import Facts
from wingbeat.machine.zygotes import Zygote


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main() -> None:
    where = json.loads(sys.argv[1])
    point = sys.argv[2]
    folders = Folders(Path(where["root"]), Path(where["runtime"]), where["marker"])
    inner = Zygote.request

    async def request(self: Zygote, op: str, **fields: Any) -> dict[str, Any]:
        if op == "launch" and point == "before-zygote":
            die()
        if op == "launch" and point == "before-answer":
            assert self._writer is not None
            fields.pop("timeout", None)
            self._writer.write(json.dumps({"id": 99, "op": op, **fields}).encode() + b"\n")
            await self._writer.drain()
            die()
        return await inner(self, op, **fields)

    Zygote.request = request  # type: ignore[method-assign]
    if point == "before-request":
        Facts.write_request = die  # type: ignore[assignment, method-assign]
    machine = folders.machine()
    await machine.start()
    for token, argv in where["launches"].items():
        await machine.launch(folders.spec(token, *argv))
    print("launched", flush=True)
    await asyncio.sleep(600)


asyncio.run(main())
