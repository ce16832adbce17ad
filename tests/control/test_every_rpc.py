"""What no RPC may do, whatever it is sent: fail inside, or answer `unknown` or `canceled`."""

from __future__ import annotations

import importlib
import random

import httpx
import pytest
from google.protobuf.message_factory import GetMessageClass

SERVICES = {
    "flyteidl2.actions.actions_service_pb2": "ActionsService",
    "flyteidl2.auth.identity_pb2": "IdentityService",
    "flyteidl2.cluster.service_pb2": "ClusterService",
    "flyteidl2.dataproxy.dataproxy_service_pb2": "DataProxyService",
    "flyteidl2.imagebuilder.service_pb2": "ImageService",
    "flyteidl2.project.project_service_pb2": "ProjectService",
    "flyteidl2.secret.secret_pb2": "SecretService",
    "flyteidl2.settings.settings_service_pb2": "SettingsService",
    "flyteidl2.task.task_service_pb2": "TaskService",
    "flyteidl2.trigger.trigger_service_pb2": "TriggerService",
    "flyteidl2.workflow.queue_service_pb2": "QueueService",
    "flyteidl2.workflow.run_service_pb2": "RunService",
    "flyteidl2.workflow.state_service_pb2": "StateService",
}
METHODS = [
    (f"/{service.full_name}/{method.name}", method.server_streaming)
    for module, name in SERVICES.items()
    for service in [importlib.import_module(module).DESCRIPTOR.services_by_name[name]]
    for method in service.methods
]
REQUESTS = {
    f"/{service.full_name}/{method.name}": GetMessageClass(method.input_type)
    for module, name in SERVICES.items()
    for service in [importlib.import_module(module).DESCRIPTOR.services_by_name[name]]
    for method in service.methods
}
ENDLESS = ("WatchRuns", "WatchGroups")
GARBAGE = b"\xff\x00garbage\x80" * 50


@pytest.fixture
async def http():
    async with httpx.AsyncClient(timeout=20) as client:
        yield client


async def call(http: httpx.AsyncClient, plane, path: str, stream: bool, body: bytes) -> str:
    """The answer's code and message, as text."""
    if stream:
        content = b"\x00" + len(body).to_bytes(4, "big") + body
        content_type = "application/connect+proto"
    else:
        content, content_type = body, "application/proto"
    answer = await http.post(plane.url + path, content=content, headers={"content-type": content_type})
    return answer.content.decode(errors="replace") + (" ok" if answer.status_code == 200 else "")


async def test_every_mounted_service_is_tested(plane):
    assert {app.path for app in plane.control.apps} == {path.rpartition("/")[0] for path, _ in METHODS}


async def test_garbage_is_invalid_everywhere(plane, http):
    wrong = {}
    for path, stream in METHODS:
        answer = await call(http, plane, path, stream, GARBAGE)
        if "invalid_argument" not in answer or "the body is not a" not in answer:
            wrong[path] = answer
    assert wrong == {}


async def test_an_empty_request_is_answered_or_refused_in_words_everywhere(plane, http):
    wrong = {}
    for path, stream in METHODS:
        if path.endswith(ENDLESS):
            continue
        answer = await call(http, plane, path, stream, b"")
        if any(word in answer for word in ("internal", '"unknown"', '"canceled"')):
            wrong[path] = answer
    assert wrong == {}


@pytest.mark.parametrize("seed", range(10))
async def test_messages_with_any_content_are_answered_or_refused_in_words(plane, http, seed):
    """Every field set to something, deep down: identities that do not exist, numbers out of range, odd text."""
    rng = random.Random(seed)
    await plane.create("run")
    wrong = {}
    for path, stream in METHODS:
        if stream:
            continue
        request = filled(REQUESTS[path], rng)
        answer = await call(http, plane, path, stream, request.SerializeToString())
        if any(word in answer for word in ('"internal"', '"unknown"', '"canceled"')):
            wrong[path] = answer
    assert wrong == {}


TEXTS = ["default", "development", "run", "a0", "", "../..", "ü\n", "x" * 300, "local", "1", "9" * 40, "env.main"]


def filled(kind, rng: random.Random, depth: int = 0):
    message = kind()
    for field in message.DESCRIPTOR.fields:
        if depth > 5 or rng.random() < 0.15:
            continue
        if field.message_type and field.message_type.GetOptions().map_entry:
            continue
        if field.message_type:
            inner = GetMessageClass(field.message_type)
            if field.is_repeated:
                getattr(message, field.name).extend([filled(inner, rng, depth + 1)])
            else:
                getattr(message, field.name).CopyFrom(filled(inner, rng, depth + 1))
            continue
        value = some_value(field, rng)
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    return message


def some_value(field, rng: random.Random):
    if field.enum_type:
        return rng.choice(field.enum_type.values).number
    usual = {"project": "default", "domain": "development", "org": "", "version": "v1"}.get(field.name)
    if usual is not None and field.type == field.TYPE_STRING and rng.random() < 0.8:
        return usual
    match field.cpp_type:
        case field.CPPTYPE_STRING:
            return rng.randbytes(8) if field.type == field.TYPE_BYTES else rng.choice(TEXTS)
        case field.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case field.CPPTYPE_DOUBLE | field.CPPTYPE_FLOAT:
            return rng.choice([0.0, -1.5, 1e300])
        case field.CPPTYPE_UINT32 | field.CPPTYPE_UINT64:
            return rng.choice([0, 1, 2**32 - 1, 2**64 - 1 if field.cpp_type == field.CPPTYPE_UINT64 else 2])
    return rng.choice([0, 1, -1, 2**31 - 1, 2**63 - 1 if field.cpp_type == field.CPPTYPE_INT64 else 2])
