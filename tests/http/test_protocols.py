"""One port answers Connect (JSON and protobuf), gRPC and gRPC-Web, unary and streaming."""

from __future__ import annotations

import asyncio
import gzip
import json

import grpc
import httpx
import pytest
from connectrpc.client import ConnectClient
from connectrpc.code import Code
from connectrpc.codec import proto_json_codec
from connectrpc.errors import ConnectError
from connectrpc.protocol import ProtocolType
from flyteidl2.cluster.payload_pb2 import SelectClusterRequest
from flyteidl2.cluster.service_connect import ClusterServiceClient
from flyteidl2.cluster.service_pb2_grpc import ClusterServiceStub
from flyteidl2.common.identifier_pb2 import ActionIdentifier, OrgIdentifier
from flyteidl2.workflow.state_service_connect import StateServiceClient
from flyteidl2.workflow.state_service_pb2 import WatchRequest
from flyteidl2.workflow.state_service_pb2_grpc import StateServiceStub

from wingbeat.control.codec import BoundedGzip

PROTOCOLS = {
    "connect-proto": {},
    "connect-json": {"codec": proto_json_codec()},
    "grpc-web": {"protocol": ProtocolType.GRPC_WEB},
}


def client(kind: type[ConnectClient], url: str, protocol: str):
    return kind(url, **PROTOCOLS[protocol])


def asks(org: str) -> SelectClusterRequest:
    return SelectClusterRequest(org_id=OrgIdentifier(name=org))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_unary_calls_are_answered(started, protocol):
    caller = client(ClusterServiceClient, started.url, protocol)
    answers = [(await caller.select_cluster(asks(f"call {n}"))).cluster for n in range(3)]
    assert answers == ["hello call 0", "hello call 1", "hello call 2"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_streams_are_read_to_their_end(started, protocol):
    caller = client(StateServiceClient, started.url, protocol)
    request = WatchRequest(parent_action_id=ActionIdentifier(name="short"))
    assert [m.control_message.sentinel async for m in caller.watch(request)] == [True, True]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_errors_keep_their_code_and_words(started, protocol):
    caller = client(ClusterServiceClient, started.url, protocol)
    with pytest.raises(ConnectError) as caught:
        await caller.select_cluster(asks("missing"))
    assert (caught.value.code, caught.value.message) == (Code.NOT_FOUND, "there is no such cluster")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_unforeseen_exception_is_internal_never_unknown(started, protocol):
    caller = client(ClusterServiceClient, started.url, protocol)
    with pytest.raises(ConnectError) as caught:
        await caller.select_cluster(asks("boom"))
    assert caught.value.code is Code.INTERNAL
    assert "SelectCluster failed inside the server (ZeroDivisionError: boom)" in caught.value.message


async def test_a_native_grpc_client_calls_streams_and_reads_errors(started):
    async with grpc.aio.insecure_channel(f"127.0.0.1:{started.port}") as channel:
        answer = await ClusterServiceStub(channel).SelectCluster(asks("grpc"))
        assert answer.cluster == "hello grpc"
        request = WatchRequest(parent_action_id=ActionIdentifier(name="short"))
        assert [m.control_message.sentinel async for m in StateServiceStub(channel).Watch(request)] == [True, True]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ClusterServiceStub(channel).SelectCluster(asks("missing"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert caught.value.details() == "there is no such cluster"


async def test_many_grpc_calls_share_one_connection(started):
    async with grpc.aio.insecure_channel(f"127.0.0.1:{started.port}") as channel:
        stub = ClusterServiceStub(channel)
        for _ in range(30):
            answers = await asyncio.gather(*(stub.SelectCluster(asks(str(n))) for n in range(50)))
            assert [a.cluster for a in answers] == [f"hello {n}" for n in range(50)]


async def test_an_unknown_service_is_unimplemented_in_every_protocol(started):
    method = "/flyteidl2.nothing.Service/Call"
    async with httpx.AsyncClient() as http:
        answer = await http.post(started.url + method, content=b"", headers={"content-type": "application/proto"})
    assert answer.status_code == 501
    assert answer.json() == {
        "code": "unimplemented",
        "message": "this server does not offer flyteidl2.nothing.Service (yet)",
    }
    async with grpc.aio.insecure_channel(f"127.0.0.1:{started.port}") as channel:
        call = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "flyteidl2.nothing.Service" in (caught.value.details() or "")


async def test_an_unknown_path_is_404_in_words(started):
    async with httpx.AsyncClient() as http:
        answer = await http.get(started.url + "/nothing/here")
    assert (answer.status_code, answer.text) == (404, "there is nothing at /nothing/here\n")


async def test_a_body_compressed_by_the_http_client_is_accepted(started):
    body = gzip.compress(asks("zipped").SerializeToString())
    headers = {"content-type": "application/proto", "content-encoding": "gzip"}
    async with httpx.AsyncClient() as http:
        answer = await http.post(
            started.url + "/flyteidl2.cluster.ClusterService/SelectCluster", content=body, headers=headers
        )
    assert answer.status_code == 200
    assert b"hello zipped" in answer.content


async def test_unknown_json_fields_are_passed_over(started):
    async with httpx.AsyncClient() as http:
        answer = await http.post(
            started.url + "/flyteidl2.cluster.ClusterService/SelectCluster",
            json={"orgId": {"name": "new"}, "inventedLater": 1},
        )
    assert json.loads(answer.content) == {"cluster": "hello new"}


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 100_000])
def test_answers_of_every_size_are_gzip_that_others_can_read(size):
    data = bytes(n * 7 % 251 for n in range(size))
    squeezed = BoundedGzip().compress(data)
    assert gzip.decompress(squeezed) == data
    assert BoundedGzip().decompress(squeezed) == data
