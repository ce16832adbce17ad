"""Environment variables of the contract between a back end and the SDK's runtime (`a0`).

What each one means: the SDK's `flyte._bin.runtime` and `flyte._initialize.init_in_cluster` read them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wingbeat.resources import ActionId

LOOPBACK = "127.0.0.1,localhost,::1"


class Contract(msgspec.Struct, frozen=True):
    """What is the same for all tasks of one server."""

    endpoint: str
    """The URL under which tasks reach this server."""
    max_enqueues_per_second: int = 100_000
    """The SDK limits itself to 100 enqueues a second unless told otherwise (`_F_MAX_QPS`)."""
    extra: dict[str, str] = {}
    """Further variables; they are written down with each launch, so no secrets."""


def task_environment(
    contract: Contract,
    id: ActionId,
    *,
    run_output_base: str,
    attempt: int,
    run_variables: Mapping[str, str],
    task_variables: Mapping[str, str],
) -> dict[str, str]:
    """The variables of one attempt. Reserved ones win over those of the run, which win over the task's own."""
    env = {
        "PYTHONUNBUFFERED": "1",
        "FSSPEC_FILE": '{"auto_mkdir": true}',
        "FSSPEC_LOCAL": '{"auto_mkdir": true}',
        "_F_MAX_QPS": str(contract.max_enqueues_per_second),
        **contract.extra,
        **task_variables,
        **run_variables,
    }
    for name in ("NO_PROXY", "no_proxy"):
        env[name] = ",".join(filter(None, (env.get(name, ""), LOOPBACK)))
    env.update(
        {
            "_U_EP_OVERRIDE": contract.endpoint,
            "_U_INSECURE": "true",
            "_U_ORG_NAME": id.org,
            "_U_RUN_BASE": run_output_base,
            "_U_USE_ACTIONS": "1",
            "FLYTE_INTERNAL_EXECUTION_PROJECT": id.project,
            "FLYTE_INTERNAL_EXECUTION_DOMAIN": id.domain,
            "FLYTE_INTERNAL_EXECUTION_ID": id.run,
            "FLYTE_ATTEMPT_NUMBER": str(attempt - 1),
            "RUN_NAME": id.run,
            "ACTION_NAME": id.action,
        }
    )
    return env
