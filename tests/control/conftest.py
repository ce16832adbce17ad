"""The control plane on a real database, store, storage and server, with nothing that runs actions: tests play the
engine by applying events."""

from __future__ import annotations

import datetime as dt
import io
import sys
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from flyteidl2.actions.actions_service_connect import ActionsServiceClient
from flyteidl2.actions.actions_service_pb2 import Action, EnqueueRequest, WatchForUpdatesRequest
from flyteidl2.auth.identity_connect import IdentityServiceClient
from flyteidl2.common.identifier_pb2 import ActionIdentifier, ProjectIdentifier, RunIdentifier
from flyteidl2.core.interface_pb2 import TypedInterface, Variable, VariableEntry, VariableMap
from flyteidl2.core.literals_pb2 import Literal, Primitive, Scalar
from flyteidl2.core.tasks_pb2 import TaskTemplate
from flyteidl2.core.types_pb2 import LiteralType, SimpleType
from flyteidl2.dataproxy.dataproxy_service_connect import DataProxyServiceClient
from flyteidl2.imagebuilder.service_connect import ImageServiceClient
from flyteidl2.project.project_service_connect import ProjectServiceClient
from flyteidl2.secret.secret_connect import SecretServiceClient
from flyteidl2.settings.settings_service_connect import SettingsServiceClient
from flyteidl2.task.common_pb2 import Inputs
from flyteidl2.task.task_definition_pb2 import TaskIdentifier, TaskSpec
from flyteidl2.task.task_service_connect import TaskServiceClient
from flyteidl2.trigger.trigger_service_connect import TriggerServiceClient
from flyteidl2.workflow.queue_service_connect import QueueServiceClient
from flyteidl2.workflow.run_service_connect import RunServiceClient
from flyteidl2.workflow.run_service_pb2 import CreateRunRequest
from flyteidl2.workflow.state_service_connect import StateServiceClient

from wingbeat.control import ControlPlane, ControlSettings, LogLine
from wingbeat.database import open_database
from wingbeat.resources import ActionEvent, ActionId, ActionPhase, ErrorInfo, RunId
from wingbeat.server.asgi import Application
from wingbeat.server.http import HttpServer
from wingbeat.storage import Signer, open_storage
from wingbeat.stores.sql import SqlStore

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


class Logs:
    """Lines that a test puts there."""

    def __init__(self) -> None:
        self.lines: dict[tuple[ActionId, int], list[LogLine]] = {}
        self.followed: list[bool] = []

    async def available(self, id: ActionId, attempt: int) -> bool:
        return (id, attempt) in self.lines

    async def read(self, id: ActionId, attempt: int, *, follow: bool) -> AsyncIterator[LogLine]:
        self.followed.append(follow)
        for line in self.lines[id, attempt]:
            yield line


def literal(value: Any) -> Any:
    kinds = {bool: "boolean", int: "integer", float: "float_value", str: "string_value"}
    return Literal(scalar=Scalar(primitive=Primitive(**{kinds[type(value)]: value})))


def inputs(**values: Any) -> Any:
    result = Inputs()
    for name, value in values.items():
        result.literals.add(name=name, value=literal(value))
    return result


def variables(**types: Any) -> Any:
    entries = []
    for name, kind in types.items():
        literal_type = LiteralType(simple=kind) if isinstance(kind, int) else kind
        entries.append(VariableEntry(key=name, value=Variable(type=literal_type)))
    return VariableMap(variables=entries)


def task_spec(name: str = "env.main", version: str = "v1", takes: Any = None, defaults: Any = None, **args: Any) -> Any:
    """A task with an `n: int`, unless `takes` says otherwise."""
    takes = variables(n=SimpleType.INTEGER) if takes is None else takes
    template = TaskTemplate(
        type="python", interface=TypedInterface(inputs=takes, outputs=variables(o0=SimpleType.STRING))
    )
    template.id.org, template.id.project, template.id.domain = "local", "default", "development"
    template.id.name, template.id.version = name, version
    template.container.image = args.get("image", "anything")
    template.container.args.extend(["a0", "--inputs", "{{.input}}", *args.get("args", [])])
    spec = TaskSpec(task_template=template, short_name=name.rpartition(".")[2])
    spec.environment.name = name.partition(".")[0]
    for key, value in (defaults or {}).items():
        parameter = spec.default_inputs.add(name=key)
        parameter.parameter.default.CopyFrom(literal(value))
    return spec


