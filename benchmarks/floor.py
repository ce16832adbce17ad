"""The fork floor: the same zygote forking the same task process, with nothing around it.

No server, no engine, no database: a loop that keeps `side_by_side` children going and takes the next launch when one
has ended. What it does not do, nobody can do faster by running each task in a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from wingbeat.machine.processes import DATA_VARIABLE, TOKEN_VARIABLE
from wingbeat.machine.zygotes import INHERITED, NO_TOKEN, SOURCE, TOKEN_ROOM
from wingbeat.storage import COPYING_SCRIPT


class Floor:
    def __init__(self, home: Path, launch: dict[str, Any], *, interpreter: str = sys.executable) -> None:
        """`launch` says how a trivial child was called: its `argv` and `env`."""
        self.home = home
        self._launch = launch
        self._interpreter = interpreter
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._received = b""
        self._count = 0
        self.pid = 0

    def __enter__(self) -> Floor:
        self.home.mkdir(parents=True, exist_ok=True)
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        env |= {"FSSPEC_FILE": '{"auto_mkdir": true}', DATA_VARIABLE: "floor", TOKEN_VARIABLE: NO_TOKEN * TOKEN_ROOM}
        configuration = {
            "socket": str(self.home / "z.sock"),
            "interpreter": self._interpreter,
            "marker": "floor",
            "mode": "fork",
            "preload": [],
            "adapter": str(COPYING_SCRIPT),
            "orphan_seconds": 5,
        }
        with open(self.home / "zygote.log", "wb") as errors:
            self._process = subprocess.Popen(
                [self._interpreter, str(SOURCE), json.dumps(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=env,
                cwd="/",
            )
        assert self._process.stdout is not None
        hello = json.loads(self._process.stdout.readline())
        if hello["mode"] != "fork":
            raise RuntimeError(f"the zygote does not fork: {hello['why']}")
        self.pid = int(hello["pid"])
        self._socket.connect(configuration["socket"])
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.sendall(b'{"id": 0, "op": "shutdown"}\n')
        self._process.wait(20)
        self._socket.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def run(self, count: int, side_by_side: int = 2) -> float:
        """Seconds for `count` launches."""
        begin = time.monotonic()
        started = ended = 0
        while ended < count:
            while started < count and started - ended < side_by_side:
                self._start()
                started += 1
            message = self._next()
            if message.get("event") == "exit":
                if message["exit"]["code"] != 0:
                    raise RuntimeError(f"a child of the floor failed: {message['exit']}")
                ended += 1
                self._send({"id": 0, "op": "forget", "tokens": [message["token"]]})
            elif message.get("ok") is False:
                raise RuntimeError(f"the zygote refused: {message}")
        return time.monotonic() - begin

    def _start(self) -> None:
        self._count += 1
        token = f"floor-{self._count}"
        folder = self.home / token
        folder.mkdir()
        argv = list(self._launch["argv"])
        for option in ("--outputs-path", "--raw-data-path", "--checkpoint-path"):
            if option in argv:
                argv[argv.index(option) + 1] = str(folder / option.strip("-"))
        self._send(
            {
                "id": self._count,
                "op": "launch",
                "token": token,
                "folder": str(folder),
                "argv": argv,
                "env": self._launch["env"],
                "interpreter": self._interpreter,
                "attempt": 1,
                "log_path": str(folder / "log"),
                "log_limit": 1 << 20,
                "cgroups": [],
            }
        )

    def _send(self, message: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _next(self) -> dict[str, Any]:
        while b"\n" not in self._received:
            data = self._socket.recv(1 << 16)
            if not data:
                raise RuntimeError(f"the zygote is gone: {(self.home / 'zygote.log').read_text()[-2000:]}")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return dict(json.loads(line))
