"""Tasks as processes on this machine: the plugin behind a laptop, a VM or an HPC node."""

from __future__ import annotations

import errno
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

import msgspec

from wingbeat.execution import Contract, TaskExecutionContext, render, task_environment
from wingbeat.execution.templates import per_retry_key
from wingbeat.machine import LaunchError, LaunchSpec, Machine, ProcessState, ProcessStatus
from wingbeat.plugins.process.classify import (
    NO_SPACE,
    SHUTDOWN,
    TAIL_LINES,
    Outcome,
    broke_with_supervisor,
    classify_exit,
    disk_full,
    read_error_document,
)
from wingbeat.plugins.process.quantities import parse_quantity
from wingbeat.plugins.process.traceback import SEARCHED_LINES, last_traceback
from wingbeat.plugins.protocol import PermanentPluginError, Transition
from wingbeat.resources import ActionId, ErrorInfo, ErrorKind, PluginPhase
from wingbeat.storage import ObjectMissing, OutsideStorage, Storage, task_variables

STATE_VERSION = 1
DEFAULT_CPUS = 0.5
"""What a task that asks for nothing is charged: most tasks wait as much as they compute."""
LOOK_AGAIN = 2.0
"""Seconds until a launch is tried again for which the computer lacked something."""
_NOT_NOW = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_CPU, _GPU, _MEMORY = 1, 2, 3  # flyteidl2.core.Resources.ResourceName


class Secrets(Protocol):
    async def value(self, id: ActionId, group: str, key: str) -> bytes | None:
        """The secret as seen from the action's project and domain; None where there is none."""


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    contract: Contract
    interpreter: Callable[[str], str]
    """Image reference -> path of the Python that runs its tasks."""
    log_path: Callable[[ActionId, int], str]
    """Identity and attempt -> path of the log file."""
    log_tail: Callable[[str, int], Awaitable[list[str]]]
    """Path and count -> the last lines, oldest first."""
    log_limit: int = 64 * 1024 * 1024
    storage_access: dict[str, str] = {}
    """Variables by which tasks reach the storage. They may hold keys, so no launch writes them down."""
    namespace: str = "flyte"
    grace: float = 5.0
    """Seconds between SIGTERM and SIGKILL."""


