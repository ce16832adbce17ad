"""This computer as a `Machine`: launches pass the budget and go to a zygote; what is on disk decides what is true."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import errno
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal
from weakref import WeakValueDictionary

import msgspec
import structlog

from wingbeat.crashpoints import crash_point
from wingbeat.machine import limits, logs
from wingbeat.machine.budget import Budget, BudgetSettings, size
from wingbeat.machine.facts import TOKEN, Exit, Facts, all_tokens
from wingbeat.machine.kill import Killer
from wingbeat.machine.launches import Launch, claim_of, environment, out_of_memory, status_of
from wingbeat.machine.memory import MemoryLimits
from wingbeat.machine.processes import Root, boot_id, is_alive
from wingbeat.machine.protocol import LaunchError, LaunchSpec, ProcessState, ProcessStatus
from wingbeat.machine.zygotes import PROMPT_SECONDS, Zygote, ZygoteError, Zygotes
from wingbeat.resources import ActionId

ROOM_BYTES = 8 << 20
"""Free on the disk at least, or nothing is started: a task that cannot write its outputs runs for nothing."""
WATCH_SECONDS = 0.5
"""Between two looks at what launches with a memory limit use."""
QUICK_SECONDS = 0.25
"""A start that takes no longer is told of as what it came to, not as a state of its own."""
EXIT_SECONDS = 10.0
"""How long the zygote has to tell of an exit after nothing of the tree is left."""
CALL_OFF_SECONDS = 1.0
"""Between two tries to write down that a launch is given up."""
STOP_SECONDS = 30.0
"""How long a stop waits for processes to end; what has not by then is left to the next start."""
_RUNNING = (ProcessState.STARTING, ProcessState.RUNNING)
_ENDED = (ProcessState.EXITED, ProcessState.LOST)


class LocalMachine:
    """See `Machine` in protocol.py for what the methods promise."""

    def __init__(
        self,
        state_dir: Path,
        runtime_dir: Path,
        *,
        marker: str,
        budget: BudgetSettings | None = None,
        mode: Literal["zygote", "spawn"] = "zygote",
        preload: list[str] | None = None,
        adapter: str = "",
        interpreter_env: dict[str, str] | None = None,
        memory_limits: limits.LimitsMode = "auto",
        orphan_seconds: float = 600.0,
        kept_work: int = 20,
        logger: Any = None,
    ) -> None:
        """`state_dir` holds a folder for each launch. `runtime_dir` holds the sockets, so its path must be short.
        `marker` is the id of the data folder: processes carry it, so that two folders never touch each other's.
        `preload` names modules to import in each zygote besides the SDK's; never user code, and nothing that starts
        threads. `adapter` is the path of a file whose `install` function changes the SDK in task processes (and that
        runs a command of the SDK when it is the script itself). `interpreter_env` is added to the environment of the
        zygotes. With no server for `orphan_seconds`, a zygote without children ends."""
        self._state_dir = state_dir
        self._runtime_dir = runtime_dir
        self._marker = marker
        self._budget = Budget(budget or BudgetSettings.of_this_computer())
        self._kept_work = kept_work
        self._log = logger or structlog.get_logger("wingbeat.machine")
        self._zygotes = Zygotes(
            runtime_dir,
            marker=marker,
            mode=mode,
            preload=preload or [],
            adapter=adapter,
            interpreter_env=interpreter_env or {},
            orphan_seconds=orphan_seconds,
            on_event=self._zygote_event,
            on_lost=self._zygote_lost,
            logger=self._log,
        )
        self._killer = Killer(marker)
        self._memory = MemoryLimits(memory_limits, marker, self._log)
        self._launches: dict[str, Launch] = {}
        self._by_action: dict[ActionId, set[str]] = defaultdict(set)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting: set[ActionId] = set()
        self._callbacks: list[Callable[[ActionId], None]] = []
        self._changed: set[ActionId] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._stopping = False
        self._no_room = False
        """Nothing was admitted at the last try, because the disk was full."""

    # - life -

    async def start(self) -> None:
        for folder in (self._state_dir, self._runtime_dir):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
        self._zygotes.path(sys.executable)  # says now if the runtime folder's path is too long
        self._memory.choose()
        listed: dict[str, tuple[Zygote, dict[str, Any]]] = {}
        for zygote in await self._zygotes.adopt():
            try:
                answer = await zygote.request("list")
            except ZygoteError:
                continue
            for child in answer["children"]:
                listed[child["token"]] = (zygote, child)
        orphans = []
        for token in await asyncio.to_thread(all_tokens, self._state_dir):
            launch = await self._recall(token, listed.get(token))
            if launch is not None:
                orphans.append(launch)
        if orphans:
            await asyncio.gather(*(self._end_orphan(launch) for launch in orphans))
        self._memory.sweep(set(self._launches))
        self._watcher = asyncio.create_task(self._watch_memory(), name="machine-memory")

    async def stop(self, *, keep: bool) -> None:
        self._stopping = True
        if not keep:
            running = [token for token, launch in self._launches.items() if launch.state not in _ENDED]
            ends = [asyncio.create_task(self.kill(token, why="shutdown")) for token in running]
            if ends:
                done, late = await asyncio.wait(ends, timeout=STOP_SECONDS)
                for task in late:
                    task.cancel()
                for failed in [task for task in done if task.exception() is not None]:
                    self._log.error("stop_failed", exc_info=failed.exception())
        for task in [*self._tasks, *([self._watcher] if self._watcher else [])]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._zygotes.close(end=not keep)
        await self._killer.close()
        if not keep:
            self._memory.close()

    async def warm(self, interpreter: str) -> dict[str, Any]:
        """Start the zygote of an environment ahead of its first launch, and return what it says of itself: `mode`
        (`fork` or `spawn`), `why` it spawns, `sdk` and `python` versions. Raises LaunchError."""
        return (await self._zygote(interpreter)).hello

    async def _recall(self, token: str, listed: tuple[Zygote, dict[str, Any]] | None) -> Launch | None:
        """Take up one launch of an earlier server. Returned are those whose tree must be ended first."""
        facts = Facts(self._state_dir, token)
        request, claim, ended, kill = facts.request(), facts.claim(), facts.exit(), facts.kill()
        if request is None:
            if listed is None and claim is None:
                facts.remove(keep_work=False, kept=0)
            return None
        launch = Launch(spec=request.spec, facts=facts, state=ProcessState.UNKNOWN)
        if kill is not None:
            launch.killed, launch.out_of_memory = ("" if kill.out_of_memory else kill.why), kill.out_of_memory
        if ended is None and listed is not None and listed[1]["exit"]:
            ended = msgspec.convert(listed[1]["exit"], Exit)  # the disk was full
        if listed is not None and ended is None:
            self._know(launch)
            zygote, child = listed
            launch.zygote = zygote
            self._runs(launch, child["pid"], child["start"])
            self._budget.adopt(claim_of(launch.spec))
            if kill is not None:
                self._spawn(self._end(launch, kill.grace))
            return None
        if ended is not None:
            self._know(launch)
            launch.pid, launch.start, launch.exit = ended.pid, ended.start, ended
            launch.zygote = listed[0] if listed else None
            return launch
        if claim is not None and claim.pid == 0:
            self._know(launch)
            self._set_ended(launch, ProcessState.EXITED, "it was called off before it started")
            return None
        if claim is not None or request.boot != boot_id():
            # With another boot the claim may have been lost with the power. Perhaps it ran: it must not run again.
            self._know(launch)
            if claim is not None:
                launch.pid, launch.start = claim.pid, claim.start
            return launch
        # Nothing was started. Only who asks for it again knows that it is still wanted, and has its secrets.
        return None

    async def _end_orphan(self, launch: Launch) -> None:
        if launch.exit is not None:
            await self._finish(launch, ProcessState.EXITED, "")
            return
        alive = is_alive(launch.pid, launch.start)
        why = "its supervisor is gone, so it was ended" if alive else "it is gone, and nobody saw how it ended"
        await self._finish(launch, ProcessState.LOST, why)

    async def tokens(self) -> list[str]:
        return sorted({*self._launches, *await asyncio.to_thread(all_tokens, self._state_dir)})

    # - launch -

    async def launch(self, spec: LaunchSpec) -> None:
        if not TOKEN.fullmatch(spec.token):
            raise LaunchError("InvalidToken", f"{spec.token!r} cannot be the name of a launch.")
        if not spec.argv:
            raise LaunchError("InvalidCommand", "The task has no command to run.")
        if (free := self._free()) < ROOM_BYTES:
            raise OSError(errno.ENOSPC, f"the disk is full, {size(free)} are free", str(self._state_dir))
        async with self._lock(spec.token):
            if spec.token not in self._launches:
                await self._accept(spec)

    def _free(self) -> int:
        """Bytes on the disk that this user may still write."""
        return shutil.disk_usage(self._state_dir).free

    def _lock(self, token: str) -> asyncio.Lock:
        lock = self._locks.get(token)
        if lock is None:
            lock = self._locks[token] = asyncio.Lock()
        return lock

    async def _accept(self, spec: LaunchSpec) -> None:
        if not os.access(spec.interpreter, os.X_OK) or not Path(spec.interpreter).is_file():
            raise LaunchError(
                "InterpreterNotFound",
                f"There is no Python to run it at {spec.interpreter}. Give one that has the flyte package installed.",
            )
        claim, note = self._budget.fit(claim_of(spec))
        zygote = await self._zygote(spec.interpreter)
        if Path(spec.argv[0]).name == "a0" and not zygote.hello.get("sdk"):
            raise LaunchError(
                "MissingPackage",
                f"The package flyte is not usable in {spec.interpreter}: "
                f"{zygote.hello.get('why') or 'it is not installed'}. "
                f"Install it: {spec.interpreter} -m pip install flyte",
            )
        facts = Facts(self._state_dir, spec.token)
        crash_point("launch.before-request")
        await asyncio.to_thread(facts.write_request, spec)
        crash_point("launch.after-request")
        if spec.token in self._launches:
            return  # discovered meanwhile, see `_discover`
        launch = Launch(spec=spec, facts=facts, state=ProcessState.WAITING, note=note)
        self._know(launch)
        self._budget.add(claim)
        self._admit()
        if launch.state is ProcessState.STARTING:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(launch.answered.wait(), QUICK_SECONDS)

    async def _zygote(self, interpreter: str) -> Zygote:
        try:
            return await self._zygotes.get(interpreter)
        except ZygoteError as error:
            raise LaunchError(
                "InterpreterNotUsable", f"No process can be started with {interpreter}: {error}"
            ) from error

    def _admit(self) -> None:
        if self._stopping:
            return
        self._no_room = self._free() < ROOM_BYTES
        if self._no_room:
            return
        for admission in self._budget.admit():
            launch = self._launches.get(admission.claim.token)
            if launch is None or launch.state is not ProcessState.WAITING:
                self._budget.remove(admission.claim.token)
                continue
            launch.over_budget = admission.over_budget
            launch.state = ProcessState.STARTING
            asyncio.get_running_loop().call_later(QUICK_SECONDS, self._still_starting, launch)
            self._spawn(self._begin(launch))

    def _still_starting(self, launch: Launch) -> None:
        if launch.state is ProcessState.STARTING and not self._stopping:
            self._changes(launch)

    async def _begin(self, launch: Launch) -> None:
        spec = launch.spec
        try:
            zygote = launch.zygote = await self._zygotes.get(spec.interpreter)
            crash_point("launch.before-fork")
            answer = await zygote.request(
                "launch",
                token=spec.token,
                folder=str(launch.facts.folder),
                argv=spec.argv,
                env=environment(launch, self._marker),
                interpreter=spec.interpreter,
                attempt=spec.attempt,
                log_path=spec.log_path,
                log_limit=spec.log_limit,
                cgroups=self._memory.enter(launch),
            )
            crash_point("launch.after-fork")
        except Exception as error:
            if not isinstance(error, (ZygoteError, OSError)):
                self._log.exception("launch_failed", token=spec.token)
            # It may have forked before it died. Without the claim that child will not go on; with it, it is ended.
            await self._finish(launch, ProcessState.LOST, str(error))
            return
        if launch.finishing:
            return  # its end was told before the answer
        if answer["state"] in ("started", "known"):
            self._runs(launch, answer["pid"], answer["start"])
            if answer.get("ready"):
                self._budget.ready(spec.token)
            if answer.get("exit"):
                launch.exit = msgspec.convert(answer["exit"], Exit)
                await self._finish(launch, ProcessState.EXITED, "")
                return
            if launch.note:
                await self._note(launch, launch.note)
            if launch.over_budget:
                await self._note(launch, self._budget.reason(spec.token))
        else:
            await self._refused(launch)

    async def _refused(self, launch: Launch) -> None:
        """Someone else holds the claim: we, having called it off, or an earlier child that is gone."""
        if launch.killed:
            await self._call_off(launch.facts)  # it was ended before it had made its claim, and nobody may make it now
        claim = launch.facts.claim()
        if claim is not None and claim.pid == 0:
            await self._finish(launch, ProcessState.EXITED, "it was called off before it started")
        elif claim is None:
            await self._finish(launch, ProcessState.LOST, "it could not be set up; its log may say why")
        else:
            launch.pid, launch.start = claim.pid, claim.start
            await self._finish(launch, ProcessState.LOST, "it had been started before, and nobody saw how it ended")

    # - what the zygotes tell -

    def _zygote_event(self, zygote: Zygote, message: dict[str, Any]) -> None:
        token = message["token"]
        launch = self._launches.get(token)
        event = message["event"]
        if launch is None:
            if event == "ready":
                self._spawn(self._discover(zygote, message))
            return
        if event == "ready":
            self._budget.ready(token)
            self._admit()
        elif event == "refused":
            self._spawn(self._refused(launch))
        elif event == "exit":
            launch.zygote = zygote
            launch.exit = msgspec.convert(message["exit"], Exit)
            launch.pid, launch.start = launch.exit.pid, launch.exit.start
            self._spawn(self._finish(launch, ProcessState.EXITED, ""))

    async def _discover(self, zygote: Zygote, message: dict[str, Any]) -> None:
        """A request that an earlier server sent, and that the zygote read only now."""
        async with self._lock(message["token"]):
            if message["token"] not in self._launches:
                await self._recall(message["token"], (zygote, {**message, "exit": None}))

    def _zygote_lost(self, zygote: Zygote) -> None:
        if self._stopping:
            return
        self._log.error("zygote_lost", socket=str(zygote.path), pid=zygote.hello.get("pid"))
        for launch in list(self._launches.values()):
            if launch.zygote is zygote and launch.state in _RUNNING:
                self._spawn(self._finish(launch, ProcessState.LOST, "its supervisor died, so it was ended"))

    def _runs(self, launch: Launch, pid: int, start: int) -> None:
        launch.pid, launch.start = pid, start
        claim = launch.facts.claim()
        at = claim.at if claim and claim.pid == pid else None
        launch.started_at = dt.datetime.fromtimestamp(at, dt.UTC) if at else dt.datetime.now(dt.UTC)
        self._memory.find_again(launch)
        self._change(launch, ProcessState.RUNNING)

    # - the end -

    async def _finish(self, launch: Launch, state: ProcessState, reason: str) -> None:
        """The first process has ended or is given up: end what is left of the tree, then say so. Only then, so that
        no second attempt runs beside remains of the first."""
        if launch.finishing or launch.state in _ENDED:
            return
        launch.finishing = True
        launch.disk_full = self._free() < ROOM_BYTES
        if state is ProcessState.LOST:
            await self._call_off(launch.facts)
        if state is ProcessState.LOST or launch.exit is None or launch.exit.strays or launch.ending:
            await self._killer.end(self._memory.root(launch), grace=0.0)
        if state is ProcessState.LOST:
            late = launch.facts.exit()
            if late is not None:
                state, reason, launch.exit = ProcessState.EXITED, "", late
        try:
            self._memory.leave(launch)
        except OSError as error:
            self._log.warning("cgroup_not_left", token=launch.spec.token, error=str(error))
        if launch.exit is not None:
            launch.started_at = dt.datetime.fromtimestamp(launch.exit.started_at, dt.UTC)
        if reason:
            await self._note(launch, reason)
        self._set_ended(launch, state, reason)
        self._admit()

    async def _call_off(self, facts: Facts) -> None:
        """As `Facts.call_off`, tried until the disk takes it: a launch that is given up must never start after all."""
        told = False
        while True:
            try:
                facts.call_off()
                return
            except OSError as error:
                if not told:
                    self._log.error("cannot_call_off", token=facts.token, error=str(error))
                told = True
            await asyncio.sleep(CALL_OFF_SECONDS)

    def _set_ended(self, launch: Launch, state: ProcessState, reason: str) -> None:
        self._budget.remove(launch.spec.token)
        # What this attempt waited for says nothing of the next.
        self._waiting.discard(launch.spec.action)
        launch.reason = reason
        launch.ended.set()
        self._change(launch, state)

    async def kill(self, token: str, *, why: str, grace: float = 5.0) -> None:
        async with self._lock(token):
            launch = self._launches.get(token)
            if launch is None:
                facts = Facts(self._state_dir, token) if TOKEN.fullmatch(token) else None
                if facts is not None and facts.folder.is_dir():
                    # Asked for before a restart and never again: nothing may start it now.
                    facts.write_kill(why)
                    await self._call_off(facts)
                    await self._killer.end(Root(token=token), grace=grace)
                return
        if launch.state in _ENDED:
            return
        if not launch.killed:
            launch.killed = why
            await asyncio.to_thread(launch.facts.write_kill, why, grace=grace)
        if launch.state is ProcessState.WAITING:
            await self._call_off(launch.facts)
            self._set_ended(launch, ProcessState.EXITED, "it was called off before it started")
            self._admit()
            return
        await self._note(launch, f"ending it: {why}")
        await self._end(launch, grace)

    async def _end(self, launch: Launch, grace: float) -> None:
        launch.ending = True
        if launch.state is ProcessState.STARTING:
            # Either the child has made its claim, or it never will. Which of these, the zygote is about to say.
            await self._call_off(launch.facts)
            with contextlib.suppress(TimeoutError):
                # A server that stops waits for no zygote that is stuck.
                await asyncio.wait_for(launch.answered.wait(), PROMPT_SECONDS if self._stopping else None)
        await self._killer.end(self._memory.root(launch), grace=grace)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(launch.ended.wait(), EXIT_SECONDS)
        if launch.state not in _ENDED:
            await self._finish(launch, ProcessState.LOST, "it was ended, and its supervisor did not say how")
        await launch.ended.wait()

    async def forget(self, token: str, *, keep_work: bool = False) -> None:
        launch = self._launches.get(token)
        if launch is not None and launch.state not in _ENDED:
            raise RuntimeError(f"{token} has not ended ({launch.state}), so it cannot be forgotten")
        if launch is not None:
            del self._launches[token]
            self._by_action[launch.spec.action].discard(token)
            if not self._by_action[launch.spec.action]:
                del self._by_action[launch.spec.action]
            if launch.zygote is not None and not launch.zygote.lost:
                with contextlib.suppress(ZygoteError):
                    await launch.zygote.request("forget", tokens=[token])
        if TOKEN.fullmatch(token):
            facts = Facts(self._state_dir, token)
            await asyncio.to_thread(facts.remove, keep_work=keep_work, kept=self._kept_work)

    # - memory -

    async def _watch_memory(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if self._no_room:
                self._admit()
            running = [x for x in self._launches.values() if x.state is ProcessState.RUNNING and not x.ending]
            try:
                over = await self._memory.look(running)
            except OSError as error:
                self._log.warning("memory_watch_failed", error=str(error))
                continue
            for launch in over:
                if launch.state is ProcessState.RUNNING and not launch.ending:
                    self._spawn(self._end_out_of_memory(launch))

    async def _end_out_of_memory(self, launch: Launch) -> None:
        launch.ending = launch.out_of_memory = True
        launch.facts.write_kill("out of memory", out_of_memory=True)
        await self._note(launch, out_of_memory(launch.spec))
        await self._end(launch, 0.0)

    # - looking -

    async def observe(self, token: str) -> ProcessStatus:
        launch = self._launches.get(token)
        if launch is None:
            return ProcessStatus(state=ProcessState.UNKNOWN)
        reason = launch.reason
        if launch.state is ProcessState.WAITING or (launch.over_budget and launch.state in _RUNNING):
            reason = self._budget.reason(token)
        if launch.note:
            reason = f"{reason}; {launch.note}" if reason else launch.note
        return status_of(launch, reason)

    def set_waiting(self, action: ActionId, waiting: bool) -> None:
        if waiting:
            self._waiting.add(action)
        else:
            self._waiting.discard(action)
        for token in self._by_action.get(action, ()):
            self._budget.set_waiting(token, waiting)
        if waiting:
            self._admit()

    def on_change(self, callback: Callable[[ActionId], None]) -> None:
        self._callbacks.append(callback)

    async def wait_ended(self, token: str) -> ProcessStatus:
        """Wait until a launch has ended, and return its status; at once for one that is unknown."""
        launch = self._launches.get(token)
        if launch is not None:
            await launch.ended.wait()
        return await self.observe(token)

    # - helpers -

    def _know(self, launch: Launch) -> None:
        self._launches[launch.spec.token] = launch
        self._by_action[launch.spec.action].add(launch.spec.token)

    def _change(self, launch: Launch, state: ProcessState) -> None:
        if state is launch.state:
            return
        launch.state = state
        if state not in (ProcessState.WAITING, ProcessState.STARTING):
            launch.answered.set()
        if state in _RUNNING and launch.spec.action in self._waiting:
            self._budget.set_waiting(launch.spec.token, True)
        self._changes(launch)

    def _changes(self, launch: Launch) -> None:
        """Have those told who asked for changes."""
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._tell)
        self._changed.add(launch.spec.action)

    def _tell(self) -> None:
        changed, self._changed = self._changed, set()
        for action in changed:
            for callback in self._callbacks:
                try:
                    callback(action)
                except Exception:
                    self._log.exception("on_change_failed", action=str(action))

    async def _note(self, launch: Launch, text: str) -> None:
        """A line of ours in the log of the launch, by its zygote while that writes there, else by us."""
        written = False
        if launch.zygote is not None and not launch.zygote.lost:
            with contextlib.suppress(ZygoteError):
                answer = await launch.zygote.request("note", timeout=PROMPT_SECONDS, token=launch.spec.token, text=text)
                written = answer["written"]
        if not written:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(logs.append_note, launch.spec.log_path, text)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._log.error("machine_task_failed", exc_info=task.exception())
