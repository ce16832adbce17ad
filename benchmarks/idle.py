"""What a server costs that does nothing: memory, as the proportional share of all of its processes, and CPU."""

from __future__ import annotations

import time

from benchmarks.processes import cpu_seconds, name, pss
from benchmarks.serving import Server, folder
from benchmarks.table import Row


def look(server: Server, seconds: float) -> tuple[float, float, list[str]]:
    """MiB of memory and percent of a core of all processes, and a line about each."""
    pids = server.processes()
    before = {pid: cpu_seconds(pid) for pid in pids}
    begin = time.monotonic()
    time.sleep(seconds)
    taken = time.monotonic() - begin
    used = sum(cpu_seconds(pid) - before[pid] for pid in pids)
    lines = [f"{pss(pid) / 2**20:.0f} MiB: {name(pid)[:90]}" for pid in pids]
    return sum(pss(pid) for pid in pids) / 2**20, used / taken * 100, lines


def measure(*, quick: bool) -> tuple[list[Row], list[str]]:
    rounds, seconds = (1, 3.0) if quick else (3, 10.0)
    memory, cpu, base, without = [], [], [], []
    lines: list[str] = []
    for _ in range(rounds):
        with folder() as home, Server(home) as server:
            server.wait_zygote()
            time.sleep(2)
            total, share, lines = look(server, seconds)
            memory.append(total)
            cpu.append(share)
        # The same without the zygote: its Python cannot fork, and a spawning supervisor imports nothing.
        with folder() as home, Server(home, "--mode", "spawn") as server:
            time.sleep(4)
            total, share, _ = look(server, seconds)
            base.append(total)
            without.append(share)
    return [
        Row("memory, no preloaded SDK", "MiB", base, [], "", "<= 120"),
        Row("memory, one zygote", "MiB", memory, [], "", "<= 200"),
        Row("CPU, no preloaded SDK", "% of a core", without, [], "", "< 1"),
        Row("CPU, one zygote", "% of a core", cpu, [], "", "< 1"),
    ], lines
