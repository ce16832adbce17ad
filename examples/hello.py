"""The first workflow: `flyte --config <data-dir>/flyte.yaml run examples/hello.py main --n 3`."""

import flyte

env = flyte.TaskEnvironment(name="hello")


@env.task
def square(x: int) -> int:
    return x * x


@env.task
def main(n: int = 3) -> int:
    squares = list(flyte.map(square, range(n)))
    total = sum(squares)
    print(f"squares of the first {n} numbers: {squares}, in sum {total}")
    return total
