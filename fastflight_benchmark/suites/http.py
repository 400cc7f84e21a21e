"""Suite `http`: small cached reads of the gateway, and Arrow IPC over HTTP beside Flight.

For small reads, `wrk` with 50 connections requests `/devices`. For the table, one client reads the whole mock table of
190.7 MiB, over HTTP and over Flight from the same server.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import flight

from fastflight.app.local_cluster import free_ports
from fastflight.errors import TransportError
from fastflight_benchmark.engine import LESS, MIB, MORE, Bench, Figures, Measure, Suite, WrongPath
from fastflight_benchmark.peers.running import FREE_PORT, SERVER
from fastflight_benchmark.processes import finished, spawned

CONNECTIONS = 50
SMALL, TABLE = "small reads", "table"
GATEWAY, FLIGHT = "gateway", "flight"
# wrk may take this much longer than the load.
EXTRA_SECONDS = 30.0
RATE = re.compile(r"Requests/sec:\s+([\d.]+)")
P99 = re.compile(r"99%\s+([\d.]+)(us|ms|s)\b")
FAILED = re.compile(r"(Non-2xx or 3xx responses: \d+|Socket errors: .*)")
MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True, slots=True)
class Scope:
    """The seconds of each load by wrk, the rows of the table, and rounds in a run."""

    seconds: int
    rows: int
    rounds: int


FULL = Scope(seconds=5, rows=1_000_000, rounds=3)
QUICK = Scope(seconds=1, rows=100_000, rounds=1)


def run(bench: Bench) -> None:
    """Measure both works."""
    scope = bench.scope(FULL, QUICK)
    wrk = shutil.which("wrk")
    if wrk is None:
        bench.missing[SMALL] = "wrk is not installed (Debian: apt-get install wrk)"
    for number in bench.rounds():
        (port,) = free_ports(1)
        gateway = f"http://127.0.0.1:{port}"
        rounds = bench.rounds(scope.rounds, number)
        with spawned(SERVER, "--server", FREE_PORT, "--http", str(port)) as server:
            table = {
                GATEWAY: partial(over_http, gateway, scope.rows),
                FLIGHT: partial(over_flight, server.location, scope.rows),
            }
            bench.measure({"work": TABLE}, table, rounds, warm_up=True)
            if wrk is not None:
                small = partial(small_reads, wrk, f"{gateway}/devices", scope.seconds)
                bench.measure({"work": SMALL}, {GATEWAY: small}, rounds, warm_up=True)


def small_reads(wrk: str, url: str, seconds: int) -> Figures:
    """Return the figures of `wrk` for `url`. Raise `TransportError` if a request failed."""
    command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}", "--latency", url]
    text = finished(command, seconds + EXTRA_SECONDS).output
    if failed := FAILED.search(text):
        raise TransportError(f"wrk: {failed[1]}", where=url)
    rate, p99 = RATE.search(text), P99.search(text)
    if rate is None or p99 is None:
        raise TransportError("the output of wrk has no figures", where=url)
    return {"rate": float(rate[1]), "99_%": float(p99[1]) * MILLISECONDS[p99[2]]}


def over_http(url: str, rows: int) -> Figures:
    """Read the table as Arrow IPC with Python's `http.client`."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("POST", "/stream", _request(rows), {"content-type": "application/json"})
        response = connection.getresponse()
        if response.headers["fastflight-path"] != "async":
            raise WrongPath(f"answered on {response.headers['fastflight-path']!r}")
        return _rate(iter(pa.ipc.open_stream(response)), rows, began)
    except http.client.HTTPException as error:
        raise TransportError(f"{type(error).__name__}: {error}", where=url) from error
    finally:
        connection.close()


def over_flight(location: str, rows: int) -> Figures:
    """Read the same table over Flight."""
    began = time.perf_counter()
    with flight.connect(location) as client:
        reader = client.do_get(flight.Ticket(_request(rows)))
        return _rate((chunk.data for chunk in reader), rows, began)


def _request(rows: int) -> bytes:
    return json.dumps({"type": "mock", "rows_per_batch": 10_000, "total_rows": rows}).encode()


def _rate(batches: Iterator[pa.RecordBatch], rows: int, began: float) -> Figures:
    size = received = 0
    for batch in batches:
        size += batch.nbytes
        received += batch.num_rows
    seconds = time.perf_counter() - began
    if received != rows:
        raise TransportError(f"{received} rows arrived, expected {rows}")
    return {"throughput": size / MIB / seconds}


SUITE = Suite(
    name="http",
    title="HTTP: small reads of the gateway, and a table beside Flight",
    measures={
        "rate": Measure("1/s", MORE),
        "99 %": Measure("ms", LESS),
        "throughput": Measure("MiB/s", MORE),
    },
    ours=(GATEWAY,),
    references=(FLIGHT,),
    run=run,
)
