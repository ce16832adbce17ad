"""Moving one object's bytes between a socket and the storage: constant memory, and the digest beside the copying."""

from __future__ import annotations

import hashlib
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from wingbeat.storage.folder import FolderStorage, open_regular
from wingbeat.storage.protocol import ObjectMissing, Storage, unreachable

_BUFFER = 512 * 1024
_BUFFERS = 4
"""Of `_BUFFER` bytes each, for one upload: being filled, being written and being digested at the same time."""


class Interrupted(Exception):
    """The client went away before it had sent everything."""


def receive(read_into: Callable[[memoryview], int], length: int, file: int) -> str:
    """Copy `length` bytes to the descriptor `file`; the MD5 of them in hex. Raises Interrupted, OSError.

    The digest takes longer than anything else here, so it has a thread of its own.
    """
    digest = hashlib.md5(usedforsecurity=False)
    free: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
    full: queue.SimpleQueue[tuple[bytearray, int] | None] = queue.SimpleQueue()

    def work() -> None:
        while (item := full.get()) is not None:
            buffer, used = item
            digest.update(memoryview(buffer)[:used])
            free.put(buffer)

    for _ in range(_BUFFERS if length > _BUFFER else 1):
        free.put(bytearray(min(_BUFFER, max(length, 1))))
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    try:
        while length:
            buffer = free.get()
            view = memoryview(buffer)[: min(len(buffer), length)]
            used = 0
            while used < len(view):
                got = read_into(view[used:])
                if not got:
                    raise Interrupted
                used += got
            written = 0
            while written < used:
                written += os.write(file, view[written:])
            full.put((buffer, used))
            length -= used
    finally:
        full.put(None)
        worker.join()
    return digest.hexdigest()


def digest_of(storage: Storage, uri: str) -> str:
    """The MD5 (hex) of a stored object. Raises ObjectMissing."""
    digest = hashlib.md5(usedforsecurity=False)
    with reading(storage, uri) as (_, chunks):
        for chunk in chunks(0, -1):
            digest.update(chunk)
    return digest.hexdigest()


Chunks = Callable[[int, int], Iterator[bytes]]
"""(first byte, number of bytes or -1) -> the content in pieces."""


@contextmanager
def reading(storage: Storage, uri: str) -> Iterator[tuple[int, Chunks]]:
    """The size of an object and what gives its content. Raises ObjectMissing, OutsideStorage, StorageUnavailable."""
    if isinstance(storage, FolderStorage):
        with open_file(storage, uri) as (file, size):

            def pieces(first: int, count: int) -> Iterator[bytes]:
                file.seek(first)
                left = size - first if count < 0 else count
                while left and (chunk := file.read(min(_BUFFER, left))):
                    left -= len(chunk)
                    yield chunk

            yield size, pieces
        return
    import obstore

    cloud: Any = storage
    key = cloud.key(uri)
    try:
        size = obstore.head(cloud.store, key)["size"]
    except FileNotFoundError:
        raise ObjectMissing(f"there is no object {uri}") from None
    except Exception as error:
        raise unreachable(uri, error) from error

    def ranges(first: int, count: int) -> Iterator[bytes]:
        left = size - first if count < 0 else count
        while left:
            data = bytes(obstore.get_range(cloud.store, key, start=first, length=min(8 << 20, left)))
            first, left = first + len(data), left - len(data)
            yield data

    yield size, ranges


@contextmanager
def open_file(storage: FolderStorage, uri: str) -> Iterator[tuple[BinaryIO, int]]:
    """The stored file itself, and its size; for sendfile. Raises ObjectMissing, OutsideStorage."""
    path = storage.path(uri)
    try:
        file = open_regular(path, uri)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise ObjectMissing(f"there is no object {uri}") from None
    with file:
        yield file, os.fstat(file.fileno()).st_size


@contextmanager
def storing(storage: Storage, uri: str, incoming: Path) -> Iterator[int]:
    """A descriptor to write a new object to; it is stored when the block ends well. FileExistsError when there is an
    object of that name already: what was uploaded once is never changed."""
    if isinstance(storage, FolderStorage):
        with storage.writing(storage.path(uri), replace=False) as file:
            yield file
        return
    import tempfile

    import obstore

    cloud: Any = storage
    key = cloud.key(uri)
    incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=incoming) as temporary:
        yield temporary.fileno()
        try:
            obstore.head(cloud.store, key)
        except FileNotFoundError:
            pass
        except Exception as error:
            raise unreachable(uri, error) from error
        else:
            raise FileExistsError(uri)
        try:
            obstore.put(cloud.store, key, Path(temporary.name))
        except Exception as error:
            raise unreachable(uri, error) from error
