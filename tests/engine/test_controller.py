"""The shell on a real SQLite store, with a plugin whose work is done by the test."""

import asyncio
import datetime as dt

import pytest
from flyteidl2.core import tasks_pb2

from wingbeat.database import Records, open_database
from wingbeat.engine import Collector, Controller, Policy
from wingbeat.execution import TaskExecutionContext, attempt_paths
from wingbeat.plugins import PluginRegistry, Transition
from wingbeat.resources import (
    ActionPhase,
    ActionRecord,
    ErrorInfo,
    ObjectMeta,
    OwnerReference,
    PluginPhase,
    RunId,
    TaskAction,
    TaskActionSpec,
)
from wingbeat.resources.taskaction import FINALIZER, LABEL_ORG, LABEL_TERMINATION_STATUS
from wingbeat.stores import NotFound, SqlStore

RUN = RunId("local", "p", "d", "r1")


class Handmade:
    """A plugin that launches by name and reports what the test says."""

    id = "handmade"
    task_types = ("python",)
    state_version = 1

    def __init__(self) -> None:
        self.launched: dict[str, int] = {}
        self.say: dict[tuple[str, int], list] = {}
        self.aborted: list[str] = []
        self.finalized: list[str] = []

    async def handle(self, context: TaskExecutionContext) -> Transition:
        if context.state is None:
            name = f"{context.id.action}/{context.attempt}/{context.generation}"
            return Transition(phase=PluginPhase.QUEUED, state={"name": name}, again=True)
        name = context.state["name"]
        self.launched.setdefault(name, 0)
        reports = self.say.get((context.id.action, context.attempt), [])
        if not reports:
            return Transition(phase=PluginPhase.RUNNING)
        report = reports.pop(0) if len(reports) > 1 else reports[0]
        if isinstance(report, Exception):
            raise report
        return report

    async def abort(self, context: TaskExecutionContext) -> None:
        if context.state:
            self.aborted.append(context.state["name"])

    async def finalize(self, context: TaskExecutionContext) -> None:
        if context.state:
            self.finalized.append(context.state["name"])


def build_context(action, state, template, now) -> TaskExecutionContext:
    paths = attempt_paths(
        action.id,
        base=action.spec.run_output_base,
        namespace="flyte",
        attempt=action.attempt,
        raw_data_prefix="/data/raw",
        root="/data",
    )
    return TaskExecutionContext(
        action=action,
        template=template,
        attempt=action.attempt,
        generation=state.generation,
        max_attempts=3,
        input_uri=action.spec.input_uri,
        paths=paths,
        run_start_time=now,
        environment={},
        state=state.plugin,
        now=now,
    )


def new_action(name: str, *, parent: TaskAction | None = None, retries: int = 0, kind: str = "task") -> TaskAction:
    template = tasks_pb2.TaskTemplate(type="python")
    template.metadata.retries.retries = retries
    owner = [OwnerReference(name=parent.metadata.name, uid=parent.metadata.uid)] if parent else []
    return TaskAction(
        metadata=ObjectMeta(name=f"r1-{name}", namespace="flyte", labels={LABEL_ORG: "local"}, owner_references=owner),
        spec=TaskActionSpec(
            run_name="r1",
            project="p",
            domain="d",
            action_name=name,
            task_type="python",
            action_type=kind,
            parent_action_name=parent.spec.action_name if parent else None,
            input_uri="/data/i/inputs.pb",
            run_output_base="/data/runs/r1",
            task_template=template.SerializeToString(),
        ),
    )


class World:
    def __init__(self, database, plugin: Handmade) -> None:
        self.database = database
        self.records = Records(database)
        self.store = SqlStore(database)
        self.plugin = plugin
        self.controller = self.new_controller()

    def new_controller(self) -> Controller:
        return Controller(self.store, PluginRegistry([self.plugin]), build_context, policy=Policy(system_backoff=0.001))

    async def create(self, action: TaskAction) -> TaskAction:
        record = ActionRecord(
            id=action.id, parent=action.spec.parent_action_name or "", created_at=dt.datetime.now(dt.UTC)
        )
        return await self.store.create(action, record=record)

    async def until(self, check, what: str):
        """Wait for records to change until `check` holds."""
        changed = asyncio.Event()
        end = self.database.subscribe("records", lambda _: changed.set())
        try:
            async with asyncio.timeout(10):
                while True:
                    changed.clear()
                    result = await check()
                    if result:
                        return result
                    try:
                        await asyncio.wait_for(changed.wait(), 0.2)
                    except TimeoutError:
                        pass
        except TimeoutError:
            raise AssertionError(f"never: {what}") from None
        finally:
            end()

    async def phase(self, name: str, phase: ActionPhase) -> ActionRecord:
        async def check():
            record = await self.records.get(RUN.action(name))
            return record if record.phase is phase else None

        return await self.until(check, f"{name} is {phase.name}")


