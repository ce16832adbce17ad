"""Runs inside task processes, where data lies in a plain folder: copies what would stay behind, writes whole files.

Where the raw-data prefix is a plain path, the SDK takes a shortcut: the two `from_local` (and their `_sync` twins)
copy nothing and give back the path they were called with. A file made in a temporary folder is then gone before anyone
reads it. On a cluster the same call uploads. This file restores that for `File` and `Dir`: it wraps the four public
methods, copies with the system's fast copy, and lets the SDK do all the rest. See docs/decisions/0003-raw-data.md.

A `DataFrame` that came as an input is also left where it is: for a local path the SDK would copy it each time that it
is opened or passed on, under a new name, which costs time and every cache hit behind it.

Inputs, outputs, errors and reports appear whole or not at all. The SDK writes them in place, which object stores make
atomic and a folder does not: a process that is killed, or a disk that fills up, would leave half an `outputs.pb` that
counts as success, and a parent that is started again writes the inputs of its children anew while these read them.

It is run by the task environment's own interpreter, where Wingbeat is not installed: standard library only, and
nothing but `flyte` is imported. It is loaded by path, in one of two ways:

- a process that has `flyte` (a fork of the zygote) calls `install()`, which answers "" or why it could not;
- `python copying.py a0 --inputs ...` installs it and runs the SDK's own entry point in this process.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MARK = "_wingbeat_copies"
_numbers = itertools.count()


def _target(local_path: Any, name: str, remote_destination: Any) -> str | None:
    """Where to copy `local_path` to, or None where the SDK's own way is right already: a destination was given, the
    raw data is not in a plain folder, or this is no task."""
    from flyte._context import internal_ctx

    context = internal_ctx()
    if remote_destination is not None or not context.has_raw_data or "://" in context.raw_data.path:
        return None
    if not Path(local_path).exists():
        return None  # the SDK says it in its own words
    return str(context.raw_data.get_random_remote_path(name))


def _copy_file(source: Any, target: str) -> None:
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _copy_tree(source: Any, target: str) -> None:
    # Links are followed, as an upload would; those that lead nowhere are left out.
    shutil.copytree(source, target, ignore_dangling_symlinks=True, dirs_exist_ok=True)


def _wrap(original: Callable[..., Any], *, tree: bool) -> Callable[..., Any]:
    copy = _copy_tree if tree else _copy_file

    def hashed(arguments: dict[str, Any]) -> bool:
        # A hash method wants to see every byte: then the SDK copies, because it is given the destination.
        method = arguments.get("hash_method")
        return method is not None and not isinstance(method, str)

    def prepare(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
        arguments = dict(inspect.signature(original).bind(None, *args, **kwargs).arguments)
        arguments.pop(next(iter(arguments)))  # the class
        source = Path(arguments["local_path"]).absolute()
        return arguments, _target(source, source.name, arguments.get("remote_destination"))

    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def from_local(cls: Any, *args: Any, **kwargs: Any) -> Any:
            import asyncio

            arguments, target = prepare(args, kwargs)
            if target is not None and hashed(arguments):
                arguments["remote_destination"] = target
            elif target is not None:
                await asyncio.to_thread(copy, arguments["local_path"], target)
                arguments["local_path"] = target
            return await original(cls, **arguments)

        return from_local

    @functools.wraps(original)
    def from_local_sync(cls: Any, *args: Any, **kwargs: Any) -> Any:
        arguments, target = prepare(args, kwargs)
        if target is not None and hashed(arguments):
            arguments["remote_destination"] = target
        elif target is not None:
            copy(arguments["local_path"], target)
            arguments["local_path"] = target
        return original(cls, **arguments)

    return from_local_sync


def _keep_frames(original: Callable[..., Any]) -> Callable[..., Any]:
    """Around `to_literal` of data frames: one that came as a literal and was not changed is that literal still."""
    from flyte.io import DataFrame
    from flyteidl2.core.literals_pb2 import Literal, Scalar

    @functools.wraps(original)
    async def to_literal(self: Any, python_val: Any, python_type: Any, expected: Any) -> Any:
        if isinstance(python_val, DataFrame) and python_val.val is None:
            known = python_val.literal
            if known is not None and known.uri == python_val.uri and known.uri.startswith("/"):
                return Literal(scalar=Scalar(structured_dataset=known), hash=python_val.hash)
        return await original(self, python_val, python_type, expected)

    return to_literal


def _install_frames() -> str:
    """Answers like `install`. Without it data frames work too, only slower."""
    try:
        from flyte.io import DataFrame
        from flyte.io.extend import DataFrameTransformerEngine as Engine
    except ImportError as error:
        return f"the SDK has changed: {error}"
    original = Engine.__dict__.get("to_literal")
    if not inspect.iscoroutinefunction(original) or not callable(original):
        return "the SDK converts data frames in another way"
    if list(inspect.signature(original).parameters) != ["self", "python_val", "python_type", "expected"]:
        return "DataFrameTransformerEngine.to_literal takes other arguments"
    if not all(isinstance(getattr(DataFrame, name, None), property) for name in ("val", "literal")):
        return "DataFrame has no literal"
    if not getattr(original, _MARK, False):
        wrapper = _keep_frames(original)
        setattr(wrapper, _MARK, True)
        Engine.to_literal = wrapper  # type: ignore[method-assign]
    return ""


def _put_whole(original: Callable[..., Any]) -> Callable[..., Any]:
    """Around `put_stream`: bytes for a plain path are written beside it and renamed."""

    @functools.wraps(original)
    async def put_stream(data_iterable: Any, *, to_path: Any = None, **kwargs: Any) -> str:
        if not isinstance(data_iterable, bytes) or not str(to_path or "").startswith("/"):
            return str(await original(data_iterable, to_path=to_path, **kwargs))
        target = Path(to_path)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.{next(_numbers)}")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(data_iterable)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return str(to_path)

    return put_stream


def _install_whole() -> str:
    """Answers like `install`."""
    from flyte import storage

    original = getattr(storage, "put_stream", None)
    if not inspect.iscoroutinefunction(original):
        return "flyte.storage has no put_stream"
    if not {"data_iterable", "to_path"} <= set(inspect.signature(original).parameters):
        return "flyte.storage.put_stream takes other arguments"
    if not getattr(original, _MARK, False):
        wrapper = _put_whole(original)
        setattr(wrapper, _MARK, True)
        storage.put_stream = wrapper
    return ""


def install() -> str:
    """Wrap the four methods, once. Answers "" when that is done, otherwise why this SDK does not fit."""
    try:
        from flyte._context import internal_ctx
        from flyte.io import Dir, File
        from flyte.models import RawDataPath
    except ImportError as error:
        return f"the SDK has changed: {error}"
    if not hasattr(type(internal_ctx()), "has_raw_data") or not hasattr(RawDataPath, "get_random_remote_path"):
        return "the SDK keeps its raw-data path elsewhere"
    found: list[tuple[Any, str, Callable[..., Any]]] = []
    for owner in (File, Dir):
        for name in ("from_local", "from_local_sync"):
            method = owner.__dict__.get(name)
            function = getattr(method, "__func__", None)
            if not isinstance(method, classmethod) or not callable(function):
                return f"{owner.__name__}.{name} is no class method"
            if not {"local_path", "remote_destination"} <= set(inspect.signature(function).parameters):
                return f"{owner.__name__}.{name} takes other arguments"
            if not getattr(function, _MARK, False):
                found.append((owner, name, function))
    for owner, name, function in found:
        wrapper = _wrap(function, tree=owner is Dir)
        setattr(wrapper, _MARK, True)
        setattr(owner, name, classmethod(wrapper))
    return _install_whole() or _install_frames()


def main(argv: list[str]) -> None:
    """`copying.py a0 ARGUMENTS`: the SDK's entry point, in this process, with copies."""
    from importlib.metadata import entry_points

    # The script's own folder is first on the path; no module of it may shadow one of the task's.
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    why_not = install()
    if why_not:
        print(f"wingbeat: files of temporary folders are not copied: {why_not}", file=sys.stderr)
    name = argv[0]
    found = [point for point in entry_points(group="console_scripts") if point.name == name]
    if not found:
        sys.exit(f"wingbeat: {sys.executable} has no command {name!r}; install the SDK there: pip install flyte")
    sys.argv = argv
    sys.exit(found[0].load()())


if __name__ == "__main__":
    main(sys.argv[1:])
