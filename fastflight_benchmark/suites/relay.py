"""Suite `relay`: TCP streams through the gateway's WebSocket, beside other relays and beside no relay.

A seeder sends content in chunks, and a client reads all of it: directly (`raw`), through a plain TCP relay, through the
gateway's relay, and through a relay on the `websockets` library. All are processes of their own. Each cell begins with
a transfer that is compared byte by byte and not timed. In the others the bytes are counted to the last one, and the
first and last bytes of each piece are compared.
"""

from __future__ import annotations

import importlib.metadata
import itertools
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from fastflight.errors import DataError
from fastflight_benchmark.cores import cpu_seconds
from fastflight_benchmark.engine import LESS, MORE, Bench, Measure, Suite
from fastflight_benchmark.loading.relay_client import RAW, Job
from fastflight_benchmark.peers.relays import LIBRARY, OURS, PLAIN
from fastflight_benchmark.relay_content import MIB
from fastflight_benchmark.result import Label
from fastflight_benchmark.spawned import spawned
from fastflight_benchmark.worker import Worker

SEEDER = "fastflight_benchmark.peers.seeder"
RELAYS = "fastflight_benchmark.peers.relays"
CLIENT = "fastflight_benchmark.loading.relay_client"
CONTENDERS = (RAW, PLAIN, OURS, LIBRARY)
KB = 1024
# Bytes of the transfer that is compared completely.
COMPARED_BYTES = 10 * MIB


@dataclass(frozen=True, slots=True)
class Scope:
    """Sizes in MiB, chunks of the seeder and reads of the relay in KiB, and rounds in a run."""

    sizes: tuple[int, ...]
    chunks: tuple[int, ...]
    reads: tuple[int, ...]
    rounds: int


FULL = Scope((10, 50, 100), (16, 64), (16, 32, 64, 128, 256), 3)
QUICK = Scope((10,), (64,), (16, 128), 1)


def run(bench: Bench) -> None:
    """Measure every size with every chunk and read."""
    scope = bench.scope(FULL, QUICK)
    bench.facts["versions"] = {"websockets": importlib.metadata.version("websockets")}
    with ExitStack() as stack:
        seeder = stack.enter_context(spawned(SEEDER)).location
        ports = {RAW: [seeder] * len(scope.reads)}
        relays: dict[str, psutil.Process] = {}
        for kind in (PLAIN, OURS, LIBRARY):
            relay = stack.enter_context(spawned(RELAYS, kind, *(str(read * KB) for read in scope.reads)))
            ports[kind] = relay.location.split(",")
            relays[kind] = psutil.Process(relay.pid)
        client = stack.enter_context(Worker(CLIENT))
        for number in bench.rounds():
            for size, chunk, (place, read) in itertools.product(scope.sizes, scope.chunks, enumerate(scope.reads)):
                cell: dict[str, Label] = {"MiB": size, "chunk_KiB": chunk, "read_KiB": read}
                jobs = {
                    kind: Job(kind, ports[kind][place], seeder, size * MIB, chunk * KB, read * KB, whole=False)
                    for kind in CONTENDERS
                    if bench.wants(cell, kind)
                }
                for kind, job in jobs.items():
                    with bench.attempt(cell, kind):
                        _transferred(client, asdict(job) | {"whole": True, "size": min(job.size, COMPARED_BYTES)})
                for round_ in range((number - 1) * scope.rounds + 1, number * scope.rounds + 1):
                    for kind in bench.order(list(jobs), round_):
                        before = cpu_seconds(relays[kind]) if kind in relays else 0.0
                        with bench.attempt(cell, kind):
                            seconds = _transferred(client, asdict(jobs[kind]))
                            bench.add(cell, kind, round_, throughput=size / seconds)
                            if kind in relays:
                                used = cpu_seconds(relays[kind]) - before
                                bench.add(cell, kind, round_, CPU=used / (size / KB))


def _transferred(client: Worker, job: dict[str, Any]) -> float:
    """Return the seconds of a transfer. `DataError` if it failed, or wrong bytes arrived."""
    outcome = client.ask(job)
    if outcome["error"]:
        raise DataError(outcome["error"], where=f"a transfer through {job['kind']}")
    return float(outcome["seconds"])


SUITE = Suite(
    name="relay",
    title="TCP streams through a WebSocket; CPU: the relay's",
    measures={"throughput": Measure("MiB/s", MORE), "CPU": Measure("s/GiB", LESS)},
    ours=(OURS,),
    references=(PLAIN, RAW),
    run=run,
)
