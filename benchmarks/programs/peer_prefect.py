"""A fan-out in Prefect; prints what the tasks of one flow took. `peer_prefect.py inprocess|process N`."""

import json
import os
import sys
import time

import prefect
from prefect import flow, task
from prefect.task_runners import ProcessPoolTaskRunner, ThreadPoolTaskRunner

KIND, COUNT = sys.argv[1], int(sys.argv[2])
RUNNER = ThreadPoolTaskRunner() if KIND == "inprocess" else ProcessPoolTaskRunner(max_workers=os.cpu_count())


@task
def one(i: int) -> int:
    return i


@flow(task_runner=RUNNER)
def wide(count: int) -> float:
    one.submit(0).result()  # the runner is up, and knows the task
    begin = time.monotonic()
    total = sum(future.result() for future in [one.submit(i) for i in range(count)])
    assert total == count * (count - 1) // 2
    return time.monotonic() - begin


if __name__ == "__main__":
    wide(2)
    print("RESULT " + json.dumps({"seconds": wide(COUNT), "version": prefect.__version__}))
