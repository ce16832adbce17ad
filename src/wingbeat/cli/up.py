"""`wingbeat up`: check everything that can be checked before anything is changed, then serve."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import rich_click as click

from wingbeat import __version__
from wingbeat.cli.disk import check_disk
from wingbeat.cli.errors import CliError, command, explained
from wingbeat.cli.interpreter import TaskPython, look_at
from wingbeat.cli.options import as_arguments, setting_options, settings_of
from wingbeat.cli.running import describe, endpoint_url, readiness, wait_until
from wingbeat.resources import DEFAULT_ORG
from wingbeat.server.folder import DataFolder, ServerInfo, listen, listen_near, port_is_free, process_start
from wingbeat.server.settings import DEFAULT_PORT, Settings

READY_SECONDS = 60.0
_LOG_SIZE = 10 << 20
"""Bytes of server.log from which on a new one is begun; the one before is kept."""
_LOG_VARIABLE = "_WINGBEAT_LOG"
"""How a server in the background learns where its output goes."""
_TAIL = 15
"""Lines of the log shown when the start fails."""

CTRL_C = """\
Ctrl-C once:  accept nothing new, wait up to {drain:g} s for running actions, then end them.
Ctrl-C twice: end them now. Either way the next `wingbeat up` goes on with the runs."""


@click.command()
@setting_options()
@click.option(
    "--detach/--foreground", "-d/-f", default=False, help="Run in the background, or in this terminal (default)."
)
def up(detach: bool, **values: Any) -> None:
    """Start the server (and say where it is when it runs already)."""
    settings = settings_of(values)
    folder = DataFolder(settings.data_dir)
    with explained(folder.path):
        if detach:
            _start_detached(settings, folder, as_arguments(values))
        else:
            sys.exit(_serve(settings, folder, as_arguments(values)))


def _serve(settings: Settings, folder: DataFolder, arguments: list[str]) -> int:
    _check_host(settings)
    check_disk(settings)
    folder.prepare()
    held = _lock_or_find(folder)
    if isinstance(held, ServerInfo):
        _say_running(folder, held, arguments)
        return 0
    with held:
        folder.retract()  # What a server that was killed has left: nobody waits for its stop any more.
        python = _check_python(settings)
        # Held from here on: nobody else can take it, or answer for us, while the rest comes up.
        listener = _listen(settings, folder)
        port = int(listener.getsockname()[1])
        settings = settings.model_copy(update={"port": port})
        endpoint = endpoint_url(settings.host, port)
        folder.write_client_config(endpoint, org=DEFAULT_ORG, project=settings.project, domain=settings.domains[0])
        folder.write_example()
        info = ServerInfo(
            pid=os.getpid(),
            started=process_start(os.getpid()),
            started_at=time.time(),
            endpoint=endpoint,
            version=__version__,
            python=str(python.path),
            python_version=python.version,
            sdk_version=python.sdk,
            log=os.environ.pop(_LOG_VARIABLE, ""),
        )
        # Before anything is started: tasks of a server that is killed soon know this port.
        folder.keep_port(port)
        folder.announce(info)
        try:
            threading.Thread(target=_greet, args=(settings, folder, info), daemon=True).start()
            # Only now: this import takes a while, and the checks above need none of it.
            from wingbeat.server.app import run_server

            return int(run_server(settings, listener))
        finally:
            folder.retract()


def _greet(settings: Settings, folder: DataFolder, info: ServerInfo) -> None:
    """Say where the server is as soon as it can be used."""
    if not wait_until(lambda: readiness(info.endpoint)[0], READY_SECONDS):
        return
    rule = "" if info.log else f"\n\n{CTRL_C.format(drain=settings.drain)}"
    click.echo(f"Wingbeat {__version__} is ready.\n{describe(folder, info)}{rule}")


def _check_host(settings: Settings) -> None:
    from wingbeat.server.gate import Gate

    Gate(allow_remote=settings.allow_remote).check_host(settings.host)


def _check_python(settings: Settings) -> TaskPython:
    python = look_at(settings.python)
    if python.problem:
        raise CliError(python.problem, python.remedy)
    return python


def _listen(settings: Settings, folder: DataFolder) -> socket.socket:
    """A socket at the port that was asked for, else the one used before, else a free one."""
    if settings.port is not None:
        listener = listen(settings.host, settings.port)
        if listener is None:
            raise _port_taken(settings, settings.port)
        return listener
    kept = folder.kept_port()
    if kept is None:
        return listen_near(settings.host, DEFAULT_PORT)
    listener = listen(settings.host, kept)
    if listener is not None:
        return listener
    listener = listen_near(settings.host, DEFAULT_PORT)
    click.echo(
        f"Port {kept}, used before, is taken by another program; using {listener.getsockname()[1]}. "
        "Tasks that still run know only the old one: their actions will be run again.",
        err=True,
    )
    return listener


def _port_taken(settings: Settings, port: int) -> CliError:
    with listen_near(settings.host, port) as other:
        free = other.getsockname()[1]
    return CliError(
        f"port {port} on {settings.host} is taken by another program (set by {settings.origins['port']})",
        command("wingbeat", "up", "--port", str(free)),
    )


def _lock_or_find(folder: DataFolder) -> ExitStack | ServerInfo:
    """The lock, or the server that has it; one that is just starting or ending is waited for."""
    found: list[ExitStack | ServerInfo] = []

    def look() -> bool:
        answer = folder.lock() or folder.server()
        if answer is not None:
            found.append(answer)
        return bool(found)

    if not wait_until(look, 30):
        raise CliError(
            f"another process holds {folder.lock_file} and does not say who it is",
            command("fuser", "-v", folder.lock_file),
        )
    return found[0]


def _say_running(folder: DataFolder, info: ServerInfo, arguments: list[str]) -> None:
    if not wait_until(lambda: readiness(info.endpoint)[0] or not info.is_alive(), READY_SECONDS):
        click.echo(f"The server (pid {info.pid}) is not ready yet: {readiness(info.endpoint)[1]}", err=True)
    click.echo(f"Wingbeat {info.version} runs already (pid {info.pid}).\n{describe(folder, info)}")
    unused = [each for each in arguments if not each.startswith("--data-dir=")]
    if unused:
        stop = command("wingbeat", "stop", "--data-dir", folder.path)
        click.echo(f"\nIt keeps the settings it was started with; not used: {command(*unused)}\n  {stop}", err=True)


def _start_detached(settings: Settings, folder: DataFolder, arguments: list[str]) -> None:
    # What would fail later fails here, in this terminal.
    _check_host(settings)
    check_disk(settings)
    folder.prepare()
    running = folder.server()
    if running is not None:
        _say_running(folder, running, arguments)
        return
    _check_python(settings)
    if settings.port is not None and not port_is_free(settings.host, settings.port):
        raise _port_taken(settings, settings.port)
    log = folder.log_file
    if log.exists() and log.stat().st_size > _LOG_SIZE:
        log.rename(log.with_suffix(".log.1"))
    with log.open("ab") as output:
        os.fchmod(output.fileno(), 0o600)
        begin = output.tell()
        # A session of its own: the terminal's end and its Ctrl-C are not for it. -P: no modules of the current folder.
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "wingbeat.cli", "up", "--foreground", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, _LOG_VARIABLE: str(log)},
        )
    ready: list[ServerInfo] = []

    def look() -> bool:
        ended = child.poll() is not None
        info = folder.server()
        if info is not None and (info.pid == child.pid or ended) and readiness(info.endpoint)[0]:
            ready.append(info)
        return bool(ready) or ended

    in_time = wait_until(look, READY_SECONDS)
    if ready:
        said = "is ready" if ready[0].pid == child.pid else "runs already"
        stop = command("wingbeat", "stop", "--data-dir", folder.path)
        click.echo(f"Wingbeat {ready[0].version} {said} (pid {ready[0].pid}).\n{describe(folder, ready[0])}")
        click.echo(f"\nStop it:\n  {stop}")
        return
    why = f"ended with exit code {child.returncode}" if in_time else f"was not ready within {READY_SECONDS:g} s"
    if not in_time:
        child.terminate()
        child.wait()
    click.echo(_tail(log, begin), err=True)
    raise CliError(
        f"the server {why}; the end of its log {log} is above", command("wingbeat", "doctor", "--data-dir", folder.path)
    )


def _tail(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(max(begin, log.stat().st_size - 65536))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-_TAIL:])
