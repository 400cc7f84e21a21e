"""Opens large tables with many clients that stop reading, and measures the server's memory.

    python -m tests.campaigns.slow_readers --readers 200
    python -m tests.campaigns.slow_readers --readers 200 --mode sync

The server is a separate process with a table that makes new batches for each reader; the batches of the benchmark's
table share their memory. Each reader takes one batch and stops. When the server's memory no longer grows, another
client reads a table, and the figures are printed: memory before, at most, and for each reader, and how many readers
were refused. Not on Windows; loopback only; ends by itself.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, ClassVar

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.flight as flight
import typer

from fastflight.concurrency import Shards
from fastflight.runtime.admission import Limits
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server import FlightServer
from fastflight.service import Catalog, SourceFunctions
from fastflight.service.requests import Request
from fastflight.service.source import AsyncReading, Lot, Reading
from fastflight_benchmark import ending
from fastflight_benchmark.spawned import spawned_by

MB = 1_000_000
# 2 MB a batch, as large as a message.
COLUMNS = 50
ROWS = 10_000
SCHEMA = pa.schema([pa.field(f"c{number}", pa.int32()) for number in range(COLUMNS)])
# Memory has come to rest when it has grown by less than this in so long.
REST_BYTES, REST_SECONDS, LOOK_SECONDS = 2 * MB, 1.0, 0.05
# A server that never comes to rest is what this looks for: then the figures are those of this moment.
MOST_SECONDS = 60.0


def asked(mode: str, rows: int) -> flight.Ticket:
    """Return the ticket of a table with `rows` rows."""
    return flight.Ticket(json.dumps({"type": "fresh", "mode": mode, "rows": rows}))


class Fresh(Request):
    """A request for rows in new memory."""

    type: ClassVar[str] = "fresh"

    rows: int


def batch(number: int) -> pa.RecordBatch:
    """Return a batch in new memory."""
    values = np.full(ROWS, number, np.int32)
    return pa.RecordBatch.from_arrays([pa.array(values + column) for column in range(COLUMNS)], schema=SCHEMA)


def read(request: Fresh) -> Reading:
    """Return the table, to be iterated in the caller's thread."""
    return Reading(SCHEMA, ([batch(number)] for number in range(request.rows // ROWS)))


async def aread(request: Fresh) -> AsyncReading:
    """Return the table, to be iterated on an event loop."""

    async def lots() -> AsyncIterator[Lot]:
        for number in range(request.rows // ROWS):
            yield [batch(number)]

    return AsyncReading(SCHEMA, lots())


def serve(streams: int) -> None:
    """Run the server until SIGTERM or SIGINT."""
    shards = Shards().start()
    catalog = Catalog()
    catalog.add(SourceFunctions(Fresh, read=read, aread=aread))
    registry = StreamRegistry(Limits(streams=streams))
    server = FlightServer(catalog, shards=shards, location="grpc://127.0.0.1:0", registry=registry)
    print(f"listening on grpc://127.0.0.1:{server.port};", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.close(0)


def rested(process: psutil.Process, deadline: float) -> int:
    """Return the most memory it had until it stopped growing."""
    most = last = int(process.memory_info().rss)
    since = time.monotonic()
    while (now := time.monotonic()) < deadline and now - since < REST_SECONDS:
        time.sleep(LOOK_SECONDS)
        resident = int(process.memory_info().rss)
        most = max(most, resident)
        if resident - last > REST_BYTES:
            last, since = resident, now
    return most


def measure(location: str, pid: int, readers: int, mode: str) -> dict[str, Any]:
    """Open streams, stop reading them, and return the figures."""
    process = psutil.Process(pid)
    deadline = time.monotonic() + MOST_SECONDS
    with flight.connect(location) as good:
        good.do_get(asked(mode, ROWS)).read_all()  # what is made at the first use, and kept
        before = process.memory_info().rss
        opened, refused = [], 0
        clients = [flight.connect(location) for _ in range(readers)]
        for client in clients:
            try:
                reader = client.do_get(asked(mode, 1_000_000_000))
                reader.read_chunk()
                opened.append(reader)
            except flight.FlightUnavailableError:
                refused += 1
        most = rested(process, deadline)
        began = time.perf_counter()
        try:
            rows = good.do_get(asked("sync", 100 * ROWS)).read_all().num_rows
        except flight.FlightUnavailableError:
            rows = 0
        took = time.perf_counter() - began
        for reader in opened:
            reader.cancel()
        for client in clients:
            client.close()
    return {
        "mode": mode,
        "readers": len(opened),
        "refused": refused,
        "before_mb": before // MB,
        "most_mb": most // MB,
        "for_each_mb": round((most - before) / MB / max(1, len(opened)), 2),
        "good_client": {"rows": rows, "seconds": round(took, 2)},
    }


def main(
    readers: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Clients that stop reading.")] = 200,
    mode: Annotated[str, typer.Option(metavar="PATH", help="sync or async.")] = "async",
    server_only: Annotated[bool, typer.Option("--server-only", hidden=True)] = False,
) -> None:
    """Measure one server."""
    if server_only:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        serve(readers + 10)
        return
    ending.like_ctrl_c()
    options = ("--server-only", "--readers", str(readers))
    with spawned_by((sys.executable, "-m", "tests.campaigns.slow_readers", *options), "the server") as server:
        typer.echo(json.dumps(measure(server.location, server.pid, readers, mode)))


if __name__ == "__main__":
    typer.run(main)
