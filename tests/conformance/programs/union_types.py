"""Unions and optionals, by each branch."""

import flyte

env = flyte.TaskEnvironment(name="union_types")


@env.task
def describe(value: int | str | list[int] | None) -> str:
    return f"{type(value).__name__}:{value}"


@env.task
def widen(n: int) -> int | str | None:
    return [None, n, str(n)][n % 3]


@env.task
def main(
    given: int | str, maybe: int | None = None, word: str | None = "word"
) -> tuple[list[str], list[str], str | None]:
    seen = [describe(v) for v in (given, maybe, word, [1, 2])]
    widened = [describe(widen(n)) for n in range(3)]
    return seen, widened, None
