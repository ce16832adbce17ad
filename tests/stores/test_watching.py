"""What waits for one consumer of a watch."""

from __future__ import annotations

from wingbeat.resources import ActionId, TaskAction
from wingbeat.stores import Selector, WatchType
from wingbeat.stores.sql import Change
from wingbeat.stores.sql.rows import Row
from wingbeat.stores.sql.watching import _Watcher

A = ActionId("local", "", "", "", "a")


def change(revision: int, type: WatchType = WatchType.MODIFIED) -> Change:
    return Change(type, A, Row(TaskAction(), b"", 1), revision, None if type is WatchType.ADDED else {})


async def test_a_commit_that_a_catch_up_has_told_of_is_not_told_again() -> None:
    watcher = _Watcher(Selector(), since=10)
    watcher.offer(change(9))
    watcher.offer(change(10))
    assert not watcher.pending
    watcher.offer(change(11))
    assert [e.resource_version for e in watcher.pending.values()] == ["11"]
    watcher.covered(11)
    assert not watcher.pending


async def test_a_new_object_stays_new_until_it_was_told_of() -> None:
    watcher = _Watcher(Selector(), since=0)
    watcher.offer(change(1, WatchType.ADDED))
    watcher.offer(change(2))
    [event] = watcher.pending.values()
    assert (event.type, event.resource_version) == (WatchType.ADDED, "2")


async def test_a_deletion_takes_what_waited_with_it_and_stays_apart_from_what_follows() -> None:
    watcher = _Watcher(Selector(), since=0)
    watcher.offer(change(1))
    watcher.offer(change(2, WatchType.DELETED))
    watcher.offer(change(3, WatchType.ADDED))
    watcher.offer(change(4))
    assert [(e.type.value, e.resource_version) for e in watcher.pending.values()] == [("DELETED", "2"), ("ADDED", "4")]
