"""Run as a task's process would: `task_operations.py RAW_DATA_PREFIX COPYING_SCRIPT`. Prints one JSON object: what came
of each operation. The files it starts from are gone before they are read back."""

import asyncio
import hashlib
import json
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

prefix, script = sys.argv[1:]

import flyte  # noqa: E402
import flyte.storage  # noqa: E402
import pandas as pd  # noqa: E402
import pyarrow as pa  # noqa: E402
from flyte._context import Context, internal_ctx  # noqa: E402
from flyte.io import DataFrame, Dir, File, HashFunction  # noqa: E402
from flyte.models import RawDataPath  # noqa: E402
from flyte.types import TypeEngine  # noqa: E402

seen: dict[str, Any] = {}


def tree(folder: Path) -> Path:
    (folder / "tree" / "sub").mkdir(parents=True)
    (folder / "tree" / "x").write_text("x")
    (folder / "tree" / "sub" / "y").write_text("y")
    (folder / "tree" / "nowhere").symlink_to("/no/such/file")
    return folder / "tree"


async def round_trip(value: Any, kind: Any) -> Any:
    literal = await TypeEngine.to_literal(value, kind, TypeEngine.to_literal_type(kind))
    return await TypeEngine.to_python_value(literal, kind)


async def asynchronous() -> None:
    method = HashFunction.from_fn(lambda data: hashlib.md5(data).hexdigest())
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "a.txt"
        source.write_text("hello")
        file = await File.from_local(source)
        hashed = await File.from_local(source, hash_method=method)
        keyed = await File.from_local(source, hash_method="key")
        named = await File.from_local(source, f"{prefix}/chosen")
        folder = await Dir.from_local(tree(Path(name)))
    async with file.open("rb") as reader:
        seen["open"] = (await reader.read()).decode()
    seen["in prefix"] = [f.path.startswith(prefix + "/") for f in (file, hashed, keyed, named, folder)]
    seen["names"] = [file.name, folder.name, named.path.removeprefix(prefix)]
    seen["hashes"] = [hashed.hash, keyed.hash, file.hash]
    seen["exists"] = [await file.exists(), await folder.exists()]
    with tempfile.TemporaryDirectory() as name:
        seen["download"] = [
            Path(await f.download(f"{name}/d{i}")).read_text() for i, f in enumerate((file, hashed, named))
        ]
        await folder.download(f"{name}/tree")
        seen["download folder"] = sorted(str(p.relative_to(name)) for p in Path(name, "tree").rglob("*"))
    found = []
    async for item in folder.walk():
        async with item.open("rb") as reader:
            found.append((await reader.read()).decode())
    seen["walk"] = sorted(found)
    new = File.new_remote("made.txt")
    async with new.open("wb") as writer:
        await writer.write(b"streamed")
    seen["new remote"] = Path(new.path).read_text()
    frame = pd.DataFrame({"a": [1, 2]})
    seen["pandas"] = list((await round_trip(frame, pd.DataFrame)).a)
    seen["arrow"] = (await round_trip(pa.table({"a": [3]}), pa.Table)).to_pylist()
    opened = await (await round_trip(DataFrame.from_df(frame), DataFrame)).open(pd.DataFrame).all()
    seen["frame"] = list(opened.a)
    await passed_on(frame)
    await rewritten()


async def rewritten() -> None:
    """Outputs that are written a second time while someone reads the first, and none that cannot be written."""
    target = Path(prefix) / "deep" / "outputs.pb"
    await flyte.storage.put_stream(b"first", to_path=str(target))
    with target.open("rb") as reader:
        await flyte.storage.put_stream(b"second", to_path=str(target))
        seen["rewritten"] = [reader.read().decode(), target.read_text(), [p.name for p in target.parent.iterdir()]]
    (Path(prefix) / "folder.pb" / "x").mkdir(parents=True)
    try:
        await flyte.storage.put_stream(b"never", to_path=f"{prefix}/folder.pb")
    except OSError:
        seen["not written"] = [p.name for p in Path(prefix).iterdir() if "folder.pb" in p.name]


async def passed_on(frame: Any) -> None:
    """What a task does that gets a data frame and returns it: how often is the data there in the end?"""
    kind = TypeEngine.to_literal_type(DataFrame)
    literal = await TypeEngine.to_literal(DataFrame.from_df(frame), DataFrame, kind)
    literal.hash = "key"
    before = len(list(Path(prefix).rglob("*")))
    given = await TypeEngine.to_python_value(literal, DataFrame)
    rows = list((await given.open(pd.DataFrame).all()).a)
    again = await TypeEngine.to_literal(given, DataFrame, kind)
    same = again.scalar.structured_dataset.uri == literal.scalar.structured_dataset.uri
    seen["frame passed on"] = [rows, same, again.hash, len(list(Path(prefix).rglob("*"))) - before]


def synchronous() -> None:
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "a.txt"
        source.write_text("hello")
        file = File.from_local_sync(str(source))
        folder = Dir.from_local_sync(local_path=tree(Path(name)))
    with file.open_sync("rb") as reader:
        seen["sync open"] = reader.read().decode()
    seen["sync walk"] = sorted(item.path.rpartition("/")[2] for item in folder.walk_sync())


def missing() -> None:
    try:
        File.from_local_sync("/no/such/file")
    except ValueError as error:
        seen["missing"] = str(error)


flyte.init()
copying = runpy.run_path(script)
seen["install"] = [copying["install"](), copying["install"]()]
with Context(data=internal_ctx().data.replace(raw_data_path=RawDataPath(path=prefix))):
    asyncio.run(asynchronous())
    synchronous()
    missing()
with tempfile.TemporaryDirectory() as outside:
    Path(outside, "a").write_text("a")
    seen["outside a task"] = File.from_local_sync(f"{outside}/a").path == f"{outside}/a"
print(json.dumps(seen))
