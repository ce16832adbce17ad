from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wingbeat.machine import LaunchError
from wingbeat.machine.budget import Budget, BudgetSettings, Claim

GIB = 1 << 30


def claim(token: str, *, cpus: float = 1, memory: int = 0, gpus: int = 0, depth: int = 0, run: str = "r1") -> Claim:
    return Claim(token=token, name=f"{run}/{token}", run=run, cpus=cpus, memory=memory, gpus=gpus, depth=depth)


def budget(cpus: float = 2, memory: int = 4 * GIB, gpus: int = 0, startups: int = 100) -> Budget:
    return Budget(BudgetSettings(cpus=cpus, memory=memory, gpus=gpus, startups=startups))


def admitted(made: Budget) -> list[str]:
    return [admission.claim.token + ("!" if admission.over_budget else "") for admission in made.admit()]


def test_equals_start_in_the_order_of_arrival_as_far_as_the_cpus_reach() -> None:
    made = budget(cpus=2)
    for token in ("a", "b", "c", "d"):
        made.add(claim(token))
    assert admitted(made) == ["a", "b"]
    made.remove("a")
    assert admitted(made) == ["c"]
    assert made.reason("d") == "waits for 1 CPU: 2 of 2 in use by r1/b, r1/c"


def test_a_waiting_process_gives_up_its_cpu_but_neither_memory_nor_gpu() -> None:
    made = budget(cpus=1, memory=2 * GIB, gpus=1)
    made.add(claim("parent", memory=2 * GIB, gpus=1))
    made.admit()
    made.set_waiting("parent", True)
    used = made.used()
    assert (used.cpus, used.memory, used.gpus) == (0, 2 * GIB, 1)
    made.add(claim("child", depth=1))
    assert admitted(made) == ["child"]


def test_when_waiting_parents_hold_the_memory_the_deepest_child_is_let_in_over_budget_one_at_a_time() -> None:
    made = budget(cpus=8, memory=2 * GIB)
    for depth, token in enumerate(("root", "child", "grandchild", "leaf")):
        made.add(claim(token, memory=GIB, depth=depth))
        made.add(claim(f"other-{token}", memory=GIB, depth=max(0, depth - 1)))
    assert admitted(made) == ["root", "other-root"]
    made.set_waiting("root", True)
    assert admitted(made) == []  # what the other holds will be free one day
    made.set_waiting("other-root", True)
    assert admitted(made) == ["leaf!"]
    assert made.reason("leaf") == "started over budget: what others wait for would have waited for them"
    assert admitted(made) == []
    made.set_waiting("leaf", True)
    assert admitted(made) == ["grandchild!"]


def test_an_active_process_deeper_in_the_run_may_free_what_its_waiting_parents_hold() -> None:
    made = budget(cpus=2, memory=GIB)
    made.add(claim("parent", memory=GIB))
    made.admit()
    made.set_waiting("parent", True)
    made.add(claim("child", depth=1))
    made.add(claim("next", memory=GIB, run="r2"))
    assert admitted(made) == ["child"]
    assert admitted(made) == []
    assert made.reason("next") == "waits for 1 GiB of memory: 1 GiB of 1 GiB in use by r1/parent"


def test_a_big_one_is_not_starved_by_small_ones_that_came_later() -> None:
    made = budget(cpus=2)
    made.add(claim("small-1"))
    assert admitted(made) == ["small-1"]
    made.add(claim("big", cpus=2))
    made.add(claim("small-2"))
    made.add(claim("no-cpu", cpus=0))
    assert admitted(made) == ["no-cpu"]
    assert made.reason("small-2") == "waits behind r1/big, which was here first"
    made.remove("small-1")
    made.remove("no-cpu")
    assert admitted(made) == ["big"]


def test_where_nothing_is_active_nobody_waits_behind_what_cannot_start() -> None:
    made = budget(cpus=4, memory=2 * GIB)
    made.add(claim("parent", memory=GIB))
    made.admit()
    made.set_waiting("parent", True)
    made.add(claim("big", memory=2 * GIB, run="r2"))
    made.add(claim("child", memory=GIB, depth=1))
    assert admitted(made) == ["child"]


