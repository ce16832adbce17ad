"""A folder as object store: the default. URIs are bare absolute paths, so that tasks and clients of this computer open
them with no configuration at all."""

from __future__ import annotations

import asyncio
import datetime as dt
import errno
import os
import secrets
import shlex
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from wingbeat.storage.names import checked_elements
from wingbeat.storage.protocol import (
    ELSEWHERE,
    ObjectInfo,
    ObjectMissing,
    OutsideStorage,
    StorageFull,
    StorageUnavailable,
)

INCOMING = ".incoming"
"""Where objects are written before they get their name; inside the root, so that a rename is enough. Not listed."""

_SCHEMES = ("local://", "file://")


class FolderStorage:
    """See the `Storage` protocol. The folder is made where it is missing (mode 0700)."""

    def __init__(self, root: Path | str) -> None:
        path = Path(root).absolute()
        with _problems(path):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.incoming = path.resolve() / INCOMING
            self.incoming.mkdir(mode=0o700, exist_ok=True)
        # Two spellings: URIs keep the one that was asked for, checks use the one without links.
        self.base_uri = str(path)
        self._real = str(path.resolve())
        self.raw_data_prefix = self.join("raw")

    async def check(self) -> None:
        if not os.access(self.base_uri, os.W_OK):
            raise StorageUnavailable(f"the storage folder {self.base_uri} is not writable")

    def join(self, *parts: str) -> str:
        return "/".join([self.base_uri, *checked_elements(parts, of="/".join(parts))])

    def path(self, uri: str) -> Path:
        """The file that `uri` names, with all links resolved. Raises OutsideStorage."""
        name = uri
        for scheme in _SCHEMES:
            if uri.startswith(scheme):
                name = uri.removeprefix(scheme)
                break
        if not name.startswith("/") or "\0" in name:
            raise OutsideStorage(f"{uri!r} is not a path below {self.base_uri}, {ELSEWHERE}")
        if ".." in name.split("/"):
            raise OutsideStorage(
                f"{uri!r} has `..` in it; use the path without, as this prints it: realpath {shlex.quote(uri)}"
            )
        real = os.path.realpath(name)
        if real != self._real and not real.startswith(self._real + "/"):
            raise OutsideStorage(f"{uri!r} is outside {self.base_uri}, {ELSEWHERE}")
        return Path(real)

    def _object(self, uri: str) -> Path:
        path = self.path(uri)
        if str(path) == self._real:
            raise OutsideStorage(f"{uri!r} is the storage itself, not an object in it")
        return path

    async def get(self, uri: str, *, limit: int = 0) -> bytes:
        return await asyncio.to_thread(self._get, uri, limit)

    def _get(self, uri: str, limit: int) -> bytes:
        path = self._object(uri)
        with _problems(path), _missing(uri), open_regular(path, uri) as file:
            size = os.fstat(file.fileno()).st_size
            if limit and size > limit:
                raise ValueError(f"{uri} has {size} bytes, more than the {limit} that may be read at once")
            data = file.read()
        if limit and len(data) > limit:
            raise ValueError(f"{uri} grew past the {limit} bytes that may be read at once")
        return data

    async def put(self, uri: str, data: bytes) -> None:
        await asyncio.to_thread(self._put, uri, data)

    def _put(self, uri: str, data: bytes) -> None:
        path = self._object(uri)
        with self.writing(path) as file:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]

    @contextmanager
    def writing(self, path: Path, *, replace: bool = True) -> Iterator[int]:
        """A new file's descriptor; it becomes `path` when the block ends well, durably, and is removed otherwise.
        Without `replace`, FileExistsError when `path` is there already."""
        with _problems(path):
            temporary = self.incoming / secrets.token_hex(12)
            file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                yield file
                os.fsync(file)
                made = _make_parents(path.parent, Path(self._real))
                if replace:
                    temporary.rename(path)
                else:
                    _name_once(temporary, path)
                for folder in {path.parent, *made}:
                    _sync_folder(folder)
            finally:
                os.close(file)
                temporary.unlink(missing_ok=True)

    async def head(self, uri: str) -> ObjectInfo:
        return await asyncio.to_thread(self._head, uri)

    def _head(self, uri: str) -> ObjectInfo:
        path = self._object(uri)
        with _problems(path), _missing(uri):
            found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ObjectMissing(f"{uri} is no object")
        return ObjectInfo(size=found.st_size, modified_at=dt.datetime.fromtimestamp(found.st_mtime, dt.UTC))

    async def copy(self, source: str, target: str) -> None:
        await asyncio.to_thread(self._copy, source, target)

    def _copy(self, source: str, target: str) -> None:
        origin, path = self._object(source), self._object(target)
        with (
            _problems(path),
            _missing(source),
            open_regular(origin, source) as reader,
            self.writing(path) as file,
            open(file, "wb", closefd=False) as writer,
        ):
            shutil.copyfileobj(reader, writer, 1 << 20)

    async def list(self, prefix: str) -> list[str]:
        return await asyncio.to_thread(lambda: sorted(self._walk(prefix)))

    def _walk(self, prefix: str) -> Iterator[str]:
        path = self.path(prefix)
        with _problems(path):
            for folder, folders, files in os.walk(path):
                if folder == self._real:
                    folders[:] = [name for name in folders if name != INCOMING]
                below = folder[len(self._real) :]
                yield from (f"{self.base_uri}{below}/{name}" for name in files)

    async def delete_prefix(self, prefix: str) -> int:
        return await asyncio.to_thread(self._delete_prefix, prefix)

    def _delete_prefix(self, prefix: str) -> int:
        path = self._object(prefix)
        with _problems(path):
            if not path.is_dir():
                try:
                    path.unlink()
                except FileNotFoundError:
                    return 0
                return 1
            removed = 0
            # Bottom up, links removed and not followed; what others take away or add meanwhile is no error.
            for folder, folders, files in os.walk(path, topdown=False):
                for name in (*files, *(name for name in folders if (Path(folder) / name).is_symlink())):
                    try:
                        (Path(folder) / name).unlink()
                        removed += 1
                    except FileNotFoundError:
                        continue
                try:
                    Path(folder).rmdir()
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.ENOENT, errno.EEXIST):
                        raise
            return removed


