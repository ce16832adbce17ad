"""What the SDK reads back of a run, as one line of JSON: `readback.py CONFIG RUN [--wait]`.

Only the SDK's public objects are used, so this is what a user would see.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import flyte
import flyte.io
from flyte import remote


def plain(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except TypeError:
        return repr(value)


async def read(config: str, name: str, wait: bool) -> dict[str, Any]:
    await flyte.init_from_config.aio(config)
    run = await remote.Run.get.aio(name)
    if wait:
        await run.wait.aio(quiet=True)
    actions: dict[str, Any] = {}
    async for action in remote.Action.listall.aio(for_run_name=name):
        details = await action.details()
        pb = details.pb2
        kinds = {0: "", 1: "USER", 2: "SYSTEM"}
        actions[details.name] = {
            "name": details.task_name or pb.metadata.trace.name or pb.metadata.condition.name,
            "parent": pb.metadata.parent,
            "group": pb.metadata.group,
            "type": pb.metadata.action_type,
            "phase": details.phase.name,
            "attempts": details.attempts,
            "cache": pb.status.cache_status,
            "error": {
                "code": pb.error_info.code,
                "kind": kinds.get(pb.error_info.kind, "?"),
                "message": pb.error_info.message,
            }
            if pb.HasField("error_info")
            else None,
            "abort_reason": pb.abort_info.reason,
            "duration_ms": pb.status.duration_ms,
            "each": [
                {
                    "attempt": a.attempt,
                    "phase": a.phase,
                    "code": a.error_info.code,
                    "kind": kinds.get(a.error_info.kind, "?"),
                    "message": a.error_info.message,
                    "logs": a.logs_available,
                    "reasons": [e.message for e in a.cluster_events],
                }
                for a in pb.attempts
            ],
        }
    root = actions["a0"]
    outputs: Any = None
    if root["phase"] == "SUCCEEDED":
        outputs = [plain(v) for v in await run.outputs.aio()]
    return {"run": name, "phase": root["phase"], "outputs": outputs, "root": root, "actions": actions}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(read(sys.argv[1], sys.argv[2], "--wait" in sys.argv))))
