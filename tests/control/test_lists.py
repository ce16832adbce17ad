"""Lists of runs and actions: scopes, filters, sorting, pages; and the watches of runs and of a run's tree."""

from __future__ import annotations

import asyncio

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from flyteidl2.common.identifier_pb2 import ProjectIdentifier
from flyteidl2.common.list_pb2 import Filter, ListRequest, Sort
from flyteidl2.core.types_pb2 import LiteralType, SimpleType
from flyteidl2.task.run_pb2 import RunSpec
from flyteidl2.task.task_definition_pb2 import TaskName
from flyteidl2.workflow.run_definition_pb2 import ConditionAction
from flyteidl2.workflow.run_service_pb2 import (
    GetRunDetailsRequest,
    ListActionsRequest,
    ListRunsRequest,
    WatchActionsRequest,
    WatchClusterEventsRequest,
    WatchRunDetailsRequest,
    WatchRunsRequest,
)

from wingbeat.resources import ActionPhase, Reason

PROJECT = ProjectIdentifier(name="default", domain="development")


def where(field: str, function: int, *values: str) -> Filter:
    return Filter(field=field, function=function, values=list(values))


async def runs(plane, *filters: Filter, **fields) -> list[str]:
    sort = fields.pop("sort", None)
    request = ListRequest(filters=filters, sort_by=sort, **fields)
    answer = await plane.runs.list_runs(ListRunsRequest(request=request, project_id=PROJECT))
    return [r.action.id.run.name for r in answer.runs]


async def actions(plane, run: str, *filters: Filter, **fields) -> list:
    request = ListActionsRequest(run_id=plane.run_id(run), request=ListRequest(filters=filters, **fields))
    return list((await plane.runs.list_actions(request)).actions)


async def refused(awaitable) -> ConnectError:
    with pytest.raises(ConnectError) as caught:
        await awaitable
    return caught.value


@pytest.fixture
async def some(plane):
    """Runs a (failed), b (recovered), c (succeeded), d (queued), in that order; c has labels."""
    for name in "abcd":
        spec = RunSpec()
        if name == "c":
            spec.labels.values["team"] = "blue"
        await plane.create(name, run_spec=spec)
    await plane.fails("a")
    await plane.happens("b", "a0", ActionPhase.RECOVERED)
    await plane.succeeds("c")
    return plane


async def test_the_newest_run_comes_first(some):
    assert await runs(some) == ["d", "c", "b", "a"]


async def test_runs_are_sorted_as_asked(some):
    assert await runs(some, sort=Sort(key="run_name", direction=Sort.ASCENDING)) == ["a", "b", "c", "d"]
    assert (await runs(some, sort=Sort(key="phase", direction=Sort.DESCENDING)))[0] == "b"


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([where("phase", Filter.EQUAL, "6")], "a"),
        ([where("phase", Filter.VALUE_IN, "5", "6")], "ca"),
        ([where("phase", Filter.VALUE_IN, "5")], "c"),
        ([where("phase", Filter.EQUAL, "1", "0")], "b"),  # the SDK splits "10" into characters
        ([where("phase", Filter.VALUE_IN, "1", "0")], "b"),
        ([where("phase", Filter.NOT_EQUAL, "5")], "dba"),
        ([where("labels.team", Filter.EQUAL, "blue")], "c"),
        ([where("labels.team", Filter.EQUAL, "red")], ""),
        ([where("labels.team", Filter.EXISTS)], "c"),
        ([where("labels.other", Filter.EXISTS)], ""),
        ([where("task_name", Filter.EQUAL, "env.main")], "dcba"),
        ([where("task_name", Filter.CONTAINS, "nope")], ""),
        ([where("created_by", Filter.EQUAL, "ada")], "dcba"),
        ([where("created_at", Filter.GREATER_THAN_OR_EQUAL, "2030-01-01T00:00:00Z")], ""),
        ([where("created_at", Filter.LESS_THAN, "2130-01-01T00:00:00+00:00")], "dcba"),
        ([where("run_name", Filter.ENDS_WITH, "d"), where("phase", Filter.EQUAL, "1")], "d"),
    ],
)
async def test_runs_are_filtered(some, filters, found):
    assert "".join(await runs(some, *filters)) == found


