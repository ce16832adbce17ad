"""A fan-out in Dagster; prints what the steps of one run took. `peer_dagster.py inprocess|process N`."""

import json
import os
import sys

import dagster
from dagster import (
    DagsterInstance,
    DynamicOut,
    DynamicOutput,
    execute_job,
    in_process_executor,
    job,
    multiprocess_executor,
    op,
    reconstructable,
)

KIND, COUNT = sys.argv[1], int(sys.argv[2])


@op(out=DynamicOut(int), config_schema={"count": int})
def numbers(context):
    for i in range(context.op_config["count"]):
        yield DynamicOutput(i, mapping_key=str(i))


@op
def one(i: int) -> int:
    return i


@job(executor_def=in_process_executor)
def inprocess():
    numbers().map(one)


@job(executor_def=multiprocess_executor.configured({"max_concurrent": os.cpu_count() or 2}))
def process():
    numbers().map(one)


if __name__ == "__main__":
    with DagsterInstance.get() as instance:
        job_ = reconstructable(inprocess if KIND == "inprocess" else process)
        result = execute_job(job_, instance, run_config={"ops": {"numbers": {"config": {"count": COUNT}}}})
        assert result.success
        events = [entry for entry in instance.all_logs(result.run_id) if entry.dagster_event]
        stamps = [entry.timestamp for entry in events if (entry.dagster_event.step_key or "").startswith("one[")]
        print("RESULT " + json.dumps({"seconds": max(stamps) - min(stamps), "version": dagster.__version__}))
