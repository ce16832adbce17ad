"""Whatever arrives, the answer is a clear error, and the server lives on."""

from __future__ import annotations

import gzip
import resource

import grpc
import httpx
import pytest

UNARY = "/flyteidl2.cluster.ClusterService/SelectCluster"
STREAM = "/flyteidl2.workflow.StateService/Watch"
GARBAGE = b"\xff\xfe\x00garbage\x80\x81" * 20


async def post(started, path: str, content, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=60) as http:
        return await http.post(
            started.url + path, content=content, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )


@pytest.mark.parametrize(
    ("content_type", "says"),
    [
        ("application/proto", "the body is not a SelectClusterRequest in protobuf"),
        ("application/json", "the body is not a SelectClusterRequest in JSON"),
    ],
)
async def test_garbage_is_an_invalid_argument_that_names_the_message(started, content_type, says):
    answer = await post(started, UNARY, GARBAGE, content_type=content_type)
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid_argument"
    assert says in answer.json()["message"]


async def test_a_body_that_is_not_the_gzip_it_claims_to_be_is_an_invalid_argument(started):
    answer = await post(started, UNARY, GARBAGE, content_type="application/proto", content_encoding="gzip")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument")
    half = gzip.compress(b"x" * 1000)[:20]
    answer = await post(started, UNARY, half, content_type="application/proto", content_encoding="gzip")
    assert (answer.status_code, answer.json()["message"]) == (
        400,
        "the body is not gzip (it ends too early); is the client one of Flyte 2? See: flyte --version",
    )


async def test_garbage_in_a_stream_ends_it_with_an_error(started):
    envelope = b"\x00" + len(GARBAGE).to_bytes(4, "big") + GARBAGE
    answer = await post(started, STREAM, envelope, content_type="application/connect+proto")
    assert b'"code":"invalid_argument"' in answer.content.replace(b" ", b"")


async def test_a_content_type_that_nobody_speaks_is_refused(started):
    answer = await post(started, UNARY, b"{}", content_type="text/csv")
    assert answer.status_code == 415


async def test_headers_that_are_not_text_are_refused(started):
    async with httpx.AsyncClient() as http:
        answer = await http.post(
            started.url + UNARY, content=b"", headers=[(b"content-type", b"application/proto"), (b"x-odd", b"\xff\xfe")]
        )
    assert answer.status_code == 400


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("path", [UNARY, STREAM, "/healthz", "/nothing", "/flyteidl2.nothing.Service/Call"])
@pytest.mark.parametrize("declared", [True, False], ids=["with-length", "chunked"])
async def test_a_body_of_100_megabytes_gets_an_answer_and_no_memory(started, path, declared):
    # For a stream this is the start of one message that never ends.
    chunk = b"\x7f" * 1_000_000

    async def body():
        for _ in range(100):
            yield chunk

    content_type = "application/connect+proto" if path == STREAM else "application/proto"
    headers = {"content-length": str(100 * len(chunk))} if declared else {}
    before = peak()
    answer = await post(started, path, body(), content_type=content_type, **headers)
    # KiB. Undeclared, what is within the limit must be kept before the limit is seen.
    assert peak() - before < (20_000 if declared else 160_000)
    if path in (UNARY, STREAM):
        assert b"resource_exhausted" in answer.content
        assert b"larger than 67108864 bytes" in answer.content


async def test_a_small_body_that_inflates_to_gigabytes_is_refused_early(started):
    bomb = gzip.compress(b"\x00" * 200_000_000, compresslevel=9)
    before = peak()
    answer = await post(started, UNARY, bomb, content_type="application/proto", content_encoding="gzip")
    assert (answer.status_code, answer.json()["code"]) == (429, "resource_exhausted")
    assert peak() - before < 300_000


async def test_a_body_of_100_megabytes_over_grpc_gets_its_error_and_leaves_the_connection_alone(started):
    options = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{started.port}", options=options) as channel:
        call = channel.unary_unary(UNARY, request_serializer=bytes, response_deserializer=bytes)
        unknown = channel.unary_unary("/flyteidl2.x.Y/Z", request_serializer=bytes, response_deserializer=bytes)
        before = peak()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"\x7f" * 100_000_000)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unknown(b"\x7f" * 10_000_000)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert b"hello" in await call(b"")
        assert peak() - before < 500_000
