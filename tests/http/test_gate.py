"""Who may call: every refusal happens before a handler runs, over real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
import sys

import grpc
import httpx
import pytest
from flyteidl2.cluster.payload_pb2 import SelectClusterRequest
from flyteidl2.cluster.service_pb2_grpc import ClusterServiceStub

from wingbeat.server.gate import Gate, ListenRefused, ask_kernel, is_loopback, peer_uid, socket_owner
from wingbeat.server.http import HttpServer

UNARY = "/flyteidl2.cluster.ClusterService/SelectCluster"

CLIENT = """
import encodings.idna, os, sys, urllib.request, urllib.error
if sys.argv[2] != "same":
    os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
try:
    with urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers={})) as r:
        print(r.status, r.read().decode())
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode())
"""


async def call(started, path: str = UNARY, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient() as http:
        all_headers = {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
        return await http.post(started.url + path, content=b"{}", headers=all_headers)


async def from_uid(started, uid: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, started.url + "/healthz", uid, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    return out.decode()


async def test_our_own_names_are_answered(started):
    for name in ("127.0.0.1", "localhost", "[::1]"):
        assert (await call(started, host=f"{name}:{started.port}")).status_code == 200


@pytest.mark.parametrize("host", ["evil.example:{port}", "127.0.0.1.evil.example:{port}", "localhost:1", "localhost"])
async def test_a_rebound_name_is_refused_in_words(started, host):
    answer = await call(started, host=host.format(port=started.port))
    assert answer.status_code == 403
    assert answer.json()["code"] == "permission_denied"
    assert "does not answer to the name" in answer.json()["message"]
    assert f"127.0.0.1:{started.port}" in answer.json()["message"]


async def test_a_name_may_be_added(start):
    started = await start(Gate(extra_hosts=["Tunnel.example:9000", "other.example"]))
    assert (await call(started, host="tunnel.example:9000")).status_code == 200
    assert (await call(started, host=f"other.example:{started.port}")).status_code == 200
    assert (await call(started, host="tunnel.example:9001")).status_code == 403
    await started.server.stop(1)


async def test_a_grpc_client_with_a_foreign_authority_is_refused(started):
    options = [("grpc.default_authority", f"evil.example:{started.port}")]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{started.port}", options=options) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ClusterServiceStub(channel).SelectCluster(SelectClusterRequest())
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "does not answer to the name" in (caught.value.details() or "")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "file://"])
async def test_a_page_of_another_origin_is_refused(started, origin):
    answer = await call(started, origin=origin)
    assert answer.status_code == 403
    assert "another origin" in answer.json()["message"]


async def test_a_preflight_of_another_origin_is_refused_without_any_cors_header(started):
    async with httpx.AsyncClient() as http:
        answer = await http.options(
            started.url + UNARY, headers={"origin": "http://evil.example", "access-control-request-method": "POST"}
        )
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_page_of_our_own_origin_may_call(started):
    assert (await call(started, origin=started.url)).status_code == 200


async def test_a_subresource_of_another_site_is_refused_and_a_link_is_not(started):
    async with httpx.AsyncClient() as http:
        image = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
        assert (await http.get(started.url + "/healthz", headers=image)).status_code == 403
        link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        assert (await http.get(started.url + "/healthz", headers=link)).status_code == 200


@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's socket tables")
async def test_a_process_of_the_same_user_may_call(started):
    assert await from_uid(started, "same") == "200 OK\n\n"


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="needs to become another user")
async def test_a_process_of_another_user_is_refused(started):
    answer = await from_uid(started, "65534")
    assert answer.startswith("403 this server belongs to uid 0")
    assert "a process of uid 65534 may not use it" in answer
    assert "--allow-other-users" in answer


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="needs to become another user")
async def test_other_users_may_call_when_that_is_allowed(start):
    started = await start(Gate(allow_other_users=True))
    assert await from_uid(started, "65534") == "200 OK\n\n"
    await started.server.stop(1)


async def test_a_connection_of_another_user_is_refused_in_http2_too(start):
    started = await start(Gate(uid=os.getuid() + 1))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{started.port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ClusterServiceStub(channel).SelectCluster(SelectClusterRequest())
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    await started.server.stop(1)


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_kernel_tells_the_owner_of_a_live_socket_and_of_no_other(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server, socket.socket(family) as client:
        client.connect(server.getsockname()[:2])
        accepted, peer = server.accept()
        local = accepted.getsockname()[:2]
        assert peer_uid(peer[:2], local) == os.getuid()
        assert ask_kernel(peer[:2], local) in (os.getuid(), None)
        assert peer_uid((peer[0], 1), local) is None
        client.close()
        assert peer_uid(peer[:2], local) is None
        accepted.close()


TABLE = (
    b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    b"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 5001 1 0 100 0\n"
    b"   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 5002 1 0 20 4\n"
    b"   2: 0100007F:C351 0100007F:1F90 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4\n"
)


@pytest.mark.skipif(sys.byteorder != "little", reason="the table is of a little-endian machine")
def test_the_owner_of_a_socket_is_read_from_the_kernels_table():
    server = ("127.0.0.1", 8080)
    assert socket_owner(TABLE, ("127.0.0.1", 50000), server, wide=False) == 1000
    assert socket_owner(TABLE, ("127.0.0.1", 50009), server, wide=False) is None


@pytest.mark.skipif(sys.byteorder != "little", reason="the table is of a little-endian machine")
def test_a_socket_that_nobody_holds_any_more_has_no_owner_although_the_kernel_says_root():
    assert socket_owner(TABLE, ("127.0.0.1", 50001), ("127.0.0.1", 8080), wide=False) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
async def test_an_address_that_others_reach_is_refused_before_it_is_bound(started, host):
    with pytest.raises(ListenRefused, match="refusing to listen on"):
        await HttpServer(started.server.app, host=host, gate=Gate()).start()


def test_loopback_addresses_are_told_from_others():
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", ""]))


def test_a_server_for_a_network_answers_to_addresses_but_not_to_foreign_names():
    gate = Gate(allow_remote=True, allow_other_users=True, extra_hosts=["wing.example"])
    gate.open("0.0.0.0", 8080)

    def refused(host: bytes) -> str:
        return gate.refuse_request({"method": "GET", "headers": [(b"host", host)]})

    assert not refused(b"10.1.2.3:8080")
    assert not refused(b"[2001:db8::1]:8080")
    assert not refused(b"wing.example:8080")
    assert refused(b"evil.example:8080")


def test_two_host_headers_are_refused():
    gate = Gate()
    gate.open("127.0.0.1", 80)
    headers = [(b"host", b"localhost"), (b"host", b"evil.example")]
    assert "exactly one Host header" in gate.refuse_request({"method": "GET", "headers": headers})