async def test_pages_are_complete_and_end(some):
    request = ListRunsRequest(request=ListRequest(limit=3), project_id=PROJECT)
    first = await some.runs.list_runs(request)
    assert len(first.runs) == 3
    request.request.token = first.token
    second = await some.runs.list_runs(request)
    assert [r.action.id.run.name for r in [*first.runs, *second.runs]] == ["d", "c", "b", "a"]
    assert second.token == ""


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"limit": 201}, "at most 200"),
        ({"token": "-1"}, "token"),
        ({"token": "x"}, "token"),
        ({"token": "9" * 40}, "token"),
        ({"filters": [where("nothing", Filter.EQUAL, "x")]}, "no field 'nothing'"),
        ({"filters": [where("phase", Filter.EQUAL)]}, "has no value"),
        ({"filters": [where("phase", Filter.EQUAL, "x")]}, "phase"),
        ({"filters": [where("phase", Filter.EXISTS, "x")]}, "EXISTS"),
        ({"sort_by": Sort(key="nothing")}, "no field 'nothing'"),
    ],
)
async def test_bad_list_requests_are_invalid_and_say_why(plane, fields, words):
    error = await refused(plane.runs.list_runs(ListRunsRequest(request=ListRequest(**fields))))
    assert error.code is Code.INVALID_ARGUMENT
    assert words in error.message


async def test_runs_of_a_task_are_found(some):
    name = TaskName(project="default", domain="development", name="env.main")
    assert len((await some.runs.list_runs(ListRunsRequest(task_name=name))).runs) == 4
    name.name = "env.other"
    assert len((await some.runs.list_runs(ListRunsRequest(task_name=name))).runs) == 0


async def test_runs_that_wait_for_an_answer_are_found(some):
    only = ListRunsRequest(project_id=PROJECT, paused_actions_only=True)
    assert len((await some.runs.list_runs(only)).runs) == 0
    await some.enqueue("d", "c1", condition=ConditionAction(name="ok", type=LiteralType(simple=SimpleType.STRING)))
    await some.happens("d", "c1", ActionPhase.PAUSED)
    assert [r.action.id.run.name for r in (await some.runs.list_runs(only)).runs] == ["d"]


async def test_actions_are_listed_with_the_metadata_that_details_have(plane):
    await plane.create("run")
    await plane.enqueue("run", "child", group="g")
    await plane.enqueue("run", "c1", condition=ConditionAction(name="ok", type=LiteralType(simple=SimpleType.STRING)))
    root, child, condition = await actions(plane, "run")
    assert (root.id.name, root.metadata.parent, root.metadata.task.id.name) == ("a0", "", "env.main")
    assert (child.metadata.parent, child.metadata.group, child.metadata.task.short_name) == ("a0", "g", "child")
    assert (condition.metadata.condition.name, condition.metadata.condition.type.simple) == ("ok", SimpleType.STRING)
    only = await actions(plane, "run", where("action_type", Filter.EQUAL, "3"))
    assert [a.id.name for a in only] == ["c1"]
    below = await actions(plane, "run", where("parent_name", Filter.EQUAL, "a0"))
    assert [a.id.name for a in below] == ["child", "c1"]
    await plane.fails("run", "child")
    failed = await actions(plane, "run", where("phase", Filter.EQUAL, "6"))
    assert [a.id.name for a in failed] == ["child"]


async def within(awaitable):
    return await asyncio.wait_for(awaitable, 5)


async def test_a_watch_of_runs_tells_of_new_ones_at_once(plane):
    await plane.create("before")
    stream = plane.runs.watch_runs(WatchRunsRequest(project_id=PROJECT))
    first = await within(stream.__anext__())
    assert [r.action.id.run.name for r in first.runs] == ["before"]
    await plane.create("after")
    names = []
    while not names:
        names = [r.action.id.run.name for r in (await within(stream.__anext__())).runs]
    assert names == ["after"]


async def test_a_watch_of_a_run_ends_with_it(plane):
    await plane.create("run")
    stream = plane.runs.watch_run_details(WatchRunDetailsRequest(run_id=plane.run_id("run")))
    assert (await within(stream.__anext__())).details.action.status.phase == ActionPhase.QUEUED
    await plane.succeeds("run")
    phases = [m.details.action.status.phase async for m in stream]
    assert phases[-1] == ActionPhase.SUCCEEDED


