"""Lists, dicts and nests of them, from the command line as JSON, through a child and back."""

import flyte

env = flyte.TaskEnvironment(name="collection_types")


@env.task
def child(nested: dict[str, list[dict[str, float]]]) -> dict[str, list[dict[str, float]]]:
    return {key: [{k: v * 2 for k, v in inner.items()} for inner in value] for key, value in nested.items()}


@env.task
def given(
    numbers: list[int],
    words: dict[str, str],
    nested: dict[str, list[dict[str, float]]],
    grid: list[list[int]],
) -> tuple[list[int], dict[str, str], dict[str, list[dict[str, float]]], list[list[int]]]:
    return numbers[::-1], {v: k for k, v in words.items()}, child(nested), [list(x) for x in zip(*grid, strict=True)]


@env.task
def defaults(
    numbers: list[int] = [3, 1, 2],  # noqa: B006
    words: dict[str, int] = {"a": 1},  # noqa: B006
    empty: list[str] = [],  # noqa: B006
) -> tuple[list[int], dict[str, int], list[str], dict[str, int]]:
    return sorted(numbers), words, empty, {}
