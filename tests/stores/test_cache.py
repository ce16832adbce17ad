"""The watch cache, on a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from wingbeat.resources import ActionId, OwnerReference, RunId, TaskAction, TaskActionSpec, copy
from wingbeat.stores import Informer, MetadataPatch, Selector, SqlStore, Unavailable

RUN = RunId("local", "p", "d", "r1")


def action(name: str, parent: TaskAction | None = None, **labels: str) -> TaskAction:
    result = TaskAction(
        spec=TaskActionSpec(
            run_name=RUN.run,
            project=RUN.project,
            domain=RUN.domain,
            action_name=name,
            parent_action_name=parent.spec.action_name if parent else None,
        )
    )
    result.metadata.labels = dict(labels)
    if parent:
        result.metadata.owner_references = [OwnerReference(name=parent.metadata.name, uid=parent.metadata.uid)]
    return result


@asynccontextmanager
async def running(informer: Informer) -> AsyncIterator[Informer]:
    task = asyncio.ensure_future(informer.run())
    try:
        async with asyncio.timeout(10):
            await informer.synced.wait()
        yield informer
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class Changes:
    """What the handlers were told, and a way to await it."""

    def __init__(self, informer: Informer) -> None:
        self.seen: list[tuple[str, str]] = []
        self._changed = asyncio.Event()
        informer.add_handler(self._handle)

    def _handle(self, old: TaskAction | None, new: TaskAction | None) -> None:
        one = new or old
        assert one is not None
        kind = "added" if old is None else "gone" if new is None else "changed"
        self.seen.append((kind, one.spec.action_name))
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


async def test_the_cache_holds_what_there_is_and_follows_what_comes(store: SqlStore) -> None:
    root = await store.create(action("a0"))
    child = await store.create(action("b", root))
    informer = Informer(store)
    synced_while_listing: list[bool] = []
    informer.add_handler(lambda old, new: synced_while_listing.append(informer.synced.is_set()))
    async with running(informer):
        changes = Changes(informer)
        assert synced_while_listing == [False, False]
        assert informer.get(root.id) == root
        assert [c.id for c in informer.children(root.id)] == [child.id]
        other = await store.create(action("c", root))
        await changes.until(lambda: len(informer) == 3)
        assert [c.id for c in informer.children(root.id)] == [child.id, other.id]
        await store.delete(child.id)
        await changes.until(lambda: len(informer) == 2)
        assert [c.id for c in informer.children(root.id)] == [other.id]
        await store.delete(root.id)
        await changes.until(lambda: len(informer) == 0)
        assert informer.children(root.id) == []
        assert changes.seen == [("added", "c"), ("gone", "b"), ("gone", "a0"), ("gone", "c")]


async def test_the_callers_own_writes_are_seen_at_once_and_nothing_older_replaces_them(store: SqlStore) -> None:
    first = await store.create(action("a0"))
    async with running(Informer(store)) as informer:
        changes = Changes(informer)
        second = await store.patch(first.id, MetadataPatch(labels={"n": "2"}))
        third = await store.patch(first.id, MetadataPatch(labels={"n": "3"}))
        informer.observe(third)
        informer.observe(second)
        informer.observe(first)
        assert informer.get(first.id) is third
        await store.create(action("end"))
        await changes.until(lambda: ("added", "end") in changes.seen)
        assert informer.get(first.id) == third


async def test_a_late_own_write_does_not_bring_back_what_is_gone(store: SqlStore) -> None:
    async with running(Informer(store)) as informer:
        changes = Changes(informer)
        created = await store.create(action("a0"))
        await store.delete(created.id)
        await store.create(action("end"))
        await changes.until(lambda: ("added", "end") in changes.seen)
        informer.observe(created)
        assert informer.get(created.id) is None


async def test_the_last_write_that_removes_an_object_removes_it_from_the_cache(store: SqlStore) -> None:
    created = await store.create(action("a0"))
    await store.patch(created.id, MetadataPatch(add_finalizers=("f",)))
    await store.delete(created.id)
    async with running(Informer(store)) as informer:
        assert informer.get(created.id) is not None
        informer.observe(await store.patch(created.id, MetadataPatch(remove_finalizers=("f",))))
        assert informer.get(created.id) is None


async def test_only_selected_objects_are_held_and_they_leave_with_their_label(store: SqlStore) -> None:
    await store.create(action("a0", team="x"))
    await store.create(action("b", team="y"))
    async with running(Informer(store, Selector(labels=(("team", "x"),)))) as informer:
        assert [a.spec.action_name for a in informer.items()] == ["a0"]
        informer.observe(await store.patch(RUN.action("a0"), MetadataPatch(labels={"team": "z"})))
        assert len(informer) == 0


async def test_an_expired_watch_is_followed_by_a_new_listing_that_tells_only_differences(open_store: Any) -> None:
    store = await open_store(tombstones=5)
    kept = await store.create(action("kept"))
    await store.create(action("lost"))
    gate = asyncio.Event()
    asked = asyncio.Event()

    class Interrupted:
        """The store, away for a while after the first listing."""

        def __init__(self) -> None:
            self.away = True

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def watch(self, version: str, selector: Selector) -> AsyncIterator[Any]:
            if self.away:
                raise Unavailable("the database is away")
            async for each in store.watch(version, selector):
                yield each

    async def sleep(seconds: float) -> None:
        asked.set()
        await gate.wait()

    interrupted = Interrupted()
    informer = Informer(interrupted, sleep=sleep)  # type: ignore[arg-type]
    async with running(informer):
        changes = Changes(informer)
        await asked.wait()
        assert isinstance(informer.last_error, Unavailable)
        for n in range(20):
            await store.delete((await store.create(action(f"x{n}"))).id)
        await store.delete(RUN.action("lost"))
        await store.create(action("new"))
        interrupted.away = False
        gate.set()
        await changes.until(lambda: len(changes.seen) >= 2)
        assert sorted(changes.seen) == [("added", "new"), ("gone", "lost")]
        assert informer.get(kept.id) == kept
        await store.patch(kept.id, MetadataPatch(labels={"a": "b"}))
        await changes.until(lambda: ("changed", "kept") in changes.seen)
        assert informer.last_error is None


async def test_a_handler_that_fails_does_not_stop_the_cache(store: SqlStore) -> None:
    informer = Informer(store)

    def broken(old: TaskAction | None, new: TaskAction | None) -> None:
        raise RuntimeError("the handler's own fault")

    end = informer.add_handler(broken)
    async with running(informer):
        changes = Changes(informer)
        await store.create(action("a0"))
        await changes.until(lambda: len(informer) == 1)
        end()


@pytest.mark.parametrize("writers", [8])
async def test_the_cache_equals_the_store_after_many_concurrent_writes(store: SqlStore, writers: int) -> None:
    async with running(Informer(store)) as informer:
        changes = Changes(informer)

        async def work(n: int) -> None:
            for i in range(20):
                stored = await store.create(action(f"w{n}x{i}"))
                informer.observe(stored)
                status = copy(stored).status
                status.state_json = str(i)
                informer.observe(
                    await store.patch_status(stored.id, status, resource_version=stored.metadata.resource_version)
                )
                if i % 3 == 0:
                    await store.delete(stored.id)

        await asyncio.gather(*(work(n) for n in range(writers)))
        await store.create(action("end"))
        await changes.until(lambda: ("added", "end") in changes.seen)
        listed: dict[ActionId, TaskAction] = {a.id: a for a in (await store.list()).items}
        assert {a.id: a for a in informer.items()} == listed