class ProcessPlugin:
    """One process (and all that it starts) for each attempt.

    The state is the token of the launch: persisted first, launched in the next round, looked up by it ever after.
    """

    id = "process"
    task_types: tuple[str, ...] = ("python", "python-task", "container", "actor", "sandboxed-python")
    state_version = STATE_VERSION

    def __init__(self, machine: Machine, storage: Storage, secrets: Secrets, settings: ProcessSettings) -> None:
        self._machine = machine
        self._storage = storage
        self._secrets = secrets
        self._settings = settings

    # -- the protocol ------------------------------------------------------------------------------------------------

    async def handle(self, context: TaskExecutionContext) -> Transition:
        token = _token_of(context.state)
        if not token:
            self._check(context)
            if context.generation:
                # Nothing of this attempt runs now. What an interrupted launch of it left is not this one's outcome.
                for uri in (context.paths.error, context.paths.outputs, context.paths.report):
                    await self._storage.delete_prefix(uri)
            return Transition(
                phase=PluginPhase.QUEUED,
                reason="accepted",
                state={"v": STATE_VERSION, "token": launch_token(context)},
                again=True,
            )
        status = await self._machine.observe(token)
        if status.state is ProcessState.UNKNOWN:
            try:
                await self._machine.launch(await self._spec(context, token))
            except LaunchError as error:
                raise PermanentPluginError(error.code, error.message) from error
            except OSError as error:
                if error.errno not in _NOT_NOW:
                    raise
                return Transition(
                    phase=PluginPhase.WAITING_FOR_RESOURCES,
                    reason=f"cannot be started now: {error.strerror}",
                    check_after=LOOK_AGAIN,
                )
            status = await self._machine.observe(token)
        match status.state:
            case ProcessState.WAITING:
                return Transition(phase=PluginPhase.WAITING_FOR_RESOURCES, reason=status.reason)
            case ProcessState.STARTING:
                return Transition(phase=PluginPhase.INITIALIZING, reason=status.reason or "starting the process")
            case ProcessState.RUNNING:
                return Transition(
                    phase=PluginPhase.RUNNING,
                    reason=status.reason or f"running as process {status.pid}",
                    occurred_at=status.started_at,
                    logs_available=True,
                )
            case ProcessState.UNKNOWN:
                return Transition(phase=PluginPhase.QUEUED, reason="launching", check_after=1.0)
        return await self._ended(context, status)

    async def abort(self, context: TaskExecutionContext) -> None:
        token = _token_of(context.state)
        if token:
            await self._machine.kill(token, why="abort", grace=self._settings.grace)

    async def finalize(self, context: TaskExecutionContext) -> None:
        token = _token_of(context.state)
        if token:
            await self._machine.forget(token)

    async def sweep(self, tokens: Iterable[str], live: Iterable[dict[str, Any] | None]) -> int:
        """End and forget those of `tokens` that are in none of the `live` states: their actions have ended or gone on
        to another launch, and the server that knew it died before it had cleaned up. Returns how many."""
        stale = {*tokens} - {_token_of(state) for state in live}
        for token in stale:
            await self._machine.kill(token, why="superseded", grace=self._settings.grace)
            await self._machine.forget(token)
        return len(stale)

    # -- launch ------------------------------------------------------------------------------------------------------

    def _check(self, context: TaskExecutionContext) -> None:
        template = context.template
        if not template.HasField("container"):
            raise PermanentPluginError(
                "BadTaskSpecification",
                f"action {context.id} has no container in its task template; only tasks with a command line run as "
                "processes",
            )
        if not [*template.container.command, *template.container.args]:
            raise PermanentPluginError("BadTaskSpecification", f"the task of action {context.id} has no command line")

    async def _spec(self, context: TaskExecutionContext, token: str) -> LaunchSpec:
        container = context.template.container
        id = context.id
        requests, limits = _resources(container.resources.requests), _resources(container.resources.limits)
        memory_limit = int(limits.get(_MEMORY, 0)) or int(requests.get(_MEMORY, 0))
        environment = task_environment(
            self._settings.contract,
            id,
            run_output_base=context.action.spec.run_output_base,
            attempt=context.attempt,
            run_variables=context.environment,
            task_variables={pair.key: pair.value for pair in container.env},
        )
        return LaunchSpec(
            token=token,
            action=id,
            attempt=context.attempt,
            interpreter=self._settings.interpreter(container.image),
            argv=tuple(render([*container.command, *container.args], self._variables(context))),
            env=environment,
            cpus=requests.get(_CPU, limits.get(_CPU, DEFAULT_CPUS)),
            memory=int(requests.get(_MEMORY, limits.get(_MEMORY, 0))),
            gpus=int(requests.get(_GPU, limits.get(_GPU, 0))),
            memory_limit=memory_limit,
            depth=context.depth,
            log_path=self._settings.log_path(id, context.attempt),
            log_limit=self._settings.log_limit,
            secret_env={
                **task_variables(self._settings.storage_access, environment),
                **await self._secret_environment(context),
            },
        )

    def _variables(self, context: TaskExecutionContext) -> dict[str, str]:
        paths, id = context.paths, context.id
        generated = f"{id.object_name}-{context.attempt - 1}"
        return {
            "input": context.input_uri,
            "inputprefix": context.input_uri.removesuffix("/inputs.pb"),
            "outputprefix": paths.prefix,
            "rawoutputdataprefix": paths.raw_data,
            "checkpointoutputprefix": paths.checkpoint,
            "prevcheckpointprefix": paths.previous_checkpoint or '""',
            "perretryuniquekey": per_retry_key(generated),
            "namespace": self._settings.namespace,
            "runname": id.run,
            "actionname": id.action,
            "runstarttime": context.run_start_time.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    async def _secret_environment(self, context: TaskExecutionContext) -> dict[str, str]:
        """Secrets the task names, as variables. A missing one ends the action with its name."""
        result: dict[str, str] = {}
        for secret in context.template.security_context.secrets:
            if secret.mount_requirement == type(secret).FILE:
                raise PermanentPluginError(
                    "SecretMountUnsupported",
                    f"the task asks for secret {secret.key!r} as a file; this server mounts secrets as environment "
                    "variables only: use flyte.Secret(key=..., as_env_var=...) and start it again: flyte run ...",
                )
            value = await self._secrets.value(context.id, secret.group, secret.key)
            if value is None:
                raise PermanentPluginError(
                    "SecretNotFound",
                    f"the task needs the secret {secret.key!r}, which does not exist in project "
                    f"{context.id.project}, domain {context.id.domain} or globally; "
                    f"create it: flyte create secret {secret.key}",
                )
            default = "_".join(filter(None, (secret.group, secret.key))).upper().replace("-", "_")
            try:
                result[secret.env_var or default] = value.decode()
            except UnicodeDecodeError as error:
                raise PermanentPluginError(
                    "SecretNotText", f"the secret {secret.key!r} is not text, so it cannot be a variable"
                ) from error
        return result

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _ended(self, context: TaskExecutionContext, status: ProcessStatus) -> Transition:
        outcome = await self._outcome(context, status)
        report = await self._uri_if_there(context.paths.report)
        if outcome.error is None:
            return Transition(
                phase=PluginPhase.SUCCESS,
                occurred_at=status.ended_at,
                output_uri=context.paths.prefix,
                report_uri=report,
                logs_available=True,
            )
        return Transition(
            phase=PluginPhase.RETRYABLE_FAILURE if outcome.retryable else PluginPhase.PERMANENT_FAILURE,
            occurred_at=status.ended_at,
            error=outcome.error,
            report_uri=report,
            logs_available=True,
        )

    async def _outcome(self, context: TaskExecutionContext, status: ProcessStatus) -> Outcome:
        path = self._settings.log_path(context.id, context.attempt)
        if status.killed == SHUTDOWN and not await self._uri_if_there(context.paths.outputs):
            # Whatever it says of its end, the end was ours.
            return classify_exit(status, memory_limit=0, tail=[])
        try:
            outcome = read_error_document(await self._storage.get(context.paths.error, limit=16 * 2**20))
        except (ObjectMissing, OutsideStorage):
            pass
        except ValueError as error:
            return Outcome(
                error=ErrorInfo(message=str(error), code="ErrorFileTooLarge", kind=ErrorKind.USER), retryable=True
            )
        else:
            if status.disk_full and outcome.error is not None and NO_SPACE in outcome.error.message:
                return disk_full()
            if broke_with_supervisor(status, outcome):
                tail = await self._settings.log_tail(path, TAIL_LINES)
                return classify_exit(status, memory_limit=0, tail=tail)
            if outcome.error is None or outcome.error.kind != ErrorKind.USER:
                return outcome
            found = last_traceback(await self._settings.log_tail(path, SEARCHED_LINES))
            return Outcome(error=msgspec.structs.replace(outcome.error, traceback=found), retryable=outcome.retryable)
        if await self._uri_if_there(context.paths.outputs):
            return Outcome()
        container = context.template.container
        limits = {**_resources(container.resources.requests), **_resources(container.resources.limits)}
        tail = await self._settings.log_tail(path, TAIL_LINES)
        return classify_exit(status, memory_limit=int(limits.get(_MEMORY, 0)), tail=tail)

    async def _uri_if_there(self, uri: str) -> str:
        try:
            await self._storage.head(uri)
        except (ObjectMissing, OutsideStorage):
            return ""  # a link of the task's that leads out of the storage is nothing that it has stored
        return uri


def launch_token(context: TaskExecutionContext) -> str:
    """The name of one launch: the same for the same (identity, uid, attempt, generation), and no other's."""
    id = context.id
    uid = context.action.metadata.uid.replace("-", "")[:12]
    name = f"{id.run[:32]}-{id.action[:32]}-{context.attempt}-{context.generation}-{uid}"
    return _UNSAFE.sub("_", name)


def _token_of(state: dict[str, Any] | None) -> str:
    return str((state or {}).get("token", ""))


def _resources(entries: Any) -> dict[int, float]:
    result: dict[int, float] = {}
    for entry in entries:
        try:
            result[entry.name] = parse_quantity(entry.value)
        except ValueError as error:
            raise PermanentPluginError("BadTaskSpecification", f"resources: {error}") from error
    return result
