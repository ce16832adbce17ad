"""The server put together: one process with the engine and the services, one for bulk data, zygotes for tasks.

Started in the order of who needs whom (database, storage, machine, engine, services, port) and stopped in the
opposite one. Nothing here decides anything but that order and how a stop is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import os
import signal
import socket
import sys
from typing import Any

import structlog
from prometheus_client import REGISTRY

from wingbeat.catalog import OutputCatalog
from wingbeat.control import ControlPlane, ControlSettings
from wingbeat.database import Database, Records, open_database
from wingbeat.engine import Collector, Controller, Policy, read_state, utc_now
from wingbeat.execution import Contract
from wingbeat.machine import BudgetSettings, LocalMachine
from wingbeat.plugins import PluginRegistry
from wingbeat.plugins.process import ProcessPlugin, ProcessSettings
from wingbeat.resources import DEFAULT_ORG
from wingbeat.server.asgi import Application
from wingbeat.server.folder import DataFolder
from wingbeat.server.gate import Gate
from wingbeat.server.health import health_pages
from wingbeat.server.http import HttpServer
from wingbeat.server.metrics import publish
from wingbeat.server.pages import run_pages
from wingbeat.server.settings import Settings
from wingbeat.server.wiring import NAMESPACE, LogFolder, TaskSecrets, context_builder
from wingbeat.storage import COPYING_SCRIPT, DataServer, access_variables, open_storage
from wingbeat.stores import SqlStore

log = structlog.get_logger("wingbeat.server")


class Server:
    """Everything of one data folder. The caller holds the folder's lock."""

    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        assert settings.port is not None
        self.settings = settings
        self.listener = listener
        self.folder = DataFolder(settings.data_dir)
        self.endpoint = f"http://{_loopback(settings.host)}:{settings.port}"
        self._stack = contextlib.AsyncExitStack()
        self.control: ControlPlane
        self.controller: Controller
        self.machine: LocalMachine

    async def start(self) -> None:
        """Come up; on failure what was started is stopped again and the error is raised."""
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise

    async def _start(self) -> None:
        settings, data = self.settings, self.settings.data_dir
        database = await open_database(settings.database_location)
        self._stack.push_async_callback(database.close)
        records = Records(database)
        store = SqlStore(database)
        storage = open_storage(settings.storage_uri)
        await storage.check()
        data_server = DataServer(
            data / "transfer",
            settings.storage_uri,
            host=_loopback(settings.host).strip("[]"),
            allow_hosts=settings.allow_host,
        )
        await data_server.start()
        self._stack.push_async_callback(data_server.stop)
        logs = LogFolder(data / "logs", records)

        budget = BudgetSettings.of_this_computer()
        self.machine = LocalMachine(
            data / "attempts",
            self.folder.runtime_dir,
            marker=self.folder.id,
            budget=BudgetSettings(
                cpus=settings.cpus or budget.cpus,
                memory=settings.memory or budget.memory,
                gpus=budget.gpus if settings.gpus is None else settings.gpus,
                startups=settings.startups or 0,
            ),
            mode=settings.mode,
            preload=list(settings.preload),
            adapter=str(COPYING_SCRIPT),
            memory_limits=settings.memory_limits,
        )
        await self.machine.start()
        self._stack.push_async_callback(self._stop_machine)

        info = self.folder.server()
        self.control = ControlPlane(
            store,
            database,
            storage,
            data_server.signer,
            ControlSettings(
                endpoint=self.endpoint,
                run_base=storage.join("runs"),
                raw_data_prefix=storage.raw_data_prefix,
                org=DEFAULT_ORG,
                default_project=settings.project,
                domains=tuple((name, name.capitalize()) for name in settings.domains),
                interpreter=str(settings.python),
                python_version=".".join(info.python_version.split(".")[:2]) if info else "",
                sdk_version=info.sdk_version if info else "",
            ),
            secret_key_file=data / "secrets.key",
            logs=logs,
            set_waiting=self.machine.set_waiting,
        )

        plugin = ProcessPlugin(
            self.machine,
            storage,
            TaskSecrets(self.control.vault),
            ProcessSettings(
                contract=Contract(endpoint=self.endpoint),
                storage_access=access_variables(settings.storage_uri, os.environ),
                interpreter=lambda image: str(settings.python),
                log_path=logs.path,
                log_tail=logs.tail,
                log_limit=settings.log_limit,
                namespace=NAMESPACE,
                grace=settings.kill_grace,
            ),
        )
        self.controller = Controller(
            store,
            PluginRegistry([plugin]),
            context_builder(
                root=storage.base_uri,
                raw_data_prefix=storage.raw_data_prefix,
            ),
            catalog=OutputCatalog(database, storage, utc_now),
            policy=Policy(max_system_failures=settings.max_system_failures),
        )
        self.machine.on_change(self.controller.wake)
        left = await self.machine.tokens()
        self._stack.push_async_callback(self.controller.stop)
        collector = Collector(store, self.controller.informer, ttl=dt.timedelta(seconds=settings.gc_ttl), clock=utc_now)
        # Beside the rest: listing what many finished runs have left must not keep clients from being served.
        self._background(self._engine(plugin, left, collector), "engine")
        self._background(self._warm(), "first zygote")

        await self.control.start()
        self._stack.push_async_callback(self.control.close)
        pages = run_pages(
            records,
            storage,
            logs,
            self.control.feed,
            org=DEFAULT_ORG,
            endpoint=self.endpoint,
            data_folder=str(data),
            first_command=self.folder.first_command,
        )
        application = Application(
            self.control.apps,
            [*health_pages({"database": lambda: _answers(database), "storage": storage.check}), *pages],
        )
        publish(self.controller, application, REGISTRY)
        http = HttpServer(
            application,
            host=settings.host,
            port=settings.port or 0,
            listener=self.listener,
            gate=Gate(
                allow_remote=settings.allow_remote,
                allow_other_users=settings.allow_other_users,
                extra_hosts=settings.allow_host,
            ),
        )
        await http.start()
        self._stack.push_async_callback(http.stop)
        log.info("ready", endpoint=self.endpoint, data_folder=str(data), python=str(settings.python))

    def _background(self, work: object, name: str) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        task.set_name(name)

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._stack.push_async_callback(end)

    async def _engine(self, plugin: ProcessPlugin, left: list[str], collector: Collector) -> None:
        """Start the engine, clean up after an earlier server, then collect now and then. Without an engine there is
        nothing to serve for: a failure ends the server."""
        try:
            await self.controller.start()
            # As of now: no action has been looked at yet.
            live = [read_state(action).plugin for action in self.controller.live_actions()]
        except Exception:
            log.exception("the engine could not start; the server stops")
            os.kill(os.getpid(), signal.SIGTERM)
            return
        await self._sweep(plugin, left, live)
        await collector.run()

    async def _sweep(self, plugin: ProcessPlugin, tokens: list[str], live: list[dict[str, Any] | None]) -> None:
        try:
            count = await plugin.sweep(tokens, live)
        except Exception:
            log.exception("could not clean up after an earlier server")
        else:
            if count:
                log.info("cleaned up after an earlier server", launches=count)

    async def _warm(self) -> None:
        """Have the first zygote ready before the first run asks for it."""
        try:
            hello = await self.machine.warm(str(self.settings.python))
        except Exception as error:
            log.warning("the task environment is not usable", python=str(self.settings.python), error=str(error))
            return
        if hello.get("mode") == "spawn" and self.settings.mode != "spawn":
            log.warning("tasks are started as fresh processes, not forked", why=hello.get("why"))

    async def _stop_machine(self) -> None:
        await self.machine.stop(keep=self.folder.stop_request().keep_tasks)

    async def drain(self, seconds: float, hurry: asyncio.Event) -> None:
        """Refuse new runs and wait for live actions; `hurry` or the end of `seconds` ends the wait."""
        self.control.submission.drain()
        deadline = asyncio.get_running_loop().time() + seconds
        while self.controller.live_actions() and not hurry.is_set():
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(hurry.wait(), min(left, 0.2))

    async def stop(self) -> None:
        await self._stack.aclose()


