"""The first workflow that a new user can run; `wingbeat up` puts it into the data folder."""

HELLO = '''\
"""A first workflow: each square is computed in a process of its own."""

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
'''
