"""Bulk data beside control: 4 x 256 MiB up and down through signed URLs, while a parent asks for children."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import http.client
import multiprocessing
import os
import time
import urllib.parse
from pathlib import Path
from typing import Any

from flyteidl2.actions.actions_service_pb2 import Action, EnqueueRequest
from flyteidl2.common.identifier_pb2 import ActionIdentifier
from flyteidl2.dataproxy.dataproxy_service_pb2 import CreateUploadLocationRequest, CreateUploadLocationResponse
from flyteidl2.task.task_definition_pb2 import TaskIdentifier

from benchmarks.processes import name, peak
from benchmarks.serving import Server, command_spec, folder, run_identifier
from benchmarks.table import Row, percentile
from wingbeat.storage import Signer

FILES = 4
PIECE = 1 << 20


def enqueue(server: Server, run: str, child: str) -> float:
    """Milliseconds until one more child was accepted. It asks for all CPUs, so it stays in the queue."""
    action = Action(
        action_id=ActionIdentifier(run=run_identifier(run), name=child),
        parent_action_name="a0",
        input_uri=f"{server.data}/data/runs/{run}/{child}/inputs.pb",
        run_output_base=f"{server.data}/data/runs/{run}",
    )
    action.task.spec.CopyFrom(command_spec("true", name="bench.child", cpus="64"))
    action.task.id.CopyFrom(
        TaskIdentifier(org="local", project="default", domain="development", name="bench.child", version="v1")
    )
    body = EnqueueRequest(action=action).SerializeToString()
    begin = time.perf_counter()
    server.call("flyteidl2.actions.ActionsService/Enqueue", body)
    return (time.perf_counter() - begin) * 1000


def locations(server: Server, digest: bytes, round: int) -> list[Any]:
    result = []
    for number in range(FILES):
        request = CreateUploadLocationRequest(
            project="default",
            domain="development",
            filename=f"bulk{number}",
            filename_root=f"round{round}",
            content_md5=digest,
        )
        answer = server.call("flyteidl2.dataproxy.DataProxyService/CreateUploadLocation", request.SerializeToString())
        result.append(CreateUploadLocationResponse.FromString(answer))
    return result


def put(url: str, size: int, piece: bytes, digest: bytes) -> None:
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=300)
    connection.putrequest("PUT", parts.path + (f"?{parts.query}" if parts.query else ""))
    connection.putheader("Content-Length", str(size))
    connection.putheader("Content-MD5", base64.b64encode(digest).decode())
    connection.endheaders()
    for _ in range(size // PIECE):
        connection.send(piece)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status not in (200, 201, 204):
        raise RuntimeError(f"PUT: {answer.status} {body[:300]!r}")


def get(url: str, size: int) -> None:
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=300)
    connection.request("GET", parts.path + (f"?{parts.query}" if parts.query else ""))
    answer = connection.getresponse()
    total = 0
    while data := answer.read(PIECE):
        total += len(data)
    if answer.status != 200 or total != size:
        raise RuntimeError(f"GET: {answer.status}, {total} of {size} bytes")


def side_by_side(calls: list[tuple[Any, ...]]) -> list[Any]:
    """Each call in a process of its own, so that no client waits for another one's interpreter."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=function, args=arguments) for function, *arguments in calls]
    for process in processes:
        process.start()
    return processes


def while_going(processes: list[Any], server: Server, run: str, prefix: str) -> tuple[float, list[float]]:
    """Ask for children every few milliseconds until the processes end; seconds, and the times in ms."""
    begin = time.perf_counter()
    times = []
    while any(process.is_alive() for process in processes):
        times.append(enqueue(server, run, f"{prefix}{len(times)}"))
        time.sleep(0.01)
    for process in processes:
        process.join()
        if process.exitcode != 0:
            raise RuntimeError("a transfer failed; see above")
    return time.perf_counter() - begin, times


def floor_put(path: Path, size: int, piece: bytes) -> None:
    """What any upload to a folder has to do: take a digest, write, make durable."""
    digest = hashlib.md5()
    with open(path, "wb") as file:
        for _ in range(size // PIECE):
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def measure(*, quick: bool) -> tuple[list[Row], list[str]]:
    rounds, size = (1, 32 << 20) if quick else (5, 256 << 20)
    piece = os.urandom(PIECE)
    whole = hashlib.md5()
    for _ in range(size // PIECE):
        whole.update(piece)
    digest = whole.digest()
    up, down, disk, quiet, busy_up, busy_down, memory, other = [], [], [], [], [], [], [], []
    total = FILES * size / 2**20
    with folder() as home:
        for round in range(rounds):
            # A new server for each round: the memory of a process is its peak.
            with Server(home) as server:
                server.wait_zygote()
                run = f"bulk{round}"
                server.create_run(run, command_spec("sleep", "600"))
                times = []
                for i in range(100):
                    times.append(enqueue(server, run, f"quiet{i}"))
                    time.sleep(0.01)
                quiet.append(percentile(times, 0.99))
                places = locations(server, digest, round)
                calls: list[tuple[Any, ...]] = [(put, place.signed_url, size, piece, digest) for place in places]
                seconds, times = while_going(side_by_side(calls), server, run, "up")
                up.append(total / seconds)
                busy_up.append(percentile(times, 0.99))
                base = places[0].signed_url.partition("/upload/")[0]
                signer = Signer.load(next((server.data / "transfer").glob("*.key")), base)
                hour = dt.timedelta(hours=1)
                calls = [(get, signer.download_url(place.native_url, hour), size) for place in places]
                seconds, times = while_going(side_by_side(calls), server, run, "down")
                down.append(total / seconds)
                busy_down.append(percentile(times, 0.99))
                memory.append(peak(server.pid) / 2**20)
                data = [pid for pid in server.processes() if pid != server.pid and "storage" in name(pid)]
                other.append(peak(data[0]) / 2**20)
                request = {"runId": {"org": "local", "project": "default", "domain": "development", "name": run}}
                server.ask("flyteidl2.workflow.RunService/AbortRun", {**request, "reason": "measured"})
                server.wait_end(run)
                for place in places:
                    Path(place.native_url).unlink()
            begin = time.perf_counter()
            for process in (written := side_by_side([(floor_put, home / f"f{i}", size, piece) for i in range(FILES)])):
                process.join()
            assert all(process.exitcode == 0 for process in written)
            disk.append(total / (time.perf_counter() - begin))
            for i in range(FILES):
                (home / f"f{i}").unlink()
    label = f"{FILES} x {size >> 20} MiB"
    return [
        Row(f"{label} up", "MiB/s", up, disk, "digest, write and fsync, no network"),
        Row(f"{label} down", "MiB/s", down),
        Row("Enqueue p99 while up", "ms", busy_up, quiet, "with no transfers", "< 100"),
        Row("Enqueue p99 while down", "ms", busy_down, quiet, "with no transfers", "< 100"),
        Row("peak memory, server", "MiB", memory, [], "", "< 200"),
        Row("peak memory, bulk data process", "MiB", other, [], "", "< 200"),
    ], []
