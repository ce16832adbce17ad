"""What a running parent asks for and is told: children, traces, conditions, and the watch of them."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from flyteidl2.actions.actions_service_pb2 import WatchForUpdatesRequest
from flyteidl2.core.execution_pb2 import ContainerError, ErrorDocument
from flyteidl2.core.literals_pb2 import KeyValuePair
from flyteidl2.core.types_pb2 import LiteralType, SimpleType
from flyteidl2.task.common_pb2 import OutputReferences
from flyteidl2.task.run_pb2 import RunSpec
from flyteidl2.task.task_definition_pb2 import TraceSpec
from flyteidl2.workflow.queue_service_pb2 import EnqueueActionRequest
from flyteidl2.workflow.run_definition_pb2 import ConditionAction, TraceAction
from flyteidl2.workflow.run_service_pb2 import GetActionDetailsRequest, WatchActionDetailsRequest
from flyteidl2.workflow.state_service_pb2 import WatchRequest
from google.protobuf.timestamp_pb2 import Timestamp

from wingbeat.resources import ActionPhase, TaskActionStatus
from wingbeat.resources import copy as copy_action
from wingbeat.resources.taskaction import ANNOTATION_DEPTH, LABEL_ACTION, LABEL_IS_ROOT, Condition
from wingbeat.stores import NotFound


async def refused(awaitable) -> ConnectError:
    with pytest.raises(ConnectError) as caught:
        await awaitable
    return caught.value


class Reader:
    """Reads a watch in the background; `update` and `sentinel` await what comes next."""

    def __init__(self, stream) -> None:
        self._stream = stream.__aiter__()

    async def next(self):
        return await asyncio.wait_for(self._stream.__anext__(), 5)

    async def update(self):
        """The next update; signs of life are passed over."""
        while True:
            message = await self.next()
            if message.HasField("action_update"):
                return message.action_update

    async def sentinel(self) -> list:
        """What comes before the sentinel."""
        before = []
        while True:
            message = await self.next()
            if message.HasField("control_message"):
                assert message.control_message.sentinel
                return before
            before.append(message.action_update)


async def test_a_child_inherits_what_the_run_says_for_all(plane):
    spec = RunSpec()
    spec.envs.values.append(KeyValuePair(key="A", value="1"))
    spec.labels.values["team"] = "blue"
    spec.annotations.values["note"] = "x"
    spec.interruptible.value = True
    await plane.create("run", run_spec=spec)
    await plane.enqueue("run", "child", group="g")
    child, root = await plane.store.get(plane.id("run", "child")), await plane.store.get(plane.id("run"))
    assert child.spec.env_vars == {"A": "1"}
    assert child.spec.interruptible is True
    assert child.spec.group == "g"
    assert child.metadata.labels["team"] == "blue"
    assert (child.metadata.labels[LABEL_ACTION], child.metadata.labels[LABEL_IS_ROOT]) == ("child", "false")
    assert (child.metadata.annotations["note"], child.metadata.annotations[ANNOTATION_DEPTH]) == ("x", "1")
    assert [o.uid for o in child.metadata.owner_references] == [root.metadata.uid]
    assert child.parent_id == plane.id("run")
    await plane.enqueue("run", "grandchild", parent="child")
    assert (await plane.store.get(plane.id("run", "grandchild"))).metadata.annotations[ANNOTATION_DEPTH] == "2"


async def test_a_known_child_is_confirmed_and_not_made_twice(plane):
    await plane.create("run")
    await plane.enqueue("run", "child")
    before = await plane.store.get(plane.id("run", "child"))
    await asyncio.gather(*(plane.enqueue("run", "child") for _ in range(5)))
    assert (await plane.store.get(plane.id("run", "child"))).metadata.uid == before.metadata.uid


async def test_a_child_that_has_ended_is_confirmed_even_when_its_action_is_gone(plane):
    await plane.create("run")
    await plane.enqueue("run", "child")
    await plane.succeeds("run", "child")
    await plane.store.delete(plane.id("run", "child"))
    await plane.enqueue("run", "child")
    details = await plane.runs.get_action_details(GetActionDetailsRequest(action_id=plane.action_id("run", "child")))
    assert details.details.status.phase == ActionPhase.SUCCEEDED


async def test_a_child_of_nobody_is_told_to_stop(plane):
    error = await refused(plane.enqueue("run", "child"))
    assert (error.code, "parent a0 does not run" in error.message) == (Code.ABORTED, True)


async def test_a_child_of_a_parent_that_is_being_aborted_is_told_to_stop(plane):
    await plane.create("run")
    root = await plane.store.get(plane.id("run"))
    from wingbeat.resources.taskaction import FINALIZER
    from wingbeat.stores import MetadataPatch

    await plane.store.patch(root.id, MetadataPatch(add_finalizers=(FINALIZER,)))
    await plane.store.delete(root.id)
    error = await refused(plane.enqueue("run", "child"))
    assert (error.code, "is being aborted" in error.message) == (Code.ABORTED, True)


async def test_a_child_of_a_parent_that_has_ended_is_told_to_stop(plane):
    await plane.create("run")
    root = copy_action(await plane.store.get(plane.id("run")))
    status = TaskActionStatus(conditions=[Condition(type="Succeeded", status="True")])
    await plane.store.patch_status(root.id, status, resource_version=root.metadata.resource_version)
    error = await refused(plane.enqueue("run", "child"))
    assert (error.code, "has ended" in error.message) == (Code.ABORTED, True)


@pytest.mark.parametrize("name", ["../../etc", "a/b", ".hidden", "a" * 31, "a b", "a\0b"])
async def test_a_child_whose_name_cannot_be_part_of_a_path_is_refused(plane, name):
    await plane.create("run")
    error = await refused(plane.enqueue("run", name))
    assert (error.code, "action name" in error.message) == (Code.INVALID_ARGUMENT, True)


async def test_a_child_without_parent_or_specification_is_invalid(plane):
    await plane.create("run")
    assert (await refused(plane.enqueue("run", "child", parent=""))).code is Code.INVALID_ARGUMENT
    request = plane.child_request("run", "child")
    request.action.ClearField("task")
    assert (await refused(plane.actions.enqueue(request))).code is Code.INVALID_ARGUMENT


async def test_a_watch_sends_what_is_there_then_the_sentinel_then_changes(plane):
    await plane.create("run")
    for name in ("one", "two"):
        await plane.enqueue("run", name)
    await plane.succeeds("run", "one", output_uri="/out/one/1")
    watch = Reader(plane.watch("run"))
    before = {u.action_id.name: u for u in await watch.sentinel()}
    assert {n: u.phase for n, u in before.items()} == {"one": ActionPhase.SUCCEEDED, "two": ActionPhase.QUEUED}
    assert before["one"].output_uri == "/out/one/1"
    assert before["two"].output_uri.endswith("/two")
    await plane.enqueue("run", "three")
    update = await watch.update()
    assert (update.action_id.name, update.phase) == ("three", ActionPhase.QUEUED)
    await plane.happens("run", "three", ActionPhase.RUNNING)
    await plane.fails("run", "three", "boom")
    while update.phase != ActionPhase.FAILED:
        update = await watch.update()
    assert (update.error.message, update.error.code, update.error.kind) == ("boom", "ValueError", 1)


async def test_a_quiet_watch_gives_signs_of_life(plane):
    await plane.create("run")
    watch = Reader(plane.watch("run"))
    assert [await watch.sentinel() for _ in range(3)] == [[], [], []]


async def test_a_watch_tells_of_children_only_and_of_no_other_run(plane):
    for run in ("run-a", "run-b"):
        await plane.create(run)
        await plane.enqueue(run, "child")
        await plane.enqueue(run, "grandchild", parent="child")
    watch = Reader(plane.watch("run-a"))
    assert [u.action_id.name for u in await watch.sentinel()] == ["child"]
    await plane.succeeds("run-b", "child")
    await plane.succeeds("run-a", "grandchild")
    await plane.succeeds("run-a")
    await plane.succeeds("run-a", "child")
    update = await watch.update()
    assert (update.action_id.run.name, update.action_id.name, update.phase) == ("run-a", "child", 5)


async def test_a_slow_watcher_gets_the_last_state_of_every_child(plane):
    await plane.create("run")
    names = [f"c{n}" for n in range(300)]
    watch = Reader(plane.watch("run"))
    await watch.sentinel()
    await asyncio.gather(*(plane.enqueue("run", name) for name in names))
    for name in names:
        await plane.happens("run", name, ActionPhase.RUNNING)
    await asyncio.gather(*(plane.succeeds("run", name) for name in names))
    last = {}
    while len(last) < 300 or set(last.values()) != {ActionPhase.SUCCEEDED}:
        update = await watch.update()
        last[update.action_id.name] = update.phase
    assert set(last) == set(names)


async def test_watchers_that_go_are_forgotten(plane):
    await plane.create("run")
    stream = plane.watch("run")
    watch = Reader(stream)
    await watch.sentinel()
    assert plane.control.feed.watchers == 1
    await stream.aclose()
    async with asyncio.timeout(5):
        while plane.control.feed.watchers:
            await asyncio.sleep(0)


async def test_a_parent_waits_while_it_watches_a_live_child(plane):
    await plane.create("run")
    await plane.enqueue("run", "child")
    assert plane.waiting == []
    stream = plane.watch("run")
    watch = Reader(stream)
    await watch.sentinel()
    assert plane.waiting == [("a0", True)]
    await plane.succeeds("run", "child")
    await watch.update()
    assert plane.waiting == [("a0", True), ("a0", False)]
    await plane.enqueue("run", "second")
    await watch.update()
    assert plane.waiting[2:] == [("a0", True)]
    await stream.aclose()
    async with asyncio.timeout(5):
        while len(plane.waiting) < 4:
            await asyncio.sleep(0)
    assert plane.waiting[3:] == [("a0", False)]


def stamp(time: dt.datetime) -> Timestamp:
    result = Timestamp()
    result.FromDatetime(time)
    return result


def trace(phase: ActionPhase = ActionPhase.SUCCEEDED, output_uri: str = "/t/outputs.pb") -> TraceAction:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    return TraceAction(
        name="step",
        phase=phase,
        start_time=stamp(start),
        end_time=stamp(start + dt.timedelta(milliseconds=1500)),
        outputs=OutputReferences(output_uri=output_uri),
        spec=TraceSpec(),
    )


async def test_a_trace_is_echoed_at_once_with_its_own_file_as_output(plane):
    await plane.create("run")
    watch = Reader(plane.watch("run"))
    await watch.sentinel()
    await plane.enqueue("run", "t1", trace=trace())
    update = await watch.update()
    assert (update.phase, update.output_uri) == (ActionPhase.SUCCEEDED, "/t/outputs.pb")
    details = (
        await plane.runs.get_action_details(GetActionDetailsRequest(action_id=plane.action_id("run", "t1")))
    ).details
    assert (details.metadata.trace.name, details.metadata.action_type, details.status.duration_ms) == ("step", 2, 1500)
    assert plane.waiting == []


async def test_a_failed_trace_brings_the_error_that_the_sdk_wrote(plane):
    await plane.create("run")
    request = plane.child_request("run", "t1", trace=trace(ActionPhase.FAILED, ""))
    error = ContainerError(code="TooMany", message="429", kind=ContainerError.RECOVERABLE, origin=1)
    uri = f"{request.action.run_output_base}/t1/error.pb"
    await plane.storage.put(uri, ErrorDocument(error=error).SerializeToString())
    await plane.actions.enqueue(request)
    (update,) = await Reader(plane.watch("run")).sentinel()
    assert (update.error.code, update.error.message, update.error.kind) == ("TooMany", "429", 1)
    assert update.error.recoverability == ContainerError.RECOVERABLE


async def test_a_trace_that_failed_can_succeed_later_but_not_the_other_way(plane):
    await plane.create("run")
    await plane.enqueue("run", "t1", trace=trace(ActionPhase.FAILED, ""))
    await plane.enqueue("run", "t1", trace=trace())
    await plane.enqueue("run", "t1", trace=trace(ActionPhase.FAILED, ""))
    (update,) = await Reader(plane.watch("run")).sentinel()
    assert (update.phase, update.output_uri) == (ActionPhase.SUCCEEDED, "/t/outputs.pb")


async def test_a_trace_out_of_time_or_before_its_end_is_refused(plane):
    await plane.create("run")
    odd = trace()
    odd.start_time.nanos = -1
    assert (await refused(plane.enqueue("run", "t1", trace=odd))).code is Code.INVALID_ARGUMENT
    running = trace(ActionPhase.RUNNING)
    assert "before its end" in (await refused(plane.enqueue("run", "t1", trace=running))).message


async def test_a_watch_of_a_traces_details_ends_by_itself(plane):
    await plane.create("run")
    await plane.enqueue("run", "t1", trace=trace())
    request = WatchActionDetailsRequest(action_id=plane.action_id("run", "t1"))
    assert len([m async for m in plane.runs.watch_action_details(request)]) == 1


async def test_a_condition_is_stored_for_the_engine_and_seen_with_its_prompt(plane):
    await plane.create("run")
    condition = ConditionAction(name="ok?", type=LiteralType(simple=SimpleType.BOOLEAN), prompt="Go on?")
    await plane.enqueue("run", "c1", condition=condition)
    action = await plane.store.get(plane.id("run", "c1"))
    assert action.is_condition
    assert ConditionAction.FromString(action.spec.condition_spec) == condition
    details = (
        await plane.runs.get_action_details(GetActionDetailsRequest(action_id=plane.action_id("run", "c1")))
    ).details
    assert details.condition.prompt == "Go on?"
    assert details.metadata.condition.type.simple == SimpleType.BOOLEAN


async def test_a_parent_hears_of_a_condition_when_it_has_been_answered_and_not_before(plane, make):
    """The SDK would take one that it did not ask for in this attempt for a task, and lose the answer."""
    await plane.create("run")
    condition = ConditionAction(name="ok?", type=LiteralType(simple=SimpleType.INTEGER))
    await plane.enqueue("run", "c1", condition=condition)
    await plane.enqueue("run", "child")
    watch = Reader(plane.state.watch(WatchRequest(parent_action_id=plane.action_id("run"))))
    assert [u.action_id.name for u in await watch.sentinel()] == ["child"]
    await plane.succeeds("run", "c1", value=make.literal(7).SerializeToString())
    update = await watch.update()
    assert (update.action_id.name, update.phase, update.value) == ("c1", ActionPhase.SUCCEEDED, make.literal(7))


async def test_conditions_of_other_types_are_refused(plane):
    await plane.create("run")
    odd = ConditionAction(name="odd", type=LiteralType(simple=SimpleType.DATETIME))
    assert (await refused(plane.enqueue("run", "c1", condition=odd))).code is Code.INVALID_ARGUMENT


async def test_a_condition_with_a_webhook_has_failed_from_the_start_and_says_why(plane):
    """The SDK tells its user nothing of a refusal."""
    await plane.create("run")
    hook = ConditionAction(name="hook", type=LiteralType(simple=SimpleType.STRING))
    hook.webhook.url = "http://127.0.0.1/x"
    await plane.enqueue("run", "c1", condition=hook)
    await plane.enqueue("run", "c1", condition=hook)
    request = GetActionDetailsRequest(action_id=plane.action_id("run", "c1"))
    details = (await plane.runs.get_action_details(request)).details
    assert details.status.phase == ActionPhase.FAILED
    assert "'hook' names a webhook" in details.error_info.message and "flyte signal" in details.error_info.message
    with pytest.raises(NotFound):
        await plane.store.get(plane.id("run", "c1"))


async def test_the_older_services_mean_the_same(plane):
    await plane.create("run")
    action = plane.child_request("run", "child").action
    await plane.queue.enqueue_action(
        EnqueueActionRequest(
            action_id=action.action_id,
            parent_action_name="a0",
            input_uri=action.input_uri,
            run_output_base=action.run_output_base,
            task=action.task,
        )
    )
    watch = Reader(plane.state.watch(WatchRequest(parent_action_id=plane.action_id("run"))))
    assert [u.action_id.name for u in await watch.sentinel()] == ["child"]


async def test_a_watch_of_nobody_is_invalid(plane):
    stream = plane.actions.watch_for_updates(WatchForUpdatesRequest())
    assert (await refused(stream.__anext__())).code is Code.INVALID_ARGUMENT
