"""Suite `http`: small cached reads beside a plain FastAPI endpoint, and Arrow IPC over HTTP beside Flight.

For small reads, `wrk` with 50 connections requests `/devices` from the gateway, and the same content from FastAPI in a
process of its own. One client reads the whole mock table of 190.7 MiB, over HTTP and over Flight from the same server.
The compared servers take turns, in an order that is reversed with each run. A ratio is that of one pair.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import flight

from fastflight.app.nats_servers import free_ports
from fastflight.errors import DataError, TransportError
from fastflight_benchmark.engine import LESS, MORE, Bench, Measure, Suite
from fastflight_benchmark.peers.running import FREE_PORT, SERVER
from fastflight_benchmark.spawned import spawned
from fastflight_benchmark.table import MIB, WrongPath

PEER = "fastflight_benchmark.peers.plain_fastapi"
CONNECTIONS = 50
SMALL, TABLE = "small reads", "table"
GATEWAY, FASTAPI, FLIGHT = "gateway", "fastapi", "flight"

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


Figures = Mapping[str, float]


def run(bench: Bench) -> None:
    """Measure both works with both contenders."""
    scope = bench.scope(FULL, QUICK)
    wrk = shutil.which("wrk")
    if wrk is None:
        bench.missing[SMALL] = "wrk is not installed (Debian: apt-get install wrk)"
    for number in bench.rounds():
        (port,) = free_ports(1)
        with spawned(SERVER, "--server", FREE_PORT, "--http", str(port)) as server, spawned(PEER) as peer:
            gateway = f"http://127.0.0.1:{port}"
            refuse_other(f"{gateway}/devices", f"{peer.location}/devices")
            works: dict[str, dict[str, Callable[[], Figures]]] = {
                TABLE: {
                    GATEWAY: partial(over_http, gateway, scope.rows),
                    FLIGHT: partial(over_flight, server.location, scope.rows),
                }
            }
            if wrk is not None:
                works[SMALL] = {
                    GATEWAY: partial(small_reads, wrk, f"{gateway}/devices", scope.seconds),
                    FASTAPI: partial(small_reads, wrk, f"{peer.location}/devices", scope.seconds),
                }
            for work, contenders in works.items():
                cell = {"work": work}
                chosen = {name: measure for name, measure in contenders.items() if bench.wants(cell, name)}
                for round_ in range((number - 1) * scope.rounds, number * scope.rounds + 1):
                    for name in bench.order(list(chosen), round_):
                        with bench.attempt(cell, name), _translated():
                            figures = chosen[name]()
                            if round_ > (number - 1) * scope.rounds:  # the first one warms up
                                bench.add(cell, name, round_, **figures)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, http.client.HTTPException) as error:
        raise TransportError(f"{type(error).__name__}: {error}") from error


def refuse_other(url: str, peer: str) -> None:
    """Raise `DataError` unless both give the same answer: a shorter answer would be less work.

    Only the time of a device's last data (`last_data`) may differ.
    """
    with urllib.request.urlopen(url) as ours, urllib.request.urlopen(peer) as its:
        own, other = (json.load(answer, object_hook=_without_times) for answer in (ours, its))
    if own != other:
        raise DataError(f"the peer answers {other}, the gateway {own}", where=peer, hint="Its result is not saved")


def _without_times(device: dict[str, Any]) -> dict[str, Any]:
    return {**device, "last_data": True} if "last_data" in device else device


def small_reads(wrk: str, url: str, seconds: int) -> Figures:
    """Return the figures of `wrk` for `url`. Raise `TransportError` if a request failed."""
    command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}", "--latency", url]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds + 30).stdout
    return parsed(text, url)


def parsed(text: str, url: str) -> Figures:
    """Return the figures in the output of `wrk`."""
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
        size, received = _counted(iter(pa.ipc.open_stream(response)))
    finally:
        connection.close()
    return _rate(size, received, rows, began)


def over_flight(location: str, rows: int) -> Figures:
    """Read the same table over Flight."""
    began = time.perf_counter()
    with flight.connect(location) as client:
        reader = client.do_get(flight.Ticket(_request(rows)))
        size, received = _counted(chunk.data for chunk in reader)
    return _rate(size, received, rows, began)


def _request(rows: int) -> bytes:
    return json.dumps({"type": "mock", "rows_per_batch": 10_000, "total_rows": rows}).encode()


def _counted(batches: Iterator[pa.RecordBatch]) -> tuple[int, int]:
    size = rows = 0
    for batch in batches:
        size += batch.nbytes
        rows += batch.num_rows
    return size, rows


def _rate(size: int, received: int, rows: int, began: float) -> Figures:
    if received != rows:
        raise TransportError(f"{received} rows arrived, expected {rows}")
    return {"throughput": size / MIB / (time.perf_counter() - began)}


SUITE = Suite(
    name="http",
    title="HTTP: the gateway beside FastAPI, and beside Flight",
    measures={
        "rate": Measure("1/s", MORE),
        "99 %": Measure("ms", LESS),
        "throughput": Measure("MiB/s", MORE),
    },
    ours=(GATEWAY,),
    references=(FASTAPI, FLIGHT),
    run=run,
)