@pytest.fixture
async def world(tmp_path):
    database = await open_database(tmp_path / "w.db")
    it = World(database, Handmade())
    await it.controller.start()
    yield it
    await it.controller.stop()
    await database.close()


SUCCESS = Transition(phase=PluginPhase.SUCCESS, output_uri="/data/o")
USER = Transition(phase=PluginPhase.RETRYABLE_FAILURE, error=ErrorInfo(message="boom", code="ValueError", kind="USER"))


async def test_an_action_gets_a_finalizer_runs_and_is_labelled_when_it_is_done(world):
    world.plugin.say["a0", 1] = [Transition(phase=PluginPhase.RUNNING), SUCCESS]
    await world.create(new_action("a0"))
    await world.phase("a0", ActionPhase.RUNNING)
    assert FINALIZER in (await world.store.get(RUN.action("a0"))).metadata.finalizers
    world.controller.wake(RUN.action("a0"))
    record = await world.phase("a0", ActionPhase.SUCCEEDED)
    assert record.output_uri == "/data/o"

    async def labelled():
        action = await world.store.get(RUN.action("a0"))
        return action.metadata.labels.get(LABEL_TERMINATION_STATUS) == "terminated"

    await world.until(labelled, "the label of a finished action")
    assert world.plugin.finalized == ["a0/1/0"]


async def test_a_retried_attempt_keeps_its_error_and_the_next_one_is_launched_under_a_new_name(world):
    world.plugin.say["a0", 1] = [USER]
    world.plugin.say["a0", 2] = [SUCCESS]
    await world.create(new_action("a0", retries=2))
    record = await world.phase("a0", ActionPhase.SUCCEEDED)
    first, second = await world.records.attempts(record.id)
    assert (first.phase, first.error.code) == (ActionPhase.FAILED, "ValueError")
    assert second.phase is ActionPhase.SUCCEEDED
    assert list(world.plugin.launched) == ["a0/1/0", "a0/2/1"]
    assert record.error is None


async def test_an_exception_of_a_plugin_is_a_system_failure_and_is_tried_again_within_its_budget(world):
    world.plugin.say["a0", 1] = [RuntimeError("api server away"), RuntimeError("api server away"), SUCCESS]
    await world.create(new_action("a0"))
    record = await world.phase("a0", ActionPhase.SUCCEEDED)
    assert record.attempts == 1
    (attempt,) = await world.records.attempts(record.id)
    assert sum("api server away" in r.message for r in attempt.reasons) == 2


async def test_system_failures_without_end_fail_the_action(world):
    world.plugin.say["a0", 1] = [RuntimeError("no")]
    await world.create(new_action("a0"))
    record = await world.phase("a0", ActionPhase.FAILED)
    assert (record.error.code, record.error.kind) == ("MaxSystemFailuresExceeded", "SYSTEM")
    assert len(world.plugin.launched) == 4


async def test_deleting_a_running_action_aborts_it_with_its_children_and_says_why(world):
    root = await world.create(new_action("a0"))
    await world.phase("a0", ActionPhase.RUNNING)
    child = await world.create(new_action("c1", parent=root))
    await world.create(new_action("c2", parent=child))
    await world.phase("c2", ActionPhase.RUNNING)
    await world.store.delete(root.id, annotations={"wingbeat.dev/abort-reason": "enough"})
    for name in ("a0", "c1", "c2"):
        record = await world.phase(name, ActionPhase.ABORTED)
        assert "enough" in record.abort_reason

    async def gone():
        for name in ("a0", "c1", "c2"):
            try:
                await world.store.get(RUN.action(name))
                return False
            except NotFound:
                pass
        return True

    await world.until(gone, "all objects are gone")
    assert sorted(world.plugin.aborted) == ["a0/1/0", "c1/1/0", "c2/1/0"]


