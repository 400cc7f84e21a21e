"""Suite `flight`: sync compared with async, and both with peers, over the mock table; and the memory of a large file.

The servers are fastflight on its sync and on its async path, pyarrow's server alone (`bare`), and PyPI's `fastflight`
on both of its paths. Each run is a whole sweep with new processes and connections, because two processes that do the
same work can differ in speed for as long as they live. `limit` is the source's own pace for all readers, or what bare
pyarrow reached without a delay, if that is less.

For the memory, a small and a large CSV file on a simulated board with a fast line are read, each by a new server,
because memory that the allocator kept would hide the need of the next read. The memory for the large file must not be
in proportion to its size.
"""

from __future__ import annotations

import hashlib
import itertools
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import psutil

from fastflight.client import FastFlightClient
from fastflight.errors import DataError
from fastflight_benchmark.contenders import BARE, CONTENDERS, MODES, PEERS, SERVERS, Mode
from fastflight_benchmark.engine import LESS, MIB, MORE, Bench, Contender, Figures, Measure, Suite
from fastflight_benchmark.loading.pool import Loaders
from fastflight_benchmark.mock import Mock
from fastflight_benchmark.peers.running import FREE_PORT, SERVER, named_server, prepared
from fastflight_benchmark.processes import Spawned, spawned
from fastflight_benchmark.result import Label
from fastflight_benchmark.table import ceiling_mbps, check

LIMIT = "limit"
# How often a run reads without delay. Such a read takes a fraction of a second, and the ratio of a single pair is
# between 0.5 and 1.5. One reader reads the whole table; several readers together read two tables.
ROUNDS_ALONE, ROUNDS_TOGETHER, TABLES_TOGETHER = 3, 2, 2
# The most batches of a table. A million rows in batches of 40 would take the slowest peer five seconds.
MOST_BATCHES = 5_000
# Other columns than the default are read only in batches of at least this many rows: with small batches, the columns
# hardly matter.
LEAST_VARIANT_ROWS = 100
# With a delay, up to this many readers read the whole table each. More readers share this many tables.
MOST_WHOLE = 10
# Batches per reader in the warm-up of a cell, which opens connections and creates the source's batch.
WARM_UP_BATCHES = 5
# Bytes of the simulated board's file system, and of the file whose reading loads all code.
CAPACITY, TINY = 256 * MIB, 50_000
# The interval of the samples of memory. Making a batch takes longer.
SAMPLE_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Scope:
    """Rows of the tables with other columns than the default's, rounds, seconds of a source, and bytes of files."""

    simple: int
    complex: int
    rounds_alone: int
    # The most seconds that the source takes for a table.
    paced_seconds: float
    files: tuple[int, ...]


# Each variant has at least 150 MiB: a read of a few milliseconds would only measure its first batch.
FULL = Scope(10_000_000, 4_000_000, ROUNDS_ALONE, 1.0, (1_000_000, 100_000_000))
QUICK = Scope(1_000_000, 400_000, 2, 0.3, (1_000_000, 4_000_000))
# With a delay, peers take part in these cells: rows in a batch, and clients.
PEER_CELLS = ((40, 1), (1_000, 1), (1_000, 10), (10_000, 1), (10_000, 10))


@dataclass(frozen=True, slots=True)
class Step:
    """One cell in a run: what each of `clients` readers requests, from which servers, and in which rounds."""

    request: Mock
    clients: int
    servers: Sequence[str]
    rounds: range

    @property
    def cell(self) -> Mapping[str, Label]:
        return {
            "variant": self.request.variant,
            "rows": self.request.rows_per_batch,
            "clients": self.clients,
            "delay": round(self.request.delay_per_row * 1e6),
        }


def run(bench: Bench) -> None:
    """Measure the sweep of the command line, and the memory."""
    scope = bench.scope(FULL, QUICK)
    plans = [list(plan(bench.facts["sweep"], scope, bench.facts["own_sizes"], run_)) for run_ in bench.rounds()]
    servers = prepared({name for step in plans[0] for name in step.servers if bench.wants(step.cell, name)}, bench.say)
    bench.missing.update(servers.missing)
    named = named_server(bench.server, bench.say)
    for number, steps in enumerate(plans, 1):
        with servers.running(named) as served, Loaders() as loaders:
            bench.say(f"run {number}: {', '.join(f'{name} at {one.location}' for name, one in served.items())}")
            for step in steps:
                _read(bench, step, served, loaders)
    for step in plans[0]:
        ceiling = step.clients * ceiling_mbps(step.request)
        bare = bench.known({**step.cell, "delay": 0}, BARE, "throughput")
        limit = min(ceiling, median(bare) if bare else ceiling)
        if step.request.variant == "default" and limit != float("inf") and bench.wants(step.cell, LIMIT):
            bench.add(step.cell, LIMIT, 1, throughput=limit)
    _memory(bench, scope.files)


def plan(sweep: Mapping[str, Any], scope: Scope, own_sizes: bool, run_: int) -> Iterator[Step]:
    """Yield the steps of a run. With sizes of the user, only the default columns are read, and peers read all cells."""
    for rows, clients, delay in itertools.product(sweep["rows"], sweep["clients"], sweep["delays"]):
        whole = Mock(rows_per_batch=rows, total_rows=sweep["total_rows"])
        if delay:
            seconds = delay / 1e6
            paced = max(1, min(sweep["total_rows"], round(scope.paced_seconds / seconds)))
            request = whole.model_copy(update={"delay_per_row": seconds, "total_rows": paced})
            with_peers = own_sizes or (rows, clients) in PEER_CELLS
            yield Step(shared(request, clients), clients, SERVERS if with_peers else MODES, range(run_, run_ + 1))
            continue
        each = scope.rounds_alone if clients == 1 else ROUNDS_TOGETHER
        rounds = range((run_ - 1) * each + 1, run_ * each + 1)
        yield Step(shared(whole, clients), clients, SERVERS, rounds)
        if clients == 1 and rows >= LEAST_VARIANT_ROWS and not own_sizes:
            for variant, total in (("simple", scope.simple), ("complex", scope.complex)):
                request = whole.model_copy(update={"variant": variant, "total_rows": total})
                yield Step(shared(request, 1), 1, (BARE, *MODES), rounds)


