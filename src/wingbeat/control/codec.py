"""How messages are read from and written to the wire, with clear errors for what is not a message.

The generated applications answer `unknown` when a body cannot be decoded, and inflate a compressed body whole before
they look at its size. Both are mended here.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from google.protobuf.json_format import MessageToJson, Parse

from wingbeat.control.errors import CLIENT

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Of one message, decompressed."""

STORED_BYTES = 4096
"""Up to here compression costs more than it saves: setting it up takes longer than answering most calls."""


def _stored(data: bytes) -> bytes:
    """A gzip file (RFC 1952) with `data` in one block that is not compressed."""
    size = len(data)
    head = b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x01" + struct.pack("<HH", size, size ^ 0xFFFF)
    return head + data + struct.pack("<II", zlib.crc32(data), size)


def _malformed(message: Any, form: str, error: Exception) -> ConnectError:
    detail = str(error)[:300].rstrip(".")
    return ConnectError(
        Code.INVALID_ARGUMENT,
        f"the body is not a {message.DESCRIPTOR.name} in {form} ({detail}); {CLIENT}",
    )


class ProtobufCodec:
    def name(self) -> str:
        return "proto"

    def encode(self, message: Any) -> bytes:
        return bytes(message.SerializeToString())

    def decode(self, data: bytes | bytearray, message: Any) -> Any:
        try:
            message.ParseFromString(bytes(data))
        except Exception as error:
            raise _malformed(message, "protobuf", error) from error
        return message


class JsonCodec:
    """Proto3 JSON. Unknown fields are passed over, as newer clients may send them."""

    def name(self) -> str:
        return "json"

    def encode(self, message: Any) -> bytes:
        return str(MessageToJson(message, indent=None)).encode()

    def decode(self, data: bytes | bytearray, message: Any) -> Any:
        try:
            Parse(bytes(data) or b"{}", message, ignore_unknown_fields=True)
        except (Exception, RecursionError) as error:
            raise _malformed(message, "JSON", error) from error
        return message


class BoundedGzip:
    """Gzip that stops inflating at the size limit, and spends little on answers: the peer is near."""

    def name(self) -> str:
        return "gzip"

    def compress(self, data: bytes | bytearray | memoryview) -> bytes:
        if len(data) <= STORED_BYTES:
            return _stored(bytes(data))
        return gzip.compress(data, compresslevel=1, mtime=0)

    def decompress(self, data: bytes | bytearray | memoryview) -> bytes:
        inflater = zlib.decompressobj(wbits=31)
        try:
            result = inflater.decompress(data, MAX_MESSAGE_BYTES + 1)
        except zlib.error as error:
            raise ConnectError(Code.INVALID_ARGUMENT, f"the body is not gzip ({error}); {CLIENT}") from error
        if len(result) > MAX_MESSAGE_BYTES:
            raise ConnectError(
                Code.RESOURCE_EXHAUSTED,
                f"the request is larger than {MAX_MESSAGE_BYTES} bytes when it is unpacked; pass large values as files "
                "(flyte.io.File): flyte run ... --NAME FILE",
            )
        if not inflater.eof:
            raise ConnectError(Code.INVALID_ARGUMENT, f"the body is not gzip (it ends too early); {CLIENT}")
        return result


def mount(application: type[Any], service: Any, interceptors: tuple[Any, ...]) -> Any:
    """The generated `application` around `service`, with our codecs, limits and interceptors."""
    app = application(
        service, interceptors=interceptors, read_max_bytes=MAX_MESSAGE_BYTES, compressions=[BoundedGzip()]
    )
    # The generated constructors do not pass codecs on; a test pins that this attribute is what is used.
    codecs = (ProtobufCodec(), JsonCodec())
    app._codecs = {codec.name(): codec for codec in codecs}
    return app
