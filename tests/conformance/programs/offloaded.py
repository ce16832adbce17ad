"""File, Dir and DataFrame, made in temporary folders that are gone when the task ends; in and out."""

import pathlib
import tempfile

import flyte
import pandas as pd
from flyte.io import DataFrame, Dir, File

env = flyte.TaskEnvironment(name="offloaded")


@env.task
async def make_file(text: str) -> File:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "note.txt"
        path.write_text(text)
        return await File.from_local(str(path))


@env.task
async def make_dir(n: int) -> Dir:
    with tempfile.TemporaryDirectory() as folder:
        for i in range(n):
            (pathlib.Path(folder) / f"part-{i}.txt").write_text(f"part {i}")
        (pathlib.Path(folder) / "deep" / "er").mkdir(parents=True)
        (pathlib.Path(folder) / "deep" / "er" / "leaf.txt").write_text("leaf")
        return await Dir.from_local(folder)


@env.task
async def make_frame(n: int) -> DataFrame:
    return DataFrame.from_df(pd.DataFrame({"n": range(n), "word": [f"w{i}" for i in range(n)]}))


@env.task
async def plain_frame(n: int) -> pd.DataFrame:
    return pd.DataFrame({"n": range(n)})


@env.task
async def read_file(file: File) -> str:
    async with file.open("rb") as handle:
        return bytes(await handle.read()).decode()


@env.task
def read_file_sync(file: File) -> str:
    with file.open_sync("rb") as handle:
        return bytes(handle.read()).decode()


@env.task
async def read_dir(folder: Dir) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as target:
        path = pathlib.Path(await folder.download(target))
        return {f.name: f.read_text() for f in path.rglob("*") if f.is_file()}


@env.task
async def read_frame(frame: DataFrame, plain: pd.DataFrame) -> int:
    opened = await frame.open(pd.DataFrame).all()
    return int(opened["n"].sum() + plain["n"].sum())


@env.task
async def within(text: str = "through a file") -> tuple[str, str, dict[str, str], int]:
    file = await make_file(text)
    return (
        await read_file(file),
        await read_file_sync.aio(file),
        await read_dir(await make_dir(2)),
        await read_frame(await make_frame(4), await plain_frame(3)),
    )


@env.task
async def produce(text: str = "kept") -> tuple[File, Dir, DataFrame]:
    return await make_file(text), await make_dir(2), await make_frame(5)


@env.task
async def consume(file: File, folder: Dir, frame: DataFrame) -> tuple[str, dict[str, str], int]:
    opened = await frame.open(pd.DataFrame).all()
    return await read_file(file), await read_dir(folder), int(opened["n"].sum())


@env.task
async def nested(n: int = 2) -> tuple[list[str], str]:
    """Files inside a list and a dict."""
    files = [await make_file(f"file {i}") for i in range(n)]
    return [await read_file(f) for f in files], await read_file(await pick({"only": files[0]}))


@env.task
async def pick(files: dict[str, File]) -> File:
    return files["only"]
