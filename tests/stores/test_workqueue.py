from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from wingbeat.stores import Priority, QueueClosed, WorkQueue


class _Timer:
    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualClock:
    """Time that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0
        self._heap: list[tuple[float, int, Callable[[], Any], _Timer]] = []
        self._order = itertools.count()

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], Any]) -> _Timer:
        timer = _Timer()
        heapq.heappush(self._heap, (self.now + delay, next(self._order), callback, timer))
        return timer

    @property
    def timers(self) -> int:
        return sum(not timer.cancelled for *_, timer in self._heap)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            at, _, callback, timer = heapq.heappop(self._heap)
            self.now = at
            if not timer.cancelled:
                callback()
        self.now = end


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def queue(clock: VirtualClock) -> WorkQueue[str]:
    return WorkQueue(clock=clock)


async def drain(queue: WorkQueue[str]) -> list[str]:
    found = []
    while len(queue):
        key = await queue.get()
        queue.done(key)
        found.append(key)
    return found


async def test_a_key_waits_once_however_often_it_is_added(queue: WorkQueue[str]) -> None:
    for key in ("a", "b", "a", "c", "b"):
        queue.add(key)
    assert await drain(queue) == ["a", "b", "c"]


async def test_a_key_is_with_one_worker_at_a_time_and_comes_back_if_added_meanwhile(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert (len(queue), queue.processing, queue.idle) == (0, 1, False)
    second = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    assert not second.done()
    queue.done("a")
    assert await second == "a"
    queue.done("a")
    assert queue.idle


async def test_a_worker_that_waits_is_woken_by_an_add(queue: WorkQueue[str]) -> None:
    workers = [asyncio.ensure_future(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in "xyz":
        queue.add(key)
    assert sorted(await asyncio.gather(*workers)) == ["x", "y", "z"]


async def test_the_wake_up_of_a_cancelled_worker_goes_to_another(queue: WorkQueue[str]) -> None:
    first = asyncio.ensure_future(queue.get())
    second = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await second == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_later_key_comes_at_its_time_and_the_earliest_wish_counts(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    queue.add_after("a", 10)
    queue.add_after("a", 5)
    queue.add_after("a", 20)
    queue.add_after("b", 7)
    clock.advance(4.9)
    assert len(queue) == 0
    clock.advance(0.1)
    assert await drain(queue) == ["a"]
    clock.advance(2)
    assert await drain(queue) == ["b"]
    clock.advance(100)
    assert await drain(queue) == []
    queue.add_after("now", 0)
    assert await drain(queue) == ["now"]


async def test_a_later_key_that_comes_due_at_work_waits_for_done(queue: WorkQueue[str], clock: VirtualClock) -> None:
    queue.add("a")
    await queue.get()
    queue.add_after("a", 1)
    clock.advance(1)
    assert len(queue) == 0
    queue.done("a")
    assert await drain(queue) == ["a"]


async def test_new_keys_pass_the_backlog_and_the_backlog_still_gets_its_share(queue: WorkQueue[str]) -> None:
    for n in range(100):
        queue.add(f"old{n}", Priority.BACKLOG)
    for n in range(40):
        queue.add(f"new{n}")
    order = await drain(queue)
    last_new = max(i for i, key in enumerate(order) if key.startswith("new"))
    assert last_new < 48
    assert 4 <= sum(key.startswith("old") for key in order[:last_new]) <= 6
    assert len(order) == 140


async def test_a_backlog_key_that_is_news_moves_ahead(queue: WorkQueue[str]) -> None:
    for key in ("a", "b", "c"):
        queue.add(key, Priority.BACKLOG)
    queue.add("c")
    queue.add("c", Priority.BACKLOG)
    assert await drain(queue) == ["c", "a", "b"]


async def test_retries_wait_longer_each_time_until_forgotten(clock: VirtualClock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock=clock, first_retry_seconds=1, last_retry_seconds=5)
    waits = []
    for _ in range(5):
        waits.append(queue.retry("a"))
        clock.advance(waits[-1])
        assert await drain(queue) == ["a"]
    assert waits == [1, 2, 4, 5, 5]
    queue.forget("a")
    assert queue.retry("a") == 1


async def test_rescheduling_the_same_keys_takes_no_more_memory(queue: WorkQueue[str], clock: VirtualClock) -> None:
    for n in range(10_000):
        queue.add_after("a", 10_000 - n / 2)
    assert queue.scheduled == 1
    assert len(queue._heap) < 100
    assert clock.timers == 1


async def test_a_dropped_key_is_forgotten_wherever_it_was(queue: WorkQueue[str], clock: VirtualClock) -> None:
    queue.add("a")
    queue.add("b", Priority.BACKLOG)
    queue.add_after("c", 1)
    for key in "abc":
        queue.drop(key)
    clock.advance(5)
    assert queue.idle
    assert await drain(queue) == []


async def test_a_closed_queue_hands_out_what_waits_and_then_ends_its_workers(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.close()
    queue.add("b")
    assert await queue.get() == "a"
    with pytest.raises(QueueClosed):
        await queue.get()


async def test_closing_ends_workers_that_wait(queue: WorkQueue[str]) -> None:
    workers = [asyncio.ensure_future(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.close()
    results = await asyncio.gather(*workers, return_exceptions=True)
    assert all(isinstance(r, QueueClosed) for r in results)
