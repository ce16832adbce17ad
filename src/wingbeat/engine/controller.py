"""The shell around the rules: reads an action, gathers what the rules need to know, carries out what they decide.

One reconcile at a time per action, many actions at once. Level-based: a wake-up says only *which* action to look at,
never what happened. Wake-ups come from the store's watch (not for our own writes), from plugins, and from times that
decisions name.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
import structlog
from flyteidl2.workflow import run_definition_pb2
from google.protobuf.message import DecodeError

from wingbeat.crashpoints import crash_point
from wingbeat.engine.decide import (
    Policy,
    Step,
    abort_event,
    decide_cache_hit,
    decide_condition,
    decide_invalid,
    decide_system_failure,
    decide_transition,
    next_step,
)
from wingbeat.engine.draft import Decision
from wingbeat.engine.facts import TaskFacts, parse_template, task_facts, validation_problem
from wingbeat.engine.state import EngineState, read_state
from wingbeat.execution import BadOutputBase, TaskExecutionContext
from wingbeat.plugins import PermanentPluginError, Plugin, PluginRegistry, Transition
from wingbeat.resources import ActionId, CacheStatus, ErrorInfo, ErrorKind, PluginPhase, TaskAction
from wingbeat.resources.taskaction import (
    ANNOTATION_ABORT_REASON,
    ANNOTATION_ABORTED_BY,
    FINALIZER,
    LABEL_COMPLETED_TIME,
    LABEL_TERMINATION_STATUS,
)
from wingbeat.stores import Conflict, MetadataPatch, NotFound, Store, Unavailable
from wingbeat.stores.cache import Informer
from wingbeat.stores.workqueue import Priority, WorkQueue

log = structlog.get_logger("wingbeat.engine")

IN_FLIGHT = 128
"""Reconciles under way at once; they mostly wait for the store and for processes to end."""
FIRST_RETRY, LAST_RETRY = 0.1, 10.0
"""Seconds before another look when the store is away or a reconcile broke; doubles between the two."""


class CatalogAnswer(msgspec.Struct, frozen=True):
    status: CacheStatus
    output_uri: str = ""
    report_uri: str = ""


class Catalog(Protocol):
    async def lookup(self, action: TaskAction, facts: TaskFacts, prefix: str) -> CatalogAnswer:
        """HIT with outputs that now are below `prefix`, MISS, SKIPPED (overwrite asked for) or LOOKUP_FAILURE."""

    async def put(self, action: TaskAction, output_uri: str) -> CacheStatus:
        """POPULATED or PUT_FAILURE."""


ContextBuilder = Callable[[TaskAction, EngineState, Any, dt.datetime], TaskExecutionContext]
"""Raises BadOutputBase."""


def _settled(action: TaskAction) -> bool:
    """Nothing is left to do: it has ended, and its end has been seen to."""
    done = action.metadata.labels.get(LABEL_TERMINATION_STATUS) == "terminated"
    return done and not action.deleting and action.terminal


def utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Controller:
    """Reconciles every action of a store until it is stopped."""

    def __init__(
        self,
        store: Store,
        registry: PluginRegistry,
        context: ContextBuilder,
        *,
        catalog: Catalog | None = None,
        policy: Policy | None = None,
        clock: Callable[[], dt.datetime] = utc_now,
        kill_timeout: float = 120.0,
    ) -> None:
        self._store = store
        self._registry = registry
        self._context = context
        self._catalog = catalog
        self._policy = policy or Policy()
        self._clock = clock
        self._kill_timeout = kill_timeout
        self._informer = Informer(store)
        self._queue: WorkQueue[ActionId] = WorkQueue(first_retry_seconds=FIRST_RETRY, last_retry_seconds=LAST_RETRY)
        self._own_writes: dict[ActionId, str] = {}
        self._writing: dict[ActionId, int] = {}
        """Actions with a write of ours under way, and the newest version that the watch told of meanwhile."""
        self._running: set[asyncio.Task[None]] = set()
        self._main: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self.reconciles = 0

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin; returns when every action that is there has been queued once."""
        self._informer.add_handler(self._changed)
        self._following = asyncio.create_task(self._informer.run(), name="watch cache")
        synced = asyncio.create_task(self._informer.synced.wait())
        await asyncio.wait({synced, self._following}, return_when=asyncio.FIRST_COMPLETED)
        if not self._informer.synced.is_set():
            synced.cancel()
            await self._following
        self._main = asyncio.create_task(self._work(), name="engine")

    async def stop(self) -> None:
        """Finish the reconciles under way and begin no more. What was not done is found again at the next start."""
        if self._main is not None:
            self._main.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._main
        if self._running:
            await asyncio.wait(self._running, timeout=10)
        for task in self._running:
            task.cancel()
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    def wake(self, id: ActionId) -> None:
        """Look at this action soon."""
        self._queue.add(id)

    def live_actions(self) -> list[TaskAction]:
        """Actions that are not terminal, as last seen."""
        return [a for a in self._informer.items() if not a.terminal]

    @property
    def queue_depth(self) -> int:
        """Actions that wait for a worker."""
        return len(self._queue)

    @property
    def informer(self) -> Informer:
        return self._informer

    def _changed(self, old: TaskAction | None, new: TaskAction | None) -> None:
        if new is None:
            assert old is not None
            self._own_writes.pop(old.id, None)
            return
        id = new.id
        if self._own_writes.get(id) == new.metadata.resource_version or _settled(new):
            return
        if id in self._writing:
            # Most likely our own write, told before it returned. `_write` knows when it has.
            self._writing[id] = max(self._writing[id], int(new.metadata.resource_version))
            return
        self._queue.add(id, Priority.NORMAL if self._informer.synced.is_set() else Priority.BACKLOG)

    async def _work(self) -> None:
        slots = asyncio.Semaphore(IN_FLIGHT)
        while True:
            await slots.acquire()
            id = await self._queue.get()
            task = asyncio.create_task(self._one(id, slots), name=f"reconcile {id}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _one(self, id: ActionId, slots: asyncio.Semaphore) -> None:
        try:
            await self._reconcile_until_settled(id)
            self._queue.forget(id)
        except Unavailable as error:
            wait = self._queue.retry(id)
            log.error("store unavailable", run=id.run, action=id.action, error=str(error), next_try_seconds=wait)
        except Exception:
            wait = self._queue.retry(id)
            log.exception("reconcile failed", run=id.run, action=id.action, next_try_seconds=wait)
        finally:
            self._queue.done(id)
            slots.release()

    async def _reconcile_until_settled(self, id: ActionId) -> None:
        """Reconcile, and again while the rules ask for it at once or a write met a conflict."""
        while True:
            try:
                if not await self._reconcile(id):
                    return
            except NotFound:
                return
            except Conflict:
                self._informer.observe(await self._store.get(id))

    # -- one reconcile -----------------------------------------------------------------------------------------------

    async def _reconcile(self, id: ActionId) -> bool:
        """One pass over one action; True asks for another at once."""
        action = self._informer.get(id)
        if action is None:
            return False
        self.reconciles += 1
        now = self._clock()
        state = read_state(action)
        problem = "" if action.is_condition else validation_problem(action)
        facts = TaskFacts() if problem or action.is_condition else task_facts(action.spec.task_template)
        step = next_step(action, state, facts, problem=problem, now=now, catalog=self._catalog is not None)
        match step:
            case Step.ABORT:
                return await self._abort(action, state, now)
            case Step.SETTLE:
                await self._settle(action, now)
                return False
            case Step.CONDITION:
                return await self._condition(action, state, now)
            case Step.REJECT:
                return await self._persist(action, decide_invalid(action, state, "InvalidSpec", problem, now))
            case Step.ADD_FINALIZER:
                patch = MetadataPatch(add_finalizers=(FINALIZER,))
                await self._write(id, self._store.patch(id, patch, resource_version=action.metadata.resource_version))
                return True
            case Step.WAIT:
                assert state.not_before is not None
                self._queue.add_after(id, max((state.not_before - now).total_seconds(), 0.0))
                return False
        plugin = self._registry.resolve(action.spec.task_type)
        if plugin is None:
            message = (
                f"no plugin of this server runs tasks of type {action.spec.task_type!r}; "
                f"it serves {', '.join(self._registry.task_types)}. Make it a task of one of these and start it again: "
                "flyte run ..."
            )
            return await self._persist(action, decide_invalid(action, state, "PluginNotFound", message, now))
        try:
            context = self._context(action, state, parse_template(action.spec.task_template), now)
        except BadOutputBase as error:
            return await self._persist(action, decide_invalid(action, state, "InvalidSpec", str(error), now))
        if step is Step.LOOKUP:
            assert self._catalog is not None
            answer = await self._catalog.lookup(action, facts, context.paths.prefix)
            if answer.status is CacheStatus.HIT:
                decision = decide_cache_hit(
                    action, state, output_uri=answer.output_uri, report_uri=answer.report_uri, now=now
                )
                return await self._persist(action, decision)
            state = msgspec.structs.replace(state, cache_checked=True)
            cache: CacheStatus = answer.status
        else:
            cache = CacheStatus(action.status.cache_status)
        return await self._handle(action, state, facts, plugin, context, cache, now)

    async def _handle(
        self,
        action: TaskAction,
        state: EngineState,
        facts: TaskFacts,
        plugin: Plugin,
        context: TaskExecutionContext,
        cache: CacheStatus,
        now: dt.datetime,
    ) -> bool:
        try:
            transition = await plugin.handle(context)
        except PermanentPluginError as error:
            transition = Transition(
                phase=PluginPhase.PERMANENT_FAILURE,
                error=ErrorInfo(message=error.message, code=error.code, kind=ErrorKind.USER),
            )
        except Exception as error:
            log.warning("plugin failed", run=action.id.run, action=action.id.action, exc_info=True)
            info = ErrorInfo(message=f"{type(error).__name__}: {error}", code="PluginError", kind=ErrorKind.SYSTEM)
            decision = decide_system_failure(action, state, info, policy=self._policy, now=now)
            return await self._persist(action, decision, plugin, context)
        if (
            transition.phase is PluginPhase.SUCCESS
            and self._catalog is not None
            and facts.discoverable
            and action.spec.cache_key
        ):
            cache = await self._catalog.put(action, transition.output_uri)
        decision = decide_transition(
            action, state, facts, transition, cache=cache, policy=self._policy, now=self._clock()
        )
        return await self._persist(action, decision, plugin, context)

    async def _persist(
        self,
        action: TaskAction,
        decision: Decision,
        plugin: Plugin | None = None,
        context: TaskExecutionContext | None = None,
    ) -> bool:
        """Carry a decision out. True asks for another pass at once."""
        id = action.id
        if decision.abort_attempt and plugin is not None and context is not None:
            # Its children go on: the next attempt asks for the same ones and takes what they have come to.
            await plugin.abort(context)
        if decision.status is not None:
            what = "intent" if decision.again else "result" if decision.finalize_attempt else "progress"
            crash_point(what + ".before-write")
            written = await self._write(
                id,
                self._store.patch_status(
                    id,
                    decision.status,
                    resource_version=action.metadata.resource_version,
                    events=decision.events,
                    wait_reason=decision.wait_reason,
                ),
            )
            crash_point(what + ".after-write")
            for event in decision.events:
                if event.phase.terminal:
                    log.info(
                        "attempt ended" if not event.final else "action ended",
                        run=id.run,
                        action=id.action,
                        attempt=event.attempt,
                        phase=event.phase.name,
                        code=event.error.code if event.error else None,
                    )
            if written.terminal:
                if decision.finalize_attempt and plugin is not None and context is not None:
                    await self._finalize(plugin, context)
                return True
        if decision.finalize_attempt and plugin is not None and context is not None:
            await self._finalize(plugin, context)
        if decision.wake_at is not None:
            self._queue.add_after(id, max((decision.wake_at - self._clock()).total_seconds(), 0.0))
        return decision.again

    async def _finalize(self, plugin: Plugin, context: TaskExecutionContext) -> None:
        """Free what an ended attempt holds. A failure leaves something behind, but the outcome stands."""
        crash_point("finalize.before")
        try:
            await plugin.finalize(context)
        except Exception:
            log.exception("clean-up failed", run=context.id.run, action=context.id.action, attempt=context.attempt)

    async def _write(self, id: ActionId, write: Awaitable[TaskAction]) -> TaskAction:
        """Carry out a write of ours, whose echo in the watch is no reason to look again."""
        self._writing[id] = 0
        written: TaskAction | None = None
        try:
            written = await write
        finally:
            told = self._writing.pop(id)
            version = written.metadata.resource_version if written is not None else "0"
            if told > int(version):
                self._queue.add(id)
        self._own_writes[id] = version
        self._informer.observe(written)
        return written

    # -- ends --------------------------------------------------------------------------------------------------------

    async def _settle(self, action: TaskAction, now: dt.datetime) -> None:
        """A finished action: label it for collection once, and stop the children that it left behind."""
        if action.metadata.labels.get(LABEL_TERMINATION_STATUS) != "terminated":
            await self._stop_children(action.id, f"its parent {action.id.action} has ended")
            done = MetadataPatch(
                labels={
                    LABEL_TERMINATION_STATUS: "terminated",
                    LABEL_COMPLETED_TIME: now.astimezone(dt.UTC).strftime("%Y-%m-%d.%H-%M"),
                }
            )
            await self._write(
                action.id, self._store.patch(action.id, done, resource_version=action.metadata.resource_version)
            )

    async def _stop_children(self, id: ActionId, reason: str) -> None:
        for child in self._informer.children(id):
            if child.terminal or child.deleting:
                continue
            with contextlib.suppress(NotFound):
                await self._store.delete(
                    child.id, annotations={ANNOTATION_ABORT_REASON: reason, ANNOTATION_ABORTED_BY: "wingbeat"}
                )

    async def _abort(self, action: TaskAction, state: EngineState, now: dt.datetime) -> bool:
        """Deletion asked for: end what runs, tell of it, let the object go."""
        id = action.id
        if not action.terminal:
            reason = action.metadata.annotations.get(ANNOTATION_ABORT_REASON, "") or "aborted"
            await self._stop_children(id, f"its parent {id.action} was aborted: {reason}")
        plugin = None if action.is_condition else self._registry.resolve(action.spec.task_type)
        if plugin is not None and FINALIZER in action.metadata.finalizers:
            context = None
            try:
                context = self._context(action, state, parse_template(action.spec.task_template), now)
            except ValueError as error:
                log.warning("nothing to clean up", run=id.run, action=id.action, error=str(error))
            if context is not None:
                if not action.terminal:
                    crash_point("abort.before-kill")
                    await asyncio.wait_for(plugin.abort(context), self._kill_timeout)
                    crash_point("abort.after-kill")
                await self._finalize(plugin, context)
        if not action.terminal:
            await self._store.apply_events([abort_event(action, state, now)])
            crash_point("abort.after-event")
            log.info("action ended", run=id.run, action=id.action, attempt=action.attempt, phase="ABORTED")
        if FINALIZER in action.metadata.finalizers:
            await self._store.patch(
                id, MetadataPatch(remove_finalizers=(FINALIZER,)), resource_version=action.metadata.resource_version
            )
        return False

    async def _condition(self, action: TaskAction, state: EngineState, now: dt.datetime) -> bool:
        timeout: float | None = None
        problem = ""
        spec = run_definition_pb2.ConditionAction()
        try:
            spec.ParseFromString(action.spec.condition_spec)
        except DecodeError as error:
            problem = f"the condition cannot be decoded: {error}"
        if not action.spec.condition_spec:
            problem = "the condition has no specification"
        if spec.HasField("timeout"):
            seconds = spec.timeout.seconds + spec.timeout.nanos / 1e9
            timeout = seconds if seconds > 0 else None
        decision = decide_condition(action, state, timeout=timeout, problem=problem, now=now)
        return await self._persist(action, decision)
