"""Abort and signal."""

from __future__ import annotations

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from flyteidl2.actions.actions_service_pb2 import AbortRequest
from flyteidl2.core.literals_pb2 import Literal
from flyteidl2.core.types_pb2 import LiteralType, SimpleType
from flyteidl2.dataproxy.dataproxy_service_pb2 import GetActionDataRequest
from flyteidl2.workflow.run_definition_pb2 import ConditionAction
from flyteidl2.workflow.run_service_pb2 import (
    AbortActionRequest,
    AbortRunRequest,
    EventPayload,
    GetActionDetailsRequest,
    SignalEventRequest,
    WatchActionDetailsRequest,
)

from wingbeat.resources import ActionPhase
from wingbeat.resources.taskaction import ANNOTATION_ABORT_REASON, ANNOTATION_ABORTED_BY, FINALIZER
from wingbeat.stores import MetadataPatch, NotFound


async def refused(awaitable) -> ConnectError:
    with pytest.raises(ConnectError) as caught:
        await awaitable
    return caught.value


async def details(plane, run: str, name: str = "a0"):
    request = GetActionDetailsRequest(action_id=plane.action_id(run, name))
    return (await plane.runs.get_action_details(request)).details


async def held(plane, run: str, *names: str) -> None:
    """What the engine does first: its finalizer keeps an action until its work is gone."""
    for name in names:
        await plane.store.patch(plane.id(run, name), MetadataPatch(add_finalizers=(FINALIZER,)))


async def unheld(plane, run: str, *names: str) -> None:
    """As made by someone who leaves the finalizer to the engine, before the engine has looked."""
    for name in names:
        await plane.store.patch(plane.id(run, name), MetadataPatch(remove_finalizers=(FINALIZER,)))


async def test_aborting_a_run_asks_for_the_deletion_of_every_action_with_the_reason(plane):
    await plane.create("run")
    await plane.enqueue("run", "child")
    await held(plane, "run", "a0", "child")
    await plane.runs.abort_run(AbortRunRequest(run_id=plane.run_id("run"), reason="wrong input"))
    for name in ("a0", "child"):
        action = await plane.store.get(plane.id("run", name))
        assert action.deleting
        assert action.metadata.annotations[ANNOTATION_ABORT_REASON] == "wrong input"
        assert action.metadata.annotations[ANNOTATION_ABORTED_BY] == "ada"
        assert (await details(plane, "run", name)).status.phase == ActionPhase.QUEUED


async def test_what_the_engine_never_took_up_is_aborted_at_once(plane):
    await plane.create("run")
    await plane.enqueue("run", "child")
    await unheld(plane, "run", "a0", "child")
    await plane.runs.abort_run(AbortRunRequest(run_id=plane.run_id("run")))
    for name in ("a0", "child"):
        with pytest.raises(NotFound):
            await plane.store.get(plane.id("run", name))
        seen = await details(plane, "run", name)
        assert seen.status.phase == ActionPhase.ABORTED
        assert seen.abort_info.reason == "User requested abort"
        assert seen.abort_info.aborted_by.user.id.subject == "ada"


async def test_aborting_an_action_takes_what_is_below_it_and_nothing_else(plane):
    await plane.create("run")
    for name, parent in (("child", "a0"), ("grandchild", "child"), ("sibling", "a0")):
        await plane.enqueue("run", name, parent=parent)
    await unheld(plane, "run", "child", "grandchild")
    await plane.runs.abort_action(AbortActionRequest(action_id=plane.action_id("run", "child"), reason="enough"))
    phases = {n: (await details(plane, "run", n)).status.phase for n in ("a0", "child", "grandchild", "sibling")}
    assert phases == {"a0": 1, "child": 7, "grandchild": 7, "sibling": 1}
    assert (await details(plane, "run", "grandchild")).abort_info.reason == "enough"


async def test_a_cancelled_child_is_aborted_by_its_parents_word(plane):
    await plane.create("run")
    await plane.enqueue("run", "child")
    await unheld(plane, "run", "child")
    await plane.actions.abort(AbortRequest(action_id=plane.action_id("run", "child")))
    assert (await details(plane, "run", "child")).status.phase == ActionPhase.ABORTED


async def test_aborting_what_has_ended_changes_nothing(plane):
    await plane.create("run")
    await plane.succeeds("run")
    await plane.runs.abort_run(AbortRunRequest(run_id=plane.run_id("run")))
    await plane.runs.abort_action(AbortActionRequest(action_id=plane.action_id("run")))
    assert (await details(plane, "run")).status.phase == ActionPhase.SUCCEEDED


async def test_the_first_reason_stays(plane):
    await plane.create("run")
    await held(plane, "run", "a0")
    for reason in ("first", "second"):
        await plane.runs.abort_run(AbortRunRequest(run_id=plane.run_id("run"), reason=reason))
    action = await plane.store.get(plane.id("run"))
    assert action.metadata.annotations[ANNOTATION_ABORT_REASON] == "first"


