"""Files, a folder and tables through a real S3, with a step that fails once and a cached one."""

import os
import pathlib
import tempfile

import flyte
import flyte.report
import pandas as pd
import pyarrow as pa
from flyte.io import DataFrame, Dir, File

env = flyte.TaskEnvironment(name="parcels")


@env.task(retries=1)
async def wrap(text: str) -> File:
    """Fails once. The name of the file is one that has to be escaped in URLs."""
    if flyte.ctx().attempt_number == 0:
        raise RuntimeError("no paper on the first attempt")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "grüße & 100% +.txt"
        path.write_text(text)
        return await File.from_local(str(path))


@env.task
async def sort(letter: File) -> Dir:
    async with letter.open("rb") as handle:
        words = bytes(await handle.read()).decode().split()
    with tempfile.TemporaryDirectory() as folder:
        for number, word in enumerate(words):
            (pathlib.Path(folder) / f"{number}.txt").write_text(word)
        return await Dir.from_local(folder)


@env.task(cache=flyte.Cache(behavior="override", version_override="v1"))
async def weigh(n: int) -> DataFrame:
    return DataFrame.from_df(pd.DataFrame({"n": range(n)}))


@env.task
async def weigh_in_arrow(n: int) -> pa.Table:
    return pa.table({"n": list(range(n))})


@env.task
async def total(frame: DataFrame, table: pa.Table) -> int:
    opened = await frame.open(pd.DataFrame).all()
    return int(opened["n"].sum()) + sum(table["n"].to_pylist())


@env.task(report=True)
async def main(letter: File, large: File, n: int = 4) -> tuple[File, Dir, DataFrame, int, int]:
    async with letter.open("rb") as handle:
        text = bytes(await handle.read()).decode()
    parcel = await wrap(f"wrapped: {text}")
    parts = await sort(letter)
    frame = await weigh(n)
    size = pathlib.Path(await large.download()).stat().st_size
    await flyte.report.replace.aio(f"<h1>{text}</h1>")
    await flyte.report.flush.aio()
    return parcel, parts, frame, await total(frame, await weigh_in_arrow(n)), size


@env.task
async def post(letter: File, n: int = 4) -> tuple[Dir, int]:
    """Without data frames on the outside: the CLI cannot run those by name."""
    return await sort(letter), await total(await weigh(n), await weigh_in_arrow(n))


@env.task
def seen() -> dict[str, str]:
    """What a task has of the variables by which the storage is reached."""
    return {name: value for name, value in os.environ.items() if "AWS_" in name}