def _loopback(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, f"[{host}]" if ":" in host else host)


async def _answers(database: Database) -> None:
    await database.read(lambda connection: connection.query("SELECT 1"))


def configure_logging(level: str, format: str) -> None:
    """Lines of text for a terminal, JSON for everything else, with the run, action and attempt they speak of."""
    as_text = format == "text" or (format == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if as_text else structlog.processors.JSONRenderer()
    )
    final: list[structlog.typing.Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if not as_text:
        final.append(structlog.processors.format_exc_info)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[*final, renderer]))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("asyncio", "hypercorn.error", "uvicorn.error", "httpx"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


async def _serve(settings: Settings, listener: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    stop, hurry = asyncio.Event(), asyncio.Event()
    drains = False

    def interrupted() -> None:
        nonlocal drains
        if stop.is_set():
            hurry.set()
        drains = True
        stop.set()

    def terminated() -> None:
        hurry.set()
        stop.set()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGTERM, terminated)
    server = Server(settings, listener)
    await server.start()
    await stop.wait()
    if drains and not hurry.is_set():
        live = len(server.controller.live_actions())
        if live:
            log.info("draining: waiting for running actions; Ctrl-C again ends them now", live_actions=live)
        await server.drain(settings.drain, hurry)
    log.info("stopping")
    await server.stop()
    return 0


def run_server(settings: Settings, listener: socket.socket) -> int:
    """Serve until told to stop; returns the exit code. The caller holds the lock of the data folder, and `listener`
    listens at the settings' host and port."""
    configure_logging(settings.log_level, settings.log_format)
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    with runner:
        return runner.run(_serve(settings, listener))