async def test_children_go_on_when_an_attempt_of_their_parent_is_made_again(world):
    root = await world.create(new_action("a0"))
    await world.phase("a0", ActionPhase.RUNNING)
    await world.create(new_action("c1", parent=root))
    await world.phase("c1", ActionPhase.RUNNING)
    world.plugin.say["a0", 1] = [RuntimeError("lost"), Transition(phase=PluginPhase.RUNNING)]
    world.controller.wake(RUN.action("a0"))

    async def again():
        return "a0/1/1" in world.plugin.launched

    await world.until(again, "a0 is launched a second time")
    assert (await world.records.get(RUN.action("c1"))).phase is ActionPhase.RUNNING
    assert "c1/1/0" not in world.plugin.aborted
    world.plugin.say["c1", 1] = [SUCCESS]
    world.controller.wake(RUN.action("c1"))
    await world.phase("c1", ActionPhase.SUCCEEDED)


async def test_children_left_behind_by_a_finished_parent_are_stopped(world):
    root = await world.create(new_action("a0"))
    await world.phase("a0", ActionPhase.RUNNING)
    await world.create(new_action("c1", parent=root))
    await world.phase("c1", ActionPhase.RUNNING)
    world.plugin.say["a0", 1] = [SUCCESS]
    world.controller.wake(RUN.action("a0"))
    record = await world.phase("c1", ActionPhase.ABORTED)
    assert "a0 has ended" in record.abort_reason


async def test_deleting_a_finished_action_leaves_its_record_as_it_was(world):
    world.plugin.say["a0", 1] = [SUCCESS]
    await world.create(new_action("a0"))
    record = await world.phase("a0", ActionPhase.SUCCEEDED)
    await world.store.delete(record.id)

    async def gone():
        try:
            await world.store.get(record.id)
        except NotFound:
            return True
        return False

    await world.until(gone, "the object is gone")
    assert (await world.records.get(record.id)).phase is ActionPhase.SUCCEEDED
    assert world.plugin.aborted == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda a: setattr(a.spec, "run_output_base", ""), "InvalidSpec"),
        (lambda a: setattr(a.spec, "task_template", b"\xff\xff"), "InvalidSpec"),
        (lambda a: setattr(a.spec, "run_output_base", "/elsewhere/x"), "InvalidSpec"),
        (lambda a: setattr(a.spec, "task_type", "spark"), "PluginNotFound"),
    ],
)
async def test_what_can_never_run_fails_at_once_with_a_code(world, change, code):
    action = new_action("a0")
    change(action)
    await world.create(action)
    record = await world.phase("a0", ActionPhase.FAILED)
    assert record.error.code == code


async def test_a_new_controller_goes_on_where_the_old_one_stopped_and_launches_nothing_twice(world):
    for number in range(20):
        await world.create(new_action(f"n{number}"))
    for number in range(20):
        await world.phase(f"n{number}", ActionPhase.RUNNING)
    await world.controller.stop()
    for number in range(20):
        world.plugin.say[f"n{number}", 1] = [SUCCESS]
    world.controller = world.new_controller()
    await world.controller.start()
    for number in range(20):
        await world.phase(f"n{number}", ActionPhase.SUCCEEDED)
    assert sorted(world.plugin.launched) == sorted(f"n{n}/1/0" for n in range(20))


async def test_two_controllers_on_one_store_agree(world):
    """Conflicts are answered by reading again: the same end, with no attempt finished twice."""
    second = world.new_controller()
    await second.start()
    try:
        for number in range(30):
            world.plugin.say[f"n{number}", 1] = [USER]
            world.plugin.say[f"n{number}", 2] = [SUCCESS]
            await world.create(new_action(f"n{number}", retries=1))
        for number in range(30):
            record = await world.phase(f"n{number}", ActionPhase.SUCCEEDED)
            assert record.attempts == 2
    finally:
        await second.stop()


async def test_a_finished_run_leaves_the_engine_and_its_record_stays(world):
    world.plugin.say["a0", 1] = [SUCCESS]
    await world.create(new_action("a0"))
    record = await world.phase("a0", ActionPhase.SUCCEEDED)
    while not world.controller.informer.get(record.id).terminal:  # readers may see it a moment before the engine does
        await asyncio.sleep(0.01)
    collector = Collector(
        world.store, world.controller.informer, ttl=dt.timedelta(0), clock=lambda: dt.datetime.now(dt.UTC)
    )
    assert await collector.sweep() == 1

    async def gone():
        try:
            await world.store.get(record.id)
        except NotFound:
            return True
        return False

    await world.until(gone, "the object is gone")
    after = await world.records.get(record.id)
    assert (after.phase, after.output_uri) == (ActionPhase.SUCCEEDED, "/data/o")