async def test_aborting_what_does_not_exist_is_not_found(plane):
    assert (await refused(plane.runs.abort_run(AbortRunRequest(run_id=plane.run_id("x"))))).code is Code.NOT_FOUND
    request = AbortActionRequest(action_id=plane.action_id("x", "y"))
    assert (await refused(plane.runs.abort_action(request))).code is Code.NOT_FOUND


async def test_an_abort_touches_no_run_of_the_same_name_in_another_project(plane):
    from flyteidl2.project.project_service_pb2 import CreateProjectRequest, Project

    await plane.projects.create_project(CreateProjectRequest(project=Project(id="other")))
    await plane.create("same")
    request = plane.create_request("same")
    request.run_id.project = "other"
    await plane.runs.create_run(request)
    await plane.runs.abort_run(AbortRunRequest(run_id=plane.run_id("same")))
    other = plane.action_id("same")
    other.run.project = "other"
    seen = (await plane.runs.get_action_details(GetActionDetailsRequest(action_id=other))).details
    assert seen.status.phase == ActionPhase.QUEUED


async def test_watchers_of_an_aborted_run_see_it_and_end(plane):
    await plane.create("run")
    await unheld(plane, "run", "a0")
    stream = plane.runs.watch_action_details(WatchActionDetailsRequest(action_id=plane.action_id("run")))
    first = await stream.__anext__()
    assert first.details.status.phase == ActionPhase.QUEUED
    await plane.runs.abort_run(AbortRunRequest(run_id=plane.run_id("run")))
    phases = [m.details.status.phase async for m in stream]
    assert phases[-1] == ActionPhase.ABORTED


# --- signals


async def condition(plane, simple: int, name: str = "c1") -> None:
    await plane.create("run")
    spec = ConditionAction(name="ok?", type=LiteralType(simple=simple))
    await plane.enqueue("run", name, condition=spec)


async def signal(plane, name: str = "c1", **value) -> None:
    payload = EventPayload(**value)
    await plane.runs.signal_event(SignalEventRequest(action_id=plane.action_id("run", name), payload=payload))


@pytest.mark.parametrize(
    ("simple", "payload", "primitive"),
    [
        (SimpleType.BOOLEAN, {"bool_value": False}, ("boolean", False)),
        (SimpleType.INTEGER, {"int_value": 7}, ("integer", 7)),
        (SimpleType.FLOAT, {"float_value": 1.5}, ("float_value", 1.5)),
        (SimpleType.FLOAT, {"int_value": 2}, ("float_value", 2.0)),
        (SimpleType.STRING, {"string_value": "yes"}, ("string_value", "yes")),
    ],
)
async def test_a_signal_is_handed_to_the_engine(plane, simple, payload, primitive):
    await condition(plane, simple)
    await signal(plane, **payload)
    status = (await plane.store.get(plane.id("run", "c1"))).status
    value = Literal.FromString(status.signal_value).scalar.primitive
    assert (value.WhichOneof("value"), getattr(value, primitive[0])) == primitive
    assert status.signalled_by == "ada"
    assert status.signalled_at is not None


async def test_a_signal_of_the_wrong_type_is_invalid(plane):
    await condition(plane, SimpleType.BOOLEAN)
    error = await refused(signal(plane, string_value="yes"))
    assert (error.code, error.message) == (
        Code.INVALID_ARGUMENT,
        "the condition 'ok?' wants a boolean, not string",
    )
    assert (await refused(signal(plane))).code is Code.INVALID_ARGUMENT


async def test_the_same_answer_again_is_fine_and_another_is_refused(plane):
    await condition(plane, SimpleType.INTEGER)
    await signal(plane, int_value=1)
    await signal(plane, int_value=1)
    assert (await refused(signal(plane, int_value=2))).code is Code.FAILED_PRECONDITION


async def test_what_is_no_condition_cannot_be_signalled(plane):
    await plane.create("run")
    assert (await refused(signal(plane, "a0", int_value=1))).code is Code.FAILED_PRECONDITION
    assert (await refused(signal(plane, "nobody", int_value=1))).code is Code.NOT_FOUND


async def test_the_answer_of_a_condition_is_its_output(plane, make):
    await condition(plane, SimpleType.INTEGER)
    value = make.literal(7).SerializeToString()
    await plane.succeeds("run", "c1", value=value, signalled_by="bob")
    seen = await details(plane, "run", "c1")
    assert seen.signal_info.signalled_by.user.id.subject == "bob"
    data = await plane.data.get_action_data(GetActionDataRequest(action_id=plane.action_id("run", "c1")))
    assert data.outputs.literals[0].value == make.literal(7)
