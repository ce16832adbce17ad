"""Small adapters between parts that do not know each other: logs, secrets, contexts."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from wingbeat.control import LogLine, Vault
from wingbeat.control.errors import Missing
from wingbeat.database import RecordNotFound, Records
from wingbeat.engine import EngineState, task_facts
from wingbeat.execution import TaskExecutionContext, attempt_paths
from wingbeat.machine import follow_log, read_log, tail_log
from wingbeat.resources import ActionId, TaskAction
from wingbeat.resources.taskaction import ANNOTATION_RAW_DATA_PREFIX, ANNOTATION_RUN_START_TIME

BATCH = 200
"""Lines handed over at once."""
ENDED_POLL = 0.25
"""Seconds between two looks at whether a followed attempt has ended."""
NAMESPACE = "flyte"
"""The namespace that Flyte's executor keeps its objects in; part of what output paths are computed from."""


class LogFolder:
    """The log files of attempts, in a tree by identity."""

    def __init__(self, root: Path, records: Records) -> None:
        self._root = root
        self._records = records

    def path(self, id: ActionId, attempt: int) -> str:
        return str(self._root / id.org / id.project / id.domain / id.run / id.action / f"{attempt}.log")

    async def tail(self, path: str, count: int) -> list[str]:
        """The last lines of the process's own output."""
        lines = await asyncio.to_thread(tail_log, path, count)
        return [line.text for line in lines if line.originator == "user"]

    async def available(self, id: ActionId, attempt: int) -> bool:
        return Path(self.path(id, attempt)).exists()

    async def read(self, id: ActionId, attempt: int, *, follow: bool) -> AsyncIterator[LogLine]:
        """Every line, oldest first; with `follow` also those to come, until the attempt has ended."""

        async def ended() -> None:
            while follow and not await self._ended(id, attempt):  # noqa: ASYNC110 (a read of one row; no event fits)
                await asyncio.sleep(ENDED_POLL)

        async for line in follow_log(self.path(id, attempt), ended):
            yield LogLine(line.timestamp, line.originator, line.text, line.complete)

    async def lines(
        self, id: ActionId, attempt: int, *, follow: bool, last: int = 0
    ) -> AsyncIterator[Sequence[LogLine]]:
        """The same in batches; `last` begins that many lines before the end of what is there now."""
        if last:
            path = self.path(id, attempt)
            skip = max(0, await asyncio.to_thread(lambda: sum(1 for _ in read_log(path))) - last)
        else:
            skip = 0
        batch: list[LogLine] = []
        async for line in self.read(id, attempt, follow=follow):
            if skip:
                skip -= 1
                continue
            batch.append(line)
            if follow or len(batch) >= BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    async def _ended(self, id: ActionId, attempt: int) -> bool:
        try:
            record = await self._records.get(id)
        except RecordNotFound:
            return True
        return record.phase.terminal or record.attempts > attempt


class TaskSecrets:
    """Secrets as tasks see them: those of the project, then of the domain, then the global ones."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    async def value(self, id: ActionId, group: str, key: str) -> bytes | None:
        try:
            return await self._vault.resolve(id.org, id.project, id.domain, key)
        except Missing:
            return None


def context_builder(
    *, root: str, raw_data_prefix: str
) -> Callable[[TaskAction, EngineState, Any, dt.datetime], TaskExecutionContext]:
    """What makes a plugin's view of one attempt from an action. `root` bounds where outputs may go."""

    def build(action: TaskAction, state: EngineState, template: Any, now: dt.datetime) -> TaskExecutionContext:
        notes = action.metadata.annotations
        paths = attempt_paths(
            action.id,
            base=action.spec.run_output_base,
            namespace=NAMESPACE,
            attempt=action.attempt,
            raw_data_prefix=notes.get(ANNOTATION_RAW_DATA_PREFIX) or raw_data_prefix,
            root=root,
        )
        uri = action.spec.input_uri
        start = notes.get(ANNOTATION_RUN_START_TIME)
        return TaskExecutionContext(
            action=action,
            template=template,
            attempt=action.attempt,
            generation=state.generation,
            max_attempts=task_facts(action.spec.task_template).max_attempts,
            input_uri=uri if uri.endswith("/inputs.pb") else uri.rstrip("/") + "/inputs.pb",
            paths=paths,
            run_start_time=dt.datetime.fromisoformat(start) if start else dt.datetime.fromtimestamp(0, dt.UTC),
            environment=dict(action.spec.env_vars),
            state=state.plugin,
            now=now,
        )

    return build
