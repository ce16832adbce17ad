"""What no RPC may do, whatever it is sent: fail inside, or answer `unknown` or `canceled`."""

from __future__ import annotations

import importlib

import httpx
import pytest

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
ENDLESS = ("WatchRuns", "WatchGroups")
GARBAGE = b"\xff\x00garbage\x80" * 50


async def call(plane, path: str, stream: bool, body: bytes) -> str:
    """The answer's code and message, as text."""
    if stream:
        content = b"\x00" + len(body).to_bytes(4, "big") + body
        content_type = "application/connect+proto"
    else:
        content, content_type = body, "application/proto"
    async with httpx.AsyncClient(timeout=20) as http:
        answer = await http.post(plane.url + path, content=content, headers={"content-type": content_type})
    return answer.content.decode(errors="replace") + (" ok" if answer.status_code == 200 else "")


async def test_every_mounted_service_is_tested(plane):
    assert {app.path for app in plane.control.apps} == {path.rpartition("/")[0] for path, _ in METHODS}


@pytest.mark.parametrize(("path", "stream"), METHODS, ids=[path for path, _ in METHODS])
async def test_garbage_is_invalid(plane, path, stream):
    answer = await call(plane, path, stream, GARBAGE)
    assert "invalid_argument" in answer
    assert "the body is not a" in answer


@pytest.mark.parametrize(
    ("path", "stream"),
    [m for m in METHODS if not m[0].endswith(ENDLESS)],
    ids=[path for path, _ in METHODS if not path.endswith(ENDLESS)],
)
async def test_an_empty_request_is_answered_or_refused_in_words(plane, path, stream):
    answer = await call(plane, path, stream, b"")
    assert "internal" not in answer.lower()
    assert '"unknown"' not in answer
    assert '"canceled"' not in answer
