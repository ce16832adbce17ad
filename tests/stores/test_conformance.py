"""What every store does, whoever keeps the objects. Runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from wingbeat.database import Database, RecordNotFound, Records
from wingbeat.resources import (
    ActionEvent,
    ActionId,
    ActionPhase,
    ActionRecord,
    Condition,
    OwnerReference,
    RunId,
    TaskAction,
    TaskActionSpec,
    copy,
    encode,
)
from wingbeat.resources.taskaction import (
    ANNOTATION_ABORT_REASON,
    FINALIZER,
    LABEL_COMPLETED_TIME,
    LABEL_IS_ROOT,
    LABEL_ORG,
    LABEL_TERMINATION_STATUS,
)
from wingbeat.stores import (
    AlreadyExists,
    Conflict,
    Expired,
    MetadataPatch,
    NotFound,
    Selector,
    SqlStore,
    Store,
    WatchEvent,
    WatchType,
)

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
RUN = RunId("local", "p", "d", "r1")


def action(name: str = "a0", *, parent: TaskAction | None = None, run: RunId = RUN, **labels: str) -> TaskAction:
    result = TaskAction(
        spec=TaskActionSpec(
            run_name=run.run,
            project=run.project,
            domain=run.domain,
            action_name=name,
            parent_action_name=parent.spec.action_name if parent else None,
            task_template=b"\x00template\xff" * 10,
            env_vars={"A": "ä"},
        )
    )
    result.metadata.labels = {LABEL_ORG: run.org, LABEL_IS_ROOT: "false" if parent else "true", **labels}
    if parent:
        result.metadata.owner_references = [OwnerReference(name=parent.metadata.name, uid=parent.metadata.uid)]
    return result


def succeeded(stored: TaskAction) -> Any:
    status = copy(stored).status
    status.conditions = [Condition(type="Succeeded", status="True", last_transition_time=NOW)]
    return status


def event(id: ActionId, phase: ActionPhase, **fields: Any) -> ActionEvent:
    return ActionEvent(id=id, attempt=fields.pop("attempt", 1), phase=phase, occurred_at=NOW, **fields)


def record(id: ActionId) -> ActionRecord:
    return ActionRecord(id=id, created_at=NOW)


async def take(events: AsyncIterator[WatchEvent], count: int) -> list[WatchEvent]:
    """The next `count` events that are no bookmarks."""
    found: list[WatchEvent] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            each = await anext(events)
            if each.type is not WatchType.BOOKMARK:
                found.append(each)
    return found


def told(events: list[WatchEvent]) -> list[tuple[str, str]]:
    return [(e.type.value, e.id.action if e.id else "") for e in events]


# --- objects


async def test_the_sql_store_is_a_store(store: SqlStore) -> None:
    _: Store = store


async def test_what_was_created_is_read_back_without_loss(store: Store) -> None:
    created = await store.create(action("a0", team="x"))
    read = await store.get(created.id)
    assert encode(read) == encode(created)
    assert read.spec == action().spec
    assert (read.metadata.generation, read.metadata.name) == (1, "r1-a0")
    assert read.metadata.uid
    assert read.metadata.creation_timestamp
    assert int(read.metadata.resource_version) > 0


async def test_the_callers_own_objects_stay_its_own(store: Store) -> None:
    mine = action()
    created = await store.create(mine)
    mine.spec.env_vars["A"] = "changed"
    status = copy(created).status
    status.state_json = "one"
    written = await store.patch_status(created.id, status, resource_version=created.metadata.resource_version)
    status.state_json = "two"
    assert written.status.state_json == "one"
    assert (await store.get(created.id)).spec.env_vars == {"A": "ä"}


async def test_an_identity_can_be_created_once_and_the_error_holds_what_is_there(store: Store) -> None:
    first = await store.create(action())
    with pytest.raises(AlreadyExists) as error:
        await store.create(action())
    assert error.value.existing.metadata.uid == first.metadata.uid


async def test_runs_of_the_same_name_in_two_projects_or_organisations_are_apart(store: Store) -> None:
    places = [RUN, RunId("local", "q", "d", "r1"), RunId("other", "p", "d", "r1")]
    for place in places:
        await store.create(action(run=place))
    await store.delete(places[0].action("a0"))
    with pytest.raises(NotFound):
        await store.get(places[0].action("a0"))
    assert [a.id for a in (await store.list(Selector(run=places[2]))).items] == [places[2].action("a0")]
    assert len((await store.list()).items) == 2


async def test_an_unknown_action_is_not_found_by_any_operation(store: Store) -> None:
    id = RUN.action("nobody")
    with pytest.raises(NotFound):
        await store.get(id)
    with pytest.raises(NotFound):
        await store.patch(id, MetadataPatch(labels={"a": "b"}))
    with pytest.raises(NotFound):
        await store.patch_status(id, action().status, resource_version="1")
    with pytest.raises(NotFound):
        await store.delete(id)


# --- conflicts


async def test_a_stale_status_write_is_refused_and_leaves_no_event(store: Store, db: Database) -> None:
    created = await store.create(action(), record=record(action().id))
    old = created.metadata.resource_version
    status = copy(created).status
    status.state_json = "first"
    await store.patch_status(created.id, status, resource_version=old)
    with pytest.raises(Conflict):
        await store.patch_status(
            created.id, succeeded(created), resource_version=old, events=[event(created.id, ActionPhase.SUCCEEDED)]
        )
    assert (await store.get(created.id)).status.state_json == "first"
    assert (await Records(db).get(created.id)).phase is ActionPhase.QUEUED
    assert await Records(db).attempts(created.id) == []


async def test_a_stale_metadata_patch_or_deletion_is_refused(store: Store) -> None:
    created = await store.create(action())
    await store.patch(created.id, MetadataPatch(labels={"a": "b"}))
    stale = created.metadata.resource_version
    with pytest.raises(Conflict):
        await store.patch(created.id, MetadataPatch(labels={"a": "c"}), resource_version=stale)
    with pytest.raises(Conflict):
        await store.delete(created.id, resource_version=stale)
    with pytest.raises(Conflict):
        await store.delete(created.id, uid="another")
    assert (await store.get(created.id)).metadata.labels["a"] == "b"


async def test_of_two_writers_of_one_version_one_wins(store: Store) -> None:
    created = await store.create(action())

    async def write(text: str) -> str:
        status = copy(created).status
        status.state_json = text
        await store.patch_status(created.id, status, resource_version=created.metadata.resource_version)
        return text

    results = await asyncio.gather(*(write(str(n)) for n in range(10)), return_exceptions=True)
    winners = [r for r in results if isinstance(r, str)]
    assert len(winners) == 1
    assert sum(isinstance(r, Conflict) for r in results) == 9
    assert (await store.get(created.id)).status.state_json == winners[0]


async def test_status_and_metadata_are_written_apart(store: Store) -> None:
    created = await store.create(action())
    written = await store.patch_status(
        created.id, succeeded(created), resource_version=created.metadata.resource_version
    )
    patched = await store.patch(
        created.id, MetadataPatch(labels={"x": "y"}, annotations={"n": "1"}, add_finalizers=(FINALIZER,))
    )
    assert patched.status == written.status
    assert patched.terminal
    read = await store.get(created.id)
    assert (read.metadata.labels["x"], read.metadata.annotations, read.metadata.finalizers) == (
        "y",
        {"n": "1"},
        [FINALIZER],
    )
    assert read.status == written.status
    gone = await store.patch(created.id, MetadataPatch(labels={"x": None}, annotations={"n": None}))
    assert "x" not in gone.metadata.labels
    assert gone.metadata.annotations == {}


async def test_a_write_that_changes_nothing_makes_no_new_version(store: Store) -> None:
    created = await store.create(action(a="b"))
    patched = await store.patch(created.id, MetadataPatch(labels={"a": "b"}, remove_finalizers=("none",)))
    written = await store.patch_status(
        created.id, copy(created).status, resource_version=created.metadata.resource_version
    )
    versions = {o.metadata.resource_version for o in (created, patched, written, await store.get(created.id))}
    assert len(versions) == 1


# --- deletion


async def test_an_object_without_finalizers_is_gone_at_once(store: Store) -> None:
    created = await store.create(action())
    await store.delete(created.id, uid=created.metadata.uid)
    with pytest.raises(NotFound):
        await store.get(created.id)
    again = await store.create(action())
    assert again.metadata.uid != created.metadata.uid


async def test_a_finalizer_keeps_a_deleted_object_until_it_is_removed(store: Store) -> None:
    created = await store.create(action())
    await store.patch(created.id, MetadataPatch(add_finalizers=("one", "two")))
    await store.delete(created.id, annotations={ANNOTATION_ABORT_REASON: "first"})
    await store.delete(created.id, annotations={ANNOTATION_ABORT_REASON: "second"})
    deleting = await store.get(created.id)
    assert deleting.deleting
    assert deleting.metadata.generation == 2
    assert deleting.metadata.annotations == {ANNOTATION_ABORT_REASON: "first"}
    with pytest.raises(Conflict):
        await store.patch(created.id, MetadataPatch(add_finalizers=("three",)))
    status = copy(deleting).status
    status.state_json = "still written"
    await store.patch_status(created.id, status, resource_version=deleting.metadata.resource_version)
    await store.patch(created.id, MetadataPatch(remove_finalizers=("one",)))
    assert (await store.get(created.id)).metadata.finalizers == ["two"]
    last = await store.patch(created.id, MetadataPatch(remove_finalizers=("two",)))
    assert last.status.state_json == "still written"
    with pytest.raises(NotFound):
        await store.get(created.id)


async def test_removing_the_finalizers_of_a_living_object_keeps_it(store: Store) -> None:
    created = await store.create(action())
    await store.patch(created.id, MetadataPatch(add_finalizers=("one",)))
    await store.patch(created.id, MetadataPatch(remove_finalizers=("one",)))
    assert (await store.get(created.id)).metadata.finalizers == []


async def test_what_an_object_owns_is_deleted_after_it_down_to_the_leaves(store: Store) -> None:
    root = await store.create(action())
    await store.patch(root.id, MetadataPatch(add_finalizers=("f",)))
    child = await store.create(action("b", parent=root))
    guarded = await store.create(action("c", parent=root))
    await store.patch(guarded.id, MetadataPatch(add_finalizers=("f",)))
    leaf = await store.create(action("e", parent=child))
    below = await store.create(action("g", parent=guarded))
    stranger = await store.create(action("z", run=RunId("local", "p", "d", "r2")))

    await store.delete(root.id, annotations={ANNOTATION_ABORT_REASON: "enough"})
    assert not (await store.get(child.id)).deleting
    await store.patch(root.id, MetadataPatch(remove_finalizers=("f",)))
    for gone in (root, child, leaf):
        with pytest.raises(NotFound):
            await store.get(gone.id)
    waiting = await store.get(guarded.id)
    assert waiting.deleting
    assert waiting.metadata.annotations[ANNOTATION_ABORT_REASON] == "enough"
    assert not (await store.get(below.id)).deleting

    await store.patch(guarded.id, MetadataPatch(remove_finalizers=("f",)))
    assert [a.id for a in (await store.list()).items] == [stranger.id]


async def test_an_owner_must_be_there_and_not_be_going(store: Store) -> None:
    root = await store.create(action())
    await store.patch(root.id, MetadataPatch(add_finalizers=("f",)))
    await store.delete(root.id)
    with pytest.raises(Conflict):
        await store.create(action("b", parent=root), record=record(RUN.action("b")))
    await store.patch(root.id, MetadataPatch(remove_finalizers=("f",)))
    with pytest.raises(NotFound):
        await store.create(action("b", parent=root))
    # The same name again is another owner.
    await store.create(action())
    with pytest.raises(NotFound):
        await store.create(action("b", parent=root))


async def test_an_owner_that_has_ended_gets_no_more_objects(store: Store) -> None:
    root = await store.create(action())
    await store.patch_status(root.id, succeeded(root), resource_version=root.metadata.resource_version)
    with pytest.raises(Conflict, match="has ended"):
        await store.create(action("b", parent=root))


async def test_deleting_a_run_asks_every_unfinished_action_to_go(store: Store) -> None:
    root = await store.create(action())
    await store.patch(root.id, MetadataPatch(add_finalizers=("f",)))
    names = ["b", "c", "e"]
    for name in names:
        child = await store.create(action(name, parent=root))
        await store.patch(child.id, MetadataPatch(add_finalizers=("f",)))
    done = await store.get(RUN.action("e"))
    await store.patch_status(done.id, succeeded(done), resource_version=done.metadata.resource_version)
    other = await store.create(action(run=RunId("local", "q", "d", "r1")))

    assert await store.delete_run(RUN, annotations={ANNOTATION_ABORT_REASON: "why"}) == 3
    state = {a.spec.action_name: a for a in (await store.list(Selector(run=RUN))).items}
    assert [n for n, a in state.items() if a.deleting] == ["a0", "b", "c"]
    assert state["c"].metadata.annotations == {ANNOTATION_ABORT_REASON: "why"}
    assert not (await store.get(other.id)).deleting
    assert await store.delete_run(RUN) == 0


# --- listing


async def test_selectors_select_by_labels_run_parent_and_owner(store: Store) -> None:
    root = await store.create(action(team="x"))
    child = await store.create(action("b", parent=root, team="y"))
    leaf = await store.create(action("c", parent=child))
    elsewhere = await store.create(action(run=RunId("local", "q", "d", "r1"), team="x"))
    await store.patch(leaf.id, MetadataPatch(labels={LABEL_TERMINATION_STATUS: "t", LABEL_COMPLETED_TIME: "1"}))

    async def names(**parts: Any) -> list[str]:
        return [str(a.id) for a in (await store.list(Selector(**parts))).items]

    assert await names(labels=(("team", "x"),)) == [str(root.id), str(elsewhere.id)]
    assert await names(labels=(("team", "x"),), run=RUN) == [str(root.id)]
    assert await names(has_labels=("team",), run=RUN) == [str(root.id), str(child.id)]
    assert await names(parent=root.id) == [str(child.id)]
    assert await names(owner_uid=child.metadata.uid) == [str(leaf.id)]
    assert await names(labels=((LABEL_IS_ROOT, "true"),)) == [str(root.id), str(elsewhere.id)]
    assert await names(labels=((LABEL_TERMINATION_STATUS, "t"),), has_labels=(LABEL_COMPLETED_TIME,)) == [str(leaf.id)]
    assert await names(labels=((LABEL_TERMINATION_STATUS, "u"),)) == []


async def test_a_listing_comes_in_pages_of_one_version(store: Store) -> None:
    for n in range(25):
        await store.create(action(f"x{n:02}", odd=str(n % 2)))
    found: list[str] = []
    versions = set()
    token = ""
    pages = 0
    while True:
        page = await store.list(Selector(labels=(("odd", "1"),)), limit=5, continue_token=token)
        pages += 1
        assert len(page.items) <= 5
        found += [a.spec.action_name for a in page.items]
        versions.add(page.resource_version)
        if pages == 1:
            await store.create(action("x99", odd="1"))
        token = page.continue_token
        if not token:
            break
    assert found == [*(f"x{n:02}" for n in range(1, 25, 2)), "x99"]
    assert len(versions) == 1
    # What came in between is seen again by a watch from there.
    async with aclosing(store.watch(versions.pop())) as events:
        assert told(await take(events, 1)) == [("ADDED", "x99")]


async def test_a_page_that_ends_the_listing_has_no_token(store: Store) -> None:
    for n in range(4):
        await store.create(action(f"x{n}"))
    first = await store.list(limit=2)
    last = await store.list(limit=2, continue_token=first.continue_token)
    assert (bool(first.continue_token), len(last.items), last.continue_token) == (True, 2, "")


async def test_a_token_that_is_none_is_expired(store: Store) -> None:
    with pytest.raises(Expired):
        await store.list(limit=2, continue_token="bm9uc2Vuc2U=")
    with pytest.raises(Expired):
        await store.list(limit=2, continue_token="%")


# --- watching


async def test_a_watch_tells_of_every_kind_of_change_in_order(store: Store) -> None:
    start = (await store.list()).resource_version
    async with aclosing(store.watch(start)) as events:
        created = await store.create(action())
        assert told(await take(events, 1)) == [("ADDED", "a0")]
        patched = await store.patch(created.id, MetadataPatch(labels={"a": "b"}, add_finalizers=("f",)))
        [seen] = await take(events, 1)
        assert (seen.type, seen.object) == (WatchType.MODIFIED, patched)
        assert seen.resource_version == patched.metadata.resource_version
        await store.patch_status(created.id, succeeded(created), resource_version=patched.metadata.resource_version)
        [seen] = await take(events, 1)
        assert seen.object is not None
        assert seen.object.terminal
        await store.delete(created.id)
        [seen] = await take(events, 1)
        assert seen.object is not None
        assert seen.object.deleting
        await store.patch(created.id, MetadataPatch(remove_finalizers=("f",)))
        [seen] = await take(events, 1)
        assert (seen.type, seen.id) == (WatchType.DELETED, created.id)
        assert seen.object is not None
        assert seen.object.terminal


async def test_a_watch_resumes_where_it_ended(store: Store) -> None:
    kept = await store.create(action("kept"))
    lost = await store.create(action("lost"))
    version = (await store.list()).resource_version
    await store.patch(kept.id, MetadataPatch(labels={"a": "1"}))
    await store.delete(lost.id)
    await store.create(action("new"))
    await store.patch(kept.id, MetadataPatch(labels={"a": "2"}))
    async with aclosing(store.watch(version)) as events:
        seen = await take(events, 3)
    assert told(seen) == [("DELETED", "lost"), ("ADDED", "new"), ("MODIFIED", "kept")]
    assert seen[2].object is not None
    assert seen[2].object.metadata.labels["a"] == "2"
    async with aclosing(store.watch(seen[1].resource_version)) as events:
        assert told(await take(events, 1)) == [("MODIFIED", "kept")]


async def test_an_object_that_is_deleted_and_made_anew_is_told_as_both(store: Store) -> None:
    first = await store.create(action())
    version = first.metadata.resource_version
    await store.delete(first.id)
    second = await store.create(action())
    async with aclosing(store.watch(version)) as events:
        seen = await take(events, 2)
        assert told(seen) == [("DELETED", "a0"), ("ADDED", "a0")]
        await store.delete(second.id)
        third = await store.create(action())
        seen = await take(events, 2)
        assert told(seen) == [("DELETED", "a0"), ("ADDED", "a0")]
        assert seen[1].object is not None
        assert seen[1].object.metadata.uid == third.metadata.uid


async def test_a_slow_watcher_gets_the_last_state_and_not_every_one(store: Store) -> None:
    created = await store.create(action())
    async with aclosing(store.watch(created.metadata.resource_version)) as events:
        await store.patch(created.id, MetadataPatch(labels={"n": "first"}))
        await take(events, 1)
        for n in range(50):
            await store.patch(created.id, MetadataPatch(labels={"n": str(n)}))
        await store.create(action("between"))
        await store.patch(RUN.action("between"), MetadataPatch(labels={"n": "1"}))
        await store.patch(created.id, MetadataPatch(labels={"n": "last"}))
        seen: list[WatchEvent] = []
        while not seen or seen[-1].object is None or seen[-1].object.metadata.labels.get("n") != "last":
            seen += await take(events, 1)
    assert len(seen) < 10
    assert ("ADDED", "between") in told(seen)
    versions = [int(e.resource_version) for e in seen]
    assert versions == sorted(versions)


async def test_objects_enter_and_leave_a_watch_by_their_labels(store: Store) -> None:
    inside = await store.create(action("inside", team="x"))
    outside = await store.create(action("outside", team="y"))
    version = (await store.list()).resource_version
    selector = Selector(labels=(("team", "x"),))
    async with aclosing(store.watch(version, selector)) as events:
        changes = (("inside", "x2"), ("outside", "x"), ("outside", "z"), ("inside", "x"))
        seen: list[tuple[str, str]] = []
        for name, team in changes:
            await store.patch(RUN.action(name), MetadataPatch(labels={"team": team}))
            seen += told(await take(events, 1))
    assert seen == [("DELETED", "inside"), ("ADDED", "outside"), ("DELETED", "outside"), ("ADDED", "inside")]
    # The same from the log: inside changed and matches, outside does not match any more.
    async with aclosing(store.watch(version, selector)) as events:
        assert sorted(told(await take(events, 2))) == [("DELETED", "outside"), ("MODIFIED", "inside")]
    assert inside.id != outside.id


async def test_a_watch_of_children_sees_only_them_live_and_from_the_log(store: Store) -> None:
    root = await store.create(action())
    other = await store.create(action(run=RunId("local", "q", "d", "r1")))
    version = (await store.list()).resource_version
    selector = Selector(parent=root.id)
    async with aclosing(store.watch(version, selector)) as live:
        child = await store.create(action("b", parent=root))
        assert told(await take(live, 1)) == [("ADDED", "b")]
        await store.create(action("b", parent=other, run=RunId("local", "q", "d", "r1")))
        await store.create(action("c", parent=child))
        last = await store.create(action("e", parent=root))
        assert [e.id for e in await take(live, 1)] == [last.id]
    await store.delete(child.id)
    async with aclosing(store.watch(version, selector)) as resumed:
        assert told(await take(resumed, 2)) == [("ADDED", "e"), ("DELETED", "b")]


async def test_a_silent_watch_sends_bookmarks_that_move_on(store: Store) -> None:
    root = await store.create(action())
    async with aclosing(store.watch(root.metadata.resource_version, Selector(parent=root.id))) as events:
        first = await anext(events)
        patched = await store.patch(root.id, MetadataPatch(labels={"a": "b"}))
        second = await anext(events)
    assert {first.type, second.type} == {WatchType.BOOKMARK}
    assert int(second.resource_version) >= int(patched.metadata.resource_version)


async def test_a_watch_from_before_the_change_log_is_expired_and_a_list_helps(open_store: Any) -> None:
    store = await open_store(tombstones=20)
    kept = await store.create(action("kept"))
    old = kept.metadata.resource_version
    for n in range(50):
        await store.delete((await store.create(action(f"x{n}"))).id)
    with pytest.raises(Expired):
        async with aclosing(store.watch(old)) as events:
            await anext(events)
    fresh = (await store.list()).resource_version
    async with aclosing(store.watch(fresh)) as events:
        await store.create(action("new"))
        assert told(await take(events, 1)) == [("ADDED", "new")]
    with pytest.raises(Expired):
        async with aclosing(store.watch("99999999")) as events:
            await anext(events)
    with pytest.raises(Expired):
        async with aclosing(store.watch("nonsense")) as events:
            await anext(events)


async def test_closing_a_watch_frees_it(store: SqlStore) -> None:
    events = store.watch("0")
    await store.create(action())
    await take(events, 1)
    assert store.watchers == 1
    await events.aclose()
    assert store.watchers == 0


# --- records in the same transaction


async def test_the_record_of_an_object_that_goes_before_its_end_is_aborted_with_the_reason(
    store: Store, db: Database
) -> None:
    """Nobody has looked after it yet, so nobody else can tell of its end."""
    root = await store.create(action(), record=record(RUN.action("a0")))
    child = await store.create(action("b", parent=root), record=record(RUN.action("b")))
    await store.patch_status(root.id, succeeded(root), resource_version=root.metadata.resource_version)
    await store.delete(child.id, annotations={ANNOTATION_ABORT_REASON: "too late"})
    ended = await Records(db).get(child.id)
    assert (ended.phase, ended.abort_reason) == (ActionPhase.ABORTED, "too late")
    await store.delete(root.id)
    assert (await Records(db).get(root.id)).phase is ActionPhase.QUEUED, "of a finished one only events tell"


async def test_the_record_and_its_spec_are_written_with_the_object(store: Store, db: Database) -> None:
    created = await store.create(action(), record=record(action().id), spec=b"the spec")
    records = Records(db)
    stored = await records.get(created.id)
    assert await records.blob(stored.spec_digest) == b"the spec"


async def test_a_refused_creation_leaves_no_record(store: Store, db: Database) -> None:
    orphan = action("b", parent=TaskAction())
    with pytest.raises(NotFound):
        await store.create(orphan, record=record(orphan.id))
    with pytest.raises(RecordNotFound):
        await Records(db).get(orphan.id)


async def test_events_and_the_reason_to_wait_are_written_with_the_status(store: Store, db: Database) -> None:
    created = await store.create(action(), record=record(action().id))
    records = Records(db)
    status = copy(created).status
    status.state_json = "1"
    stored = await store.patch_status(
        created.id,
        status,
        resource_version=created.metadata.resource_version,
        events=[event(created.id, ActionPhase.WAITING_FOR_RESOURCES)],
        wait_reason="4 CPU wanted, 2 free",
    )
    waiting = await records.get(created.id)
    assert (waiting.phase, waiting.wait_reason) == (ActionPhase.WAITING_FOR_RESOURCES, "4 CPU wanted, 2 free")
    # A status that is the same still brings its events.
    await store.patch_status(
        created.id,
        copy(stored).status,
        resource_version=stored.metadata.resource_version,
        events=[event(created.id, ActionPhase.RUNNING)],
    )
    running = await records.get(created.id)
    assert (running.phase, running.wait_reason) == (ActionPhase.RUNNING, "")
    await store.apply_events([event(created.id, ActionPhase.ABORTED, abort_reason="no more", aborted_by="me")])
    aborted = await records.get(created.id)
    assert (aborted.phase, aborted.abort_reason, aborted.aborted_by) == (ActionPhase.ABORTED, "no more", "me")


# --- two writers


async def test_two_instances_see_each_others_writes_and_refuse_each_others_stale_ones(open_store: Any) -> None:
    one, two = await open_store(), await open_store()
    created = await one.create(action())
    async with aclosing(one.watch(created.metadata.resource_version)) as events:
        patched = await two.patch(created.id, MetadataPatch(labels={"by": "two"}))
        [seen] = await take(events, 1)
        assert seen.object == patched
        with pytest.raises(Conflict):
            await one.patch_status(created.id, succeeded(created), resource_version=created.metadata.resource_version)
        await one.patch(created.id, MetadataPatch(labels={"also": "one"}))
        assert (await two.get(created.id)).metadata.labels["also"] == "one"
        await two.delete(created.id)
        while seen.type is not WatchType.DELETED:
            [seen] = await take(events, 1)
        assert seen.id == created.id


async def test_no_watcher_misses_a_change_while_two_instances_write(open_store: Any) -> None:
    stores = [await open_store(), await open_store()]
    count = 60
    wanted = {f"s{s}x{n}" for s in range(2) for n in range(count)}

    async def write(index: int) -> None:
        async def one(n: int) -> None:
            name = f"s{index}x{n}"
            created = await stores[index].create(action(name))
            await stores[index].patch_status(
                created.id, succeeded(created), resource_version=created.metadata.resource_version
            )

        for start in range(0, count, 10):
            await asyncio.gather(*(one(n) for n in range(start, start + 10)))

    async def follow(store: Store) -> list[int]:
        finished: set[str] = set()
        versions: list[int] = []
        async with asyncio.timeout(30), aclosing(store.watch("0")) as events:
            async for each in events:
                versions.append(int(each.resource_version))
                if each.object is not None and each.object.terminal:
                    finished.add(each.object.spec.action_name)
                if finished == wanted:
                    return versions
        raise AssertionError("the watch ended")

    followed = await asyncio.gather(follow(stores[0]), follow(stores[1]), write(0), write(1))
    for versions in followed[:2]:
        assert versions == sorted(versions)
    final = (await stores[0].list()).items
    assert len({a.metadata.resource_version for a in final}) == 2 * count