def bundle(*members: str | tarfile.TarInfo) -> bytes:
    """A code bundle with these files, each of which is empty."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member in members:
            archive.addfile(tarfile.TarInfo(member) if isinstance(member, str) else member)
    return buffer.getvalue()


class Plane:
    """A started control plane, a client for each service, and the engine's part played by hand."""

    def __init__(self, control: ControlPlane, store: SqlStore, db: Any, storage: Any, url: str, logs: Logs) -> None:
        self.control, self.store, self.db, self.storage, self.url, self.logs = control, store, db, storage, url, logs
        self.waiting: list[tuple[str, bool]] = []
        self.runs = RunServiceClient(url)
        self.actions = ActionsServiceClient(url)
        self.queue = QueueServiceClient(url)
        self.state = StateServiceClient(url)
        self.data = DataProxyServiceClient(url)
        self.tasks = TaskServiceClient(url)
        self.triggers = TriggerServiceClient(url)
        self.projects = ProjectServiceClient(url)
        self.secrets = SecretServiceClient(url)
        self.settings = SettingsServiceClient(url)
        self.identity = IdentityServiceClient(url)
        self.images = ImageServiceClient(url)

    def run_id(self, name: str) -> Any:
        return RunIdentifier(project="default", domain="development", name=name)

    def action_id(self, run: str, name: str = "a0") -> Any:
        return ActionIdentifier(run=self.run_id(run), name=name)

    def id(self, run: str, name: str = "a0") -> ActionId:
        return RunId("local", "default", "development", run).action(name)

    def create_request(self, name: str = "", **fields: Any) -> Any:
        request = CreateRunRequest(**fields)
        if name:
            request.run_id.CopyFrom(self.run_id(name))
        else:
            request.project_id.CopyFrom(ProjectIdentifier(name="default", domain="development"))
        if not request.WhichOneof("task"):
            request.task_spec.CopyFrom(task_spec())
        if not request.WhichOneof("input_wrapper"):
            request.inputs.CopyFrom(inputs(n=3))
        return request

    async def create(self, name: str = "", **fields: Any) -> Any:
        """A run of a task with input `n`, unless `fields` say otherwise."""
        return (await self.runs.create_run(self.create_request(name, **fields))).run

    def child_request(self, run: str, name: str, parent: str = "a0", **fields: Any) -> Any:
        base = self.storage.join("runs", run)
        action = Action(
            action_id=self.action_id(run, name),
            parent_action_name=parent,
            input_uri=f"{base}/{name}/inputs.pb",
            run_output_base=base,
            **fields,
        )
        if not action.WhichOneof("spec"):
            action.task.spec.CopyFrom(task_spec("env.child"))
            action.task.id.CopyFrom(
                TaskIdentifier(org="local", project="default", domain="development", name="env.child", version="v1")
            )
        return EnqueueRequest(action=action)

    async def enqueue(self, run: str, name: str, parent: str = "a0", **fields: Any) -> None:
        await self.actions.enqueue(self.child_request(run, name, parent, **fields))

    def watch(self, run: str, parent: str = "a0") -> Any:
        return self.actions.watch_for_updates(WatchForUpdatesRequest(parent_action_id=self.action_id(run, parent)))

    async def happens(self, run: str, name: str, phase: ActionPhase, attempt: int = 1, **fields: Any) -> None:
        """What the engine would report."""
        event = ActionEvent(id=self.id(run, name), attempt=attempt, phase=phase, occurred_at=NOW, **fields)
        await self.store.apply_events([event])

    async def succeeds(self, run: str, name: str = "a0", **fields: Any) -> None:
        await self.happens(run, name, ActionPhase.SUCCEEDED, **fields)

    async def fails(self, run: str, name: str = "a0", message: str = "it broke", **fields: Any) -> None:
        error = ErrorInfo(message, code="ValueError", kind="USER")
        await self.happens(run, name, ActionPhase.FAILED, error=error, **fields)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    db = await open_database(tmp_path / "wingbeat.db")
    store = SqlStore(db)
    storage = open_storage(str(tmp_path / "data"))
    settings = ControlSettings(
        endpoint="http://127.0.0.1",
        run_base=storage.join("runs"),
        interpreter=sys.executable,
        python_version=f"{sys.version_info[0]}.{sys.version_info[1]}",
        user="ada",
        heartbeat_seconds=0.2,
    )
    logs = Logs()
    waiting: list[tuple[str, bool]] = []
    control = ControlPlane(
        store,
        db,
        storage,
        Signer.load(tmp_path / "url.key", "http://127.0.0.1:1"),
        settings,
        secret_key_file=tmp_path / "secret.key",
        logs=logs,
        set_waiting=lambda action, waits: waiting.append((action.action, waits)),
    )
    await control.start()
    server = HttpServer(Application(control.apps))
    _, port = await server.start()
    plane = Plane(control, store, db, storage, f"http://127.0.0.1:{port}", logs)
    plane.waiting = waiting
    yield plane
    await server.stop(2)
    await control.close()
    store.close()
    await db.close()


@pytest.fixture
def make() -> Any:
    """Builders of messages: task_spec, inputs, literal, variables, bundle."""

    class Make:
        pass

    for builder in (task_spec, inputs, literal, variables, bundle):
        setattr(Make, builder.__name__, staticmethod(builder))
    return Make