async def tree(stream, until) -> dict[str, tuple[bool, dict[int, int]]]:
    """What a watcher of the tree knows, once `until` holds for it."""
    seen: dict[str, tuple[bool, dict[int, int]]] = {}
    while not until(seen):
        for each in (await within(stream.__anext__())).enriched_actions:
            counts = {k: v for k, v in each.children_phase_counts.items() if v}
            seen[each.action.id.name] = (each.meets_filter, counts)
    return seen


async def test_the_tree_of_a_run_counts_descendants_by_phase(plane):
    await plane.create("run")
    await plane.enqueue("run", "child")
    await plane.enqueue("run", "grandchild", parent="child")
    stream = plane.runs.watch_actions(WatchActionsRequest(run_id=plane.run_id("run")))
    seen = await tree(stream, lambda s: len(s) == 3)
    assert seen["a0"] == (True, {1: 2})
    assert seen["child"] == (True, {1: 1})
    await plane.succeeds("run", "grandchild")
    seen = await tree(stream, lambda s: "a0" in s)
    assert (seen["a0"][1], seen["child"][1]) == ({1: 1, 5: 1}, {5: 1})


async def test_a_filtered_tree_keeps_ancestors_and_takes_back_what_no_longer_matches(plane):
    await plane.create("run")
    await plane.enqueue("run", "child")
    await plane.enqueue("run", "other")
    await plane.happens("run", "child", ActionPhase.RUNNING)
    request = WatchActionsRequest(run_id=plane.run_id("run"), filter=[where("PHASE", Filter.VALUE_IN, "4")])
    stream = plane.runs.watch_actions(request)
    seen = await tree(stream, lambda s: "child" in s)
    assert {n: shown for n, (shown, _) in seen.items()} == {"a0": True, "child": True}
    await plane.succeeds("run", "child")
    seen = await tree(stream, lambda s: "child" in s)
    assert {n: shown for n, (shown, _) in seen.items()} == {"a0": False, "child": False}


async def test_the_tree_of_a_large_run_is_complete(plane):
    await plane.create("run")
    names = [f"c{n}" for n in range(1500)]
    for start in range(0, len(names), 100):
        await asyncio.gather(*(plane.enqueue("run", name) for name in names[start : start + 100]))
    stream = plane.runs.watch_actions(WatchActionsRequest(run_id=plane.run_id("run")))
    seen = await tree(stream, lambda s: len(s) == 1501)
    assert seen["a0"][1] == {1: 1500}


async def test_attempts_keep_their_own_errors_and_events(plane):
    await plane.create("run")
    at = (await plane.control.records.get(plane.id("run"))).created_at
    await plane.happens("run", "a0", ActionPhase.RUNNING, reasons=(Reason("started process 7", at),))
    await plane.fails("run", message="first time", final=False)
    await plane.happens("run", "a0", ActionPhase.RUNNING, attempt=2)
    await plane.succeeds("run", attempt=2, output_uri="/o", logs_available=True)
    details = (await plane.runs.get_run_details(GetRunDetailsRequest(run_id=plane.run_id("run")))).details.action
    assert [a.phase for a in details.attempts] == [6, 5]
    assert details.attempts[0].error_info.message == "first time"
    assert details.attempts[0].cluster_events[0].message == "started process 7"
    assert details.attempts[1].logs_available
    assert details.status.attempts == 2
    stream = plane.runs.watch_cluster_events(WatchClusterEventsRequest(id=plane.action_id("run"), attempt=1))
    messages = [e.message async for m in stream for e in m.cluster_events]
    assert messages == ["started process 7"]


async def test_why_an_action_waits_is_told(plane):
    await plane.create("run")
    await plane.control.records.set_wait_reason(plane.id("run"), "waits for 2 CPUs; 1 of 4 is free")
    details = (await plane.runs.get_run_details(GetRunDetailsRequest(run_id=plane.run_id("run")))).details.action
    assert details.attempts[-1].cluster_events[-1].message == "waits for 2 CPUs; 1 of 4 is free"


async def test_unknown_runs_and_actions_are_not_found(plane):
    error = await refused(plane.runs.get_run_details(GetRunDetailsRequest(run_id=plane.run_id("nope"))))
    assert (error.code, "'nope'" in error.message) == (Code.NOT_FOUND, True)
    stream = plane.runs.watch_run_details(WatchRunDetailsRequest(run_id=plane.run_id("nope")))
    assert (await refused(stream.__anext__())).code is Code.NOT_FOUND
    assert (await refused(plane.runs.get_run_details(GetRunDetailsRequest()))).code is Code.INVALID_ARGUMENT
