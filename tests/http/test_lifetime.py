"""Clients that go are let go; a server that stops says so and leaves nothing."""

from __future__ import annotations

import asyncio
import socket

import grpc
import httpx
import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from flyteidl2.common.identifier_pb2 import ActionIdentifier
from flyteidl2.workflow.state_service_connect import StateServiceClient
from flyteidl2.workflow.state_service_pb2 import WatchRequest
from flyteidl2.workflow.state_service_pb2_grpc import StateServiceStub

from wingbeat.server.http import PortTaken

FOREVER = WatchRequest(parent_action_id=ActionIdentifier(name="forever"))


async def within(seconds: float, awaitable):
    return await asyncio.wait_for(awaitable, seconds)


async def test_an_idle_stream_ends_when_its_client_closes_the_connection(started):
    _reader, writer = await asyncio.open_connection("127.0.0.1", started.port)
    body = b"\x00\x00\x00\x00\x00"
    writer.write(
        b"POST /flyteidl2.workflow.StateService/Watch HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n"
        b"content-type: application/connect+proto\r\ncontent-length: 5\r\n\r\n" % started.port + body
    )
    await within(5, started.state.begun.wait())
    assert not started.state.ended.is_set()
    writer.close()
    await within(5, started.state.ended.wait())


async def test_an_idle_grpc_stream_ends_when_its_client_cancels(started):
    async with grpc.aio.insecure_channel(f"127.0.0.1:{started.port}") as channel:
        call = StateServiceStub(channel).Watch(FOREVER)
        await within(5, call.read())
        await within(5, started.state.begun.wait())
        call.cancel()
        await within(5, started.state.ended.wait())


async def test_a_stopping_server_ends_streams_as_unavailable_so_that_clients_come_back(start):
    started = await start()
    received = []

    async def read() -> None:
        async for message in StateServiceClient(started.url).watch(FOREVER):
            received.append(message)

    reading = asyncio.create_task(read())
    await within(5, started.state.begun.wait())
    await within(5, started.server.stop(30))
    with pytest.raises(ConnectError) as caught:
        await within(5, reading)
    assert caught.value.code is Code.UNAVAILABLE
    assert started.state.ended.is_set()
    assert len(received) == 1


async def test_a_stopped_server_no_longer_listens_and_its_port_can_be_taken_again(start):
    first = await start()
    await first.server.stop(1)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", first.port)
    second = await start(port=first.port)
    assert second.port == first.port
    await second.server.stop(1)


async def test_a_taken_port_is_named(started, start):
    with pytest.raises(PortTaken, match=f"port {started.port} is taken by another program") as caught:
        await start(port=started.port)
    assert caught.value.port == started.port


async def test_requests_in_one_packet_and_bytes_one_by_one_are_both_understood(started):
    request = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n\r\n" % started.port
    reader, writer = await asyncio.open_connection("127.0.0.1", started.port)
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for n in range(len(request)):
        writer.write(request[n : n + 1])
        await writer.drain()
    writer.write(request * 2)
    for _ in range(3):
        head = await within(5, reader.readuntil(b"\r\n\r\n"))
        assert head.startswith(b"HTTP/1.1 200")
        assert await within(5, reader.readexactly(3)) == b"OK\n"
    writer.close()


async def test_a_thousand_connections_at_once_are_all_served(started):
    async def one() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", started.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nconnection: close\r\n\r\n" % started.port)
        answer = await reader.read()
        writer.close()
        return answer

    soft = 300
    answers = await within(60, asyncio.gather(*(one() for _ in range(soft))))
    assert all(a.startswith(b"HTTP/1.1 200") for a in answers)


async def test_health_pages_say_what_is_wrong(started):
    async with httpx.AsyncClient() as http:
        assert (await http.get(started.url + "/healthz")).text == "OK\n"
        assert (await http.get(started.url + "/readyz")).status_code == 200
        started.problems.append("the disk is full")
        answer = await http.get(started.url + "/readyz")
        assert (answer.status_code, answer.text) == (503, "database: the disk is full\n")
        assert (await http.get(started.url + "/healthz")).status_code == 200
        assert "wingbeat_rpc_requests_total" in (await http.get(started.url + "/metrics")).text
