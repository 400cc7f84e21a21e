"""The transfers of the suite `relay`. In each cell, the compared transfers follow each other directly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import psutil

from fastflight_benchmark.cores import cpu_seconds
from fastflight_benchmark.spawned import spawned
from fastflight_benchmark.suites.relay.client import RAW, Job
from fastflight_benchmark.suites.relay.content import MIB
from fastflight_benchmark.suites.relay.relays import LIBRARY, OURS, PLAIN
from fastflight_benchmark.worker import Worker

SEEDER = "fastflight_benchmark.suites.relay.seeder"
RELAYS = "fastflight_benchmark.suites.relay.relays"
CLIENT = "fastflight_benchmark.suites.relay.client"
CONTENDERS = (RAW, PLAIN, OURS, LIBRARY)
COLUMNS = ["size_mb", "chunk_kb", "read_kb", "contender", "run", "mbps", "frames", "mean_frame", "cpu", "error"]
KB = 1024


@dataclass(frozen=True, slots=True)
class Scope:
    """Sizes in MB, chunks of the seeder and reads of the relay in KB, and how often a run measures each."""

    sizes: Sequence[int]
    chunks: Sequence[int]
    reads: Sequence[int]
    rounds: int


def measured(runs: int, scope: Scope, step: Callable[[str], object]) -> Iterator[dict[str, Any]]:
    """Yield a row for each timed transfer. Each cell begins with one that is compared byte by byte and not timed."""
    with ExitStack() as stack:
        seeder = stack.enter_context(spawned(SEEDER)).location
        ports = {RAW: [seeder] * len(scope.reads)}
        relays: dict[str, psutil.Process] = {}
        for kind in (PLAIN, OURS, LIBRARY):
            reads = [str(read * KB) for read in scope.reads]
            relay = stack.enter_context(spawned(RELAYS, kind, *reads))
            ports[kind] = relay.location.split(",")
            relays[kind] = psutil.Process(relay.pid)
        client = stack.enter_context(Worker(CLIENT))
        for run in range(1, runs + 1):
            for size, chunk, (place, read) in product(scope.sizes, scope.chunks, enumerate(scope.reads)):
                step(f"{size} MB in chunks of {chunk} KB, reads of {read} KB")
                jobs = {
                    kind: Job(kind, ports[kind][place], seeder, size * MIB, chunk * KB, read * KB, whole=False)
                    for kind in CONTENDERS
                }
                cell = {"size_mb": size, "chunk_kb": chunk, "read_kb": read}
                for kind, job in jobs.items():
                    checked = client.ask(asdict(job) | {"whole": True, "size": min(job.size, 10 * MIB)})
                    if checked["error"]:
                        yield {**cell, "contender": kind, "run": 0, **_figures(job, checked)}
                for number in range((run - 1) * scope.rounds + 1, run * scope.rounds + 1):
                    for kind in CONTENDERS if number % 2 else reversed(CONTENDERS):
                        before = _used(relays.get(kind))
                        figures = _figures(jobs[kind], client.ask(asdict(jobs[kind])))
                        used = (_used(relays.get(kind)) - before) / (size / KB)
                        yield {**cell, "contender": kind, "run": number, **figures, "cpu": used}


def _figures(job: Job, outcome: dict[str, Any]) -> dict[str, Any]:
    if outcome["error"]:
        return {"error": outcome["error"]}
    frames = outcome["frames"]
    return {
        "mbps": job.size / MIB / outcome["seconds"],
        "frames": frames,
        "mean_frame": job.size / frames if frames else float("nan"),
        "error": "",
    }


def _used(process: psutil.Process | None) -> float:
    """Return the processor seconds that a relay has used; NaN without a relay."""
    return float("nan") if process is None else cpu_seconds(process)