def open_regular(path: Path, uri: str) -> BinaryIO:
    """The file at `path`, to read. Raises ObjectMissing for what is no file, FileNotFoundError and its like: a task may
    leave a named pipe where a file should be, and who opens that to read waits for a writer that never comes."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ObjectMissing(f"{uri} is no object")
    return open(handle, "rb")


def _name_once(temporary: Path, path: Path) -> None:
    """Give the file its name unless there is one of that name. A link does both in one step."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        if path.exists():  # no links on this file system: two steps have to do
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        temporary.rename(path)


def _make_parents(folder: Path, root: Path) -> list[Path]:
    """Make `folder`; the folders (each the parent of a new one) that must be synced for it to last."""
    made: list[Path] = []
    missing = folder
    while missing != root and not missing.exists():
        made.append(missing.parent)
        missing = missing.parent
    folder.mkdir(parents=True, exist_ok=True)
    return made


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _missing(uri: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise ObjectMissing(f"there is no object {uri}") from None
    except OSError as error:
        if error.errno != errno.ELOOP:  # links that lead in a circle
            raise
        raise ObjectMissing(f"there is no object {uri}") from None


@contextmanager
def _problems(path: Path) -> Iterator[None]:
    """Turn what the system says into words: which place, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            what = "the disk is full" if error.errno == errno.ENOSPC else "the disk quota is used up"
            raise StorageFull(
                f"{what} at {path}: free some space there, or move the data folder (--data-dir)"
            ) from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE):
            raise StorageUnavailable(
                f"{path} cannot be used: {os.strerror(error.errno)}. Check its owner and mode"
            ) from error
        raise
