"""A small workflow to show a friend: count words over files side by side, join the counts, draw a report.

It has a fan-out over files, a data frame, a report, and one step that fails on its first attempt and is retried.
Every step is its own process; the counts travel as files, a data frame and plain values.
"""

import asyncio
import collections
import pathlib
import re
import tempfile

import flyte
import flyte.report
from flyte.io import DataFrame, File

env = flyte.TaskEnvironment(name="bookshelf")

TEXTS = {
    "sea.txt": "The sea was calm and the boat was small. The boat sailed and the sea sang.",
    "hill.txt": "A path ran up the hill. The hill was green, the path was long, the view was wide.",
    "city.txt": "The city slept. A tram rang, a lamp blinked, and the city woke to the smell of bread.",
    "wood.txt": "In the wood a bird sang. The wood was old, the bird was young, the song was new.",
}


@env.task
async def write_text(name: str, text: str) -> File:
    """Write one text; the file is made in a temporary folder and kept as an output."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / name
        path.write_text(text)
        return await File.from_local(str(path))


@env.task
async def count_words(name: str, book: File) -> dict[str, int]:
    async with book.open("rb") as handle:
        text = bytes(await handle.read()).decode()
    counts = collections.Counter(re.findall(r"[a-z]+", text.lower()))
    print(f"{name}: {sum(counts.values())} words, {len(counts)} of them different")
    return dict(counts)


@env.task(retries=2)
async def flaky_merge(names: list[str], counts: list[dict[str, int]]) -> DataFrame:
    """Join the counts. The first attempt fails on purpose, the second succeeds."""
    if flyte.ctx().attempt_number == 0:
        raise RuntimeError("the first attempt always fails: this one shows a retry")

    import pandas as pd  # here, so that only the steps that need it pay for the import

    rows = [(name, word, n) for name, words in zip(names, counts, strict=True) for word, n in words.items()]
    return DataFrame.from_df(pd.DataFrame(rows, columns=["text", "word", "count"]))


@env.task(report=True)
async def draw_report(table: DataFrame) -> str:
    import pandas as pd

    frame = await table.open(pd.DataFrame).all()
    top = frame.groupby("word")["count"].sum().sort_values(ascending=False).head(8)
    bars = "".join(
        f'<tr><td>{word}</td><td><div style="background:#4a7;width:{int(n) * 12}px">&nbsp;</div></td><td>{n}</td></tr>'
        for word, n in top.items()
    )
    await flyte.report.replace.aio(f"<h1>The most frequent words</h1><table>{bars}</table>")
    await flyte.report.flush.aio()
    return str(top.index[0])


@env.task
async def main(texts: int = 4) -> str:
    chosen = list(TEXTS.items())[:texts]
    names = [name for name, _ in chosen]
    with flyte.group("write"):
        books = await asyncio.gather(*(write_text(name, text) for name, text in chosen))
    with flyte.group("count"):
        counts = await asyncio.gather(*(count_words(n, b) for n, b in zip(names, books, strict=True)))
    table = await flaky_merge(names, list(counts))
    word = await draw_report(table)
    return f"the most frequent word in {len(books)} texts is {word!r}"
