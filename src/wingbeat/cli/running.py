"""A server that runs: is it ready, and how to tell people about it."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import rich_click as click

from wingbeat.server.folder import DataFolder, ServerInfo

PAUSE = 0.05
"""Seconds between two looks."""


def endpoint_url(host: str, port: int) -> str:
    """What clients of this computer use; a server that listens everywhere also listens on the loopback."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}"


def readiness(endpoint: str, timeout: float = 5.0) -> tuple[bool, str]:
    """Whether the server can do work, and in its own words why not."""
    connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=timeout)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        text = answer.read(4096).decode(errors="replace").strip()
        return answer.status == 200, "" if answer.status == 200 else text or f"HTTP {answer.status}"
    except OSError as error:
        return False, f"no answer from {endpoint}: {error}"
    except http.client.HTTPException as error:
        return False, f"no good answer from {endpoint}: {error!r}"
    finally:
        connection.close()


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Look every 50 ms; whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE)
    return True


def describe(folder: DataFolder, info: ServerInfo) -> str:
    """The lines that one needs to begin."""
    versions = f" (Python {info.python_version}, flyte {info.sdk_version})" if info.sdk_version else ""
    lines = {
        "Endpoint": info.endpoint,
        "Console": f"{info.endpoint}/",
        "Data folder": str(folder.path),
        "Task Python": f"{info.python}{versions}",
        "Client config": str(folder.client_config),
    }
    if info.log:
        lines["Log"] = info.log
    first = folder.first_command
    width = max(len(name) for name in lines)
    rows = [f"  {click.style(f'{name:<{width}}', bold=True)}  {value}" for name, value in lines.items()]
    return "\n".join([*rows, "", "Run a first workflow:", f"  {first}"])
