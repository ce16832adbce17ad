"""A real browser for tests: Chromium, spoken to over a pipe in its DevTools protocol. Needs no package."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
)  # fmt: skip
_PLACE = """
import fcntl, os, sys
# Out of the way first: the ends may have the very numbers that they get.
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for number, end in zip((3, 4), ends):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page. `complaints` are errors and refusals that the browser's console shows."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self.session = session
        self.complaints: list[str] = []
        self.dialogs = 0

    async def call(self, method: str, **parameters: Any) -> Any:
        return await self._browser.call(method, parameters, self.session)

    async def go(self, url: str) -> None:
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"]["exception"].get("description", answer))
        return answer["result"].get("value")

    async def until(self, condition: str, seconds: float = 20) -> None:
        """Wait for a JavaScript condition."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    with contextlib.suppress(AssertionError):
                        if await self.run(condition):
                            return
                    await asyncio.sleep(0.03)
        except TimeoutError:
            raise AssertionError(f"never true: {condition}; console: {self.complaints}") from None

    async def size(self, width: int, height: int, *, scheme: str = "light") -> None:
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                        mobile=False)  # fmt: skip
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def key(self, name: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)
        if name == "Enter":
            await self.call("Input.dispatchKeyEvent", type="char", key=name, text="\r")

    async def picture(self, path: str) -> None:
        data = (await self.call("Page.captureScreenshot"))["data"]
        await asyncio.to_thread(Path(path).write_bytes, base64.b64decode(data))

    def heard(self, method: str, parameters: dict[str, Any]) -> None:
        if method == "Page.javascriptDialogOpening":
            self.dialogs += 1
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.complaints.append(parameters["entry"]["text"])


class Browser:
    def __init__(self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, out: int) -> None:
        self._process = process
        self._reader = reader
        self._out = out
        self._number = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._tabs: dict[str, Tab] = {}
        self._task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while True:
            try:
                message = json.loads((await self._reader.readuntil(b"\0"))[:-1])
            except asyncio.IncompleteReadError:
                return
            future = self._answers.pop(message.get("id", 0), None)
            if future is not None and not future.done():
                if "error" in message:
                    future.set_exception(AssertionError(message["error"]["message"]))
                else:
                    future.set_result(message["result"])
            elif tab := self._tabs.get(message.get("sessionId", "")):
                tab.heard(message["method"], message["params"])

    async def call(self, method: str, parameters: dict[str, Any], session: str = "") -> Any:
        self._number += 1
        number = self._number
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        return await asyncio.wait_for(future, 30)

    async def tab(self) -> Tab:
        target = (await self.call("Target.createTarget", {"url": "about:blank"}))["targetId"]
        session = (await self.call("Target.attachToTarget", {"targetId": target, "flatten": True}))["sessionId"]
        tab = self._tabs[session] = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await tab.call(f"{domain}.enable")
        return tab

    async def close(self) -> None:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self.call("Browser.close", {}), 5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._task.cancel()


@contextlib.asynccontextmanager
async def started(profile: Path) -> AsyncIterator[Browser]:
    """A browser of its own, with a fresh profile. Its ends of the two pipes are descriptors 3 and 4."""
    program = find()
    assert program is not None
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PLACE, str(to_read), str(from_write), program, *FLAGS, f"--user-data-dir={profile}",
        "about:blank", pass_fds=(to_read, from_write), start_new_session=True,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_read)
    os.close(from_write)
    reader = asyncio.StreamReader(limit=2**26)
    pipe = os.fdopen(from_read, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    browser = Browser(process, reader, to_write)
    try:
        yield browser
    finally:
        await browser.close()
        transport.close()
        os.close(to_write)