def test_start_ups_in_flight_are_bounded() -> None:
    made = budget(cpus=10, startups=2)
    for token in ("a", "b", "c"):
        made.add(claim(token))
    assert admitted(made) == ["a", "b"]
    assert made.reason("c") == "waits for its turn to start: 2 of 2 are starting"
    made.ready("a")
    assert admitted(made) == ["c"]


def test_what_runs_already_is_charged_whatever_that_makes_of_the_sums() -> None:
    made = budget(cpus=1)
    made.adopt(claim("a", cpus=8))
    made.adopt(claim("b"))
    made.add(claim("c"))
    assert admitted(made) == []
    assert made.used().cpus == 2


def test_more_cpus_than_there_are_are_clamped_and_more_memory_or_gpus_are_refused() -> None:
    made = budget(cpus=2, memory=GIB)
    fitted, note = made.fit(claim("a", cpus=3.5))
    assert (fitted.cpus, note) == (2, "asks for 3.5 CPUs and gets the 2 CPUs that this machine has")
    assert made.fit(claim("a", cpus=2))[1] == ""
    for too_much in (claim("a", memory=GIB + 1), claim("a", gpus=1)):
        with pytest.raises(LaunchError):
            made.fit(too_much)


@dataclass
class Tree:
    """A process of a made-up program: it has children, and then waits for all of them."""

    claim: Claim
    children: list[Tree] = field(default_factory=list)


@st.composite
def trees(draw: st.DrawFn) -> list[Tree]:
    made: list[Tree] = []

    def make(run: str, depth: int, name: str) -> Tree:
        request = claim(
            name,
            cpus=draw(st.sampled_from([0, 0.5, 1, 2, 9])),
            memory=draw(st.sampled_from([0, GIB, 3 * GIB, 4 * GIB])),
            gpus=draw(st.sampled_from([0, 0, 0, 1])),
            depth=depth,
            run=run,
        )
        width = draw(st.integers(0, 3)) if depth < 4 else 0
        return Tree(request, [make(run, depth + 1, f"{name}.{child}") for child in range(width)])

    for number in range(draw(st.integers(1, 3))):
        made.append(make(f"r{number}", 0, f"r{number}"))
    return made


@settings(max_examples=120, deadline=None)
@given(trees(), st.integers(1, 3), st.randoms(use_true_random=False))
def test_every_program_of_waiting_parents_ends_and_no_more_than_one_is_over_budget(
    programs: list[Tree], startups: int, chance: object
) -> None:
    made = budget(cpus=2, memory=4 * GIB, gpus=1, startups=startups)
    nodes: dict[str, Tree] = {}
    parents: dict[str, str] = {}
    active: set[str] = set()
    waiting: set[str] = set()
    over: set[str] = set()
    done: set[str] = set()

    def enqueue(node: Tree) -> None:
        fitted, _ = made.fit(node.claim)
        nodes[fitted.token] = Tree(fitted, node.children)
        made.add(fitted)

    for program in programs:
        enqueue(program)
    while len(done) < len(nodes):
        before = made.used()
        for admission in made.admit():
            token = admission.claim.token
            if admission.over_budget:
                assert not over & active, "one at a time"
                over.add(token)
            else:
                before.add(admission.claim)
                assert before.cpus <= 2 + 1e-6 or admission.claim.cpus == 0
                assert before.memory <= 4 * GIB or admission.claim.memory == 0
                assert before.gpus <= 1 or admission.claim.gpus == 0
            active.add(token)
        assert active, "nothing runs, and nothing ever will"
        token = sorted(active)[chance.randrange(len(active))]  # type: ignore[attr-defined]
        made.ready(token)
        node = nodes[token]
        if node.children and all(child.claim.token not in nodes for child in node.children):
            for child in node.children:
                parents[child.claim.token] = token
                enqueue(child)
            active.discard(token)
            waiting.add(token)
            made.set_waiting(token, True)
            continue
        active.discard(token)
        done.add(token)
        made.remove(token)
        parent = parents.get(token)
        if parent is not None and all(child.claim.token in done for child in nodes[parent].children):
            waiting.discard(parent)
            active.add(parent)
            made.set_waiting(parent, False)
    used = made.used()
    assert (used.cpus, used.memory, used.gpus) == (0, 0, 0)
