"""The work queue of a controller: keys, each handed to one worker at a time, added as often as one likes.

A key that is added while it waits is there once. A key that is added while a worker has it comes back after `done`.
Memory is bounded by the number of different keys. Not for several threads.
"""

from __future__ import annotations

import asyncio
import enum
import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time in seconds, and calls at a later time. An event loop is one; tests bring a virtual one."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], Any]) -> Timer: ...


class Priority(enum.IntEnum):
    NORMAL = 0
    BACKLOG = 1
    """What was there before, e.g. all live actions after a start: it gets a share, and never delays new work long."""


BACKLOG_SHARE = 8
"""While both kinds wait, every eighth key is taken from the backlog."""


class QueueClosed(Exception):
    """The queue is closed and empty: the worker may end."""


class WorkQueue(Generic[K]):
    def __init__(
        self, *, clock: Clock | None = None, first_retry_seconds: float = 0.005, last_retry_seconds: float = 60.0
    ) -> None:
        self._clock: Clock = clock if clock is not None else asyncio.get_running_loop()
        self._first_retry = first_retry_seconds
        self._last_retry = last_retry_seconds
        # Dicts as ordered sets: a key can leave from the middle.
        self._waiting: tuple[dict[K, None], dict[K, None]] = ({}, {})
        self._processing: set[K] = set()
        self._again: dict[K, Priority] = {}
        self._taken = 0
        self._getters: dict[asyncio.Future[None], None] = {}
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._failures: dict[K, int] = {}
        self._closed = False

    def __len__(self) -> int:
        """Keys that wait for a worker (neither those at work nor those that are due later)."""
        return len(self._waiting[0]) + len(self._waiting[1])

    @property
    def processing(self) -> int:
        return len(self._processing)

    @property
    def scheduled(self) -> int:
        """Keys that will be added later."""
        return len(self._due)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is at work."""
        return not len(self) and not self._processing

    def add(self, key: K, priority: Priority = Priority.NORMAL) -> None:
        """Have `key` worked on. The better priority wins where it waits already."""
        if self._closed:
            return
        if key in self._processing:
            self._again[key] = min(priority, self._again.get(key, priority))
            return
        normal, backlog = self._waiting
        if key in normal:
            return
        if priority is Priority.BACKLOG:
            if key in backlog:
                return
            backlog[key] = None
        else:
            backlog.pop(key, None)
            normal[key] = None
        self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Have `key` worked on in `seconds`; the earliest of several such wishes counts. `add` does not cancel it."""
        if self._closed:
            return
        if seconds <= 0:
            self.add(key)
            return
        at = self._clock.time() + seconds
        due = self._due.get(key)
        if due is not None and due <= at:
            return
        self._due[key] = at
        heapq.heappush(self._heap, (at, next(self._order), key))
        if len(self._heap) > 2 * len(self._due) + 64:
            self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)
        self._set_timer()

    def retry(self, key: K) -> float:
        """Have `key` worked on again after a wait that doubles with each call until `forget`; returns the wait."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        wait = min(self._first_retry * 2.0 ** min(failures, 60), self._last_retry)
        self.add_after(key, wait)
        return wait

    def forget(self, key: K) -> None:
        """The work on `key` went well: its next retry starts over."""
        self._failures.pop(key, None)

    def drop(self, key: K) -> None:
        """Forget all about `key` (it is gone), but for a worker that has it."""
        self._failures.pop(key, None)
        self._due.pop(key, None)
        self._again.pop(key, None)
        for waiting in self._waiting:
            waiting.pop(key, None)

    async def get(self) -> K:
        """The next key; the caller must call `done` with it. Raises QueueClosed."""
        while True:
            key = self._take()
            if key is not None:
                return key[0]
            if self._closed:
                raise QueueClosed
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters[getter] = None
            try:
                await getter
            except BaseException:
                # Woken and cancelled at once: the wake-up must not be lost.
                if getter.done() and not getter.cancelled():
                    self._wake()
                raise
            finally:
                self._getters.pop(getter, None)

    def done(self, key: K) -> None:
        """The worker is finished with `key`; it waits anew if it was added meanwhile."""
        self._processing.discard(key)
        priority = self._again.pop(key, None)
        if priority is not None:
            self.add(key, priority)

    def close(self) -> None:
        """Take no more keys; `get` hands out what waits and then raises QueueClosed."""
        self._closed = True
        self._again.clear()
        self._due.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for getter in self._getters:
            if not getter.done():
                getter.set_result(None)

    def _take(self) -> tuple[K] | None:
        normal, backlog = self._waiting
        if not normal and not backlog:
            return None
        self._taken += 1
        turn = backlog and (not normal or self._taken % BACKLOG_SHARE == 0)
        source = backlog if turn else normal
        key = next(iter(source))
        del source[key]
        self._processing.add(key)
        return (key,)

    def _wake(self) -> None:
        for getter in self._getters:
            if not getter.done():
                getter.set_result(None)
                return

    def _set_timer(self) -> None:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if not self._heap:
            return
        at = self._heap[0][0]
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._clock.call_later(max(0.0, at - self._clock.time()), self._fire)

    def _fire(self) -> None:
        self._timer = None
        # Timers may come a hair early.
        now = self._clock.time() + 0.001
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == at:
                del self._due[key]
                self.add(key)
        self._set_timer()