def shared(request: Mock, readers: int) -> Mock:
    """Return the request of one of `readers` readers. They share large tables."""
    rows = min(request.total_rows, MOST_BATCHES * request.rows_per_batch)
    if request.delay_per_row:
        rows = rows * MOST_WHOLE // max(readers, MOST_WHOLE)
    elif readers > 1:
        rows = min(rows, rows * TABLES_TOGETHER // readers)
    whole_batches = rows - rows % request.rows_per_batch
    return request.model_copy(update={"total_rows": whole_batches or max(rows, 1)})


def _read(bench: Bench, step: Step, served: Mapping[str, Spawned], loaders: Loaders) -> None:
    """Read a cell from all its servers, after a short read of each."""
    short = min(step.request.total_rows, WARM_UP_BATCHES * step.request.rows_per_batch)
    for name in step.servers:
        if bench.wants(step.cell, name):
            ticket = CONTENDERS[name].ticket(step.request.model_copy(update={"total_rows": short}))
            loaders.read(served[name].location, ticket, step.clients)
    contenders = {name: partial(measured, step, name, served[name], loaders) for name in step.servers if name in served}
    bench.measure(step.cell, contenders, step.rounds)


def measured(step: Step, name: str, server: Spawned, loaders: Loaders) -> Figures:
    """Read from one server. `DataError` if an answer is wrong."""
    before = server.cpu_seconds()
    burst = loaders.read(server.location, CONTENDERS[name].ticket(step.request), step.clients)
    server_cpu_seconds = server.cpu_seconds() - before
    answers = [one.correct for one in burst.outcomes]
    for answer in answers:
        check(step.request, answer, name)
    gib = sum(answer.bytes for answer in answers) / MIB / 1024
    return {
        "throughput": burst.throughput_mbps,
        "latency": median(one.latency_seconds for one in burst.outcomes),
        "first_row": 1e3 * median(one.first_batch_seconds for one in burst.outcomes),
        "messages": median(answer.messages for answer in answers),
        "server_CPU": server_cpu_seconds / gib,
        "readers'_cores": burst.cpu_seconds / burst.seconds,
    }


def _memory(bench: Bench, sizes: Sequence[int]) -> None:
    """Measure how much more memory a server holds at most while it reads a whole file than before."""
    with tempfile.TemporaryDirectory(prefix="fastflight-benchmark-") as folder:
        files = {size: _make(Path(folder), size) for size in (TINY, *sizes)}
        for round_, size in itertools.product(bench.rounds(), sizes):
            contenders: Mapping[str, Contender] = {
                mode: partial(_held, Path(folder), files, size, mode) for mode in MODES
            }
            bench.measure({"file_MB": size / 1e6}, contenders, [round_])


def _held(folder: Path, files: Mapping[int, tuple[int, str]], size: int, mode: Mode) -> Figures:
    url = f"sim:?files={quote(str(folder))}&capacity={CAPACITY}"
    with (
        spawned(SERVER, "--server", FREE_PORT, "--device", f"big={url}") as server,
        FastFlightClient(server.location) as client,
    ):
        process, ended = psutil.Process(server.pid), threading.Event()
        peak = before = 0
        for each in (TINY, size):
            before = peak = process.memory_info().rss

            def sample() -> None:
                nonlocal peak
                while not ended.wait(SAMPLE_SECONDS):
                    peak = max(peak, process.memory_info().rss)

            watch = threading.Thread(target=sample, name="memory-watch")
            watch.start()
            try:
                stream = client.read("big", f"/{each}.csv", mode=mode)
                rows, digest = sum(batch.num_rows for batch in stream), stream.summary.get("sha256")
            finally:
                ended.set()
                watch.join()
                ended.clear()
            if (rows, digest, stream.path) != (*files[each], mode):
                raise DataError(f"{rows} rows arrived by {stream.path}, expected {files[each][0]} by {mode}")
    return {"memory": (peak - before) / MIB}


def _make(folder: Path, size: int) -> tuple[int, str]:
    """Make a CSV file of about `size` bytes, the readings of a logger. Return its rows and its sha256."""
    lines = [
        f"{n},{18 + n % 97 / 10:.1f},{40 + n % 31},{101_300 + n % 53},ok\n".encode() for n in range(10_000, 11_000)
    ]
    block = b"".join(lines)
    content = b"n,temperature,humidity,pressure,state\n" + block * max(1, size // len(block))
    (folder / f"{size}.csv").write_bytes(content)
    return len(lines) * max(1, size // len(block)), hashlib.sha256(content).hexdigest()


SUITE = Suite(
    name="flight",
    title="Reading the table; limit: the source's pace, or bare pyarrow. Memory: what the server holds above its start",
    measures={
        "throughput": Measure("MiB/s", MORE),
        "latency": Measure("s", LESS),
        "first row": Measure("ms"),
        "messages": Measure(""),
        "server CPU": Measure("s/GiB", LESS),
        "readers' cores": Measure(""),
        "memory": Measure("MiB", LESS),
    },
    ours=MODES,
    references=PEERS,
    run=run,
)
