"""Suite `http`: small cached reads beside a plain FastAPI endpoint, and Arrow IPC over HTTP beside Flight.

For small reads, `wrk` with 50 connections requests `/devices` from the gateway, and the same content from FastAPI in a
process of its own. One client reads the whole mock table of 190.7 MiB, over HTTP and over Flight from the same server.
The compared servers take turns, in an order that is reversed with each run. A ratio is that of one pair.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pandas as pd
import pyarrow as pa
from pyarrow import flight

from fastflight.app.nats_servers import free_ports
from fastflight.errors import DataError, TransportError
from fastflight_benchmark import output, report
from fastflight_benchmark.options import Options
from fastflight_benchmark.peers.running import FREE_PORT, SERVER
from fastflight_benchmark.spawned import spawned
from fastflight_benchmark.table import MIB, WrongPath

PEER = "fastflight_benchmark.suites.http.plain_fastapi"
CONNECTIONS = 50
SMALL, TABLE = "small reads", "table"
GATEWAY, FASTAPI, FLIGHT = "gateway", "fastapi", "flight"
PEERS = {SMALL: FASTAPI, TABLE: FLIGHT}
# The targets: the least multiple of the peer's rate, and the milliseconds within which 99 % of small answers must
# arrive.
TARGETS = {SMALL: 3.0, TABLE: 0.7}
TARGET_MS = 10.0
COLUMNS = ["work", "contender", "run", "rate", "unit", "p99_ms", "error"]

RATE = re.compile(r"Requests/sec:\s+([\d.]+)")
P99 = re.compile(r"99%\s+([\d.]+)(us|ms|s)\b")
FAILED = re.compile(r"(Non-2xx or 3xx responses: \d+|Socket errors: .*)")
MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True, slots=True)
class Scope:
    """The seconds of each load by wrk, the rows of the table, and how often each is measured in a run."""

    seconds: int
    rows: int
    rounds: int


FULL = Scope(seconds=5, rows=1_000_000, rounds=3)
QUICK = Scope(seconds=1, rows=100_000, rounds=1)


@dataclass(frozen=True, slots=True)
class Measured:
    """A rate, and for small reads the time in which 99 % were answered."""

    rate: float
    unit: str
    p99_ms: float = float("nan")


def run(options: Options, scope: Scope | None = None) -> int:
    """Measure, save and show. Return how many measurements failed."""
    scope = scope or (QUICK if options.quick else FULL)
    wrk = shutil.which("wrk")
    if wrk is None:
        options.say("wrk is not installed (Debian: apt-get install wrk): small reads are left out")
    options.say("the gateway, its Flight server and FastAPI are started here; --server is not used")
    description = options.describe("http", scope)
    raw = pd.DataFrame(list(_measured(options.runs, scope, wrk)), columns=COLUMNS)
    result = ratios(raw)
    output.save(options.output, result, {"raw": raw}, description)
    show(options, result)
    failed = raw[raw["error"] != ""]
    report.show_end(options.console, description, failed["error"], options.output)
    return len(failed)


def ratios(raw: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each work: the ratios of the gateway's rate to its peer's, in pairs that are close in time."""
    rows = []
    for work, group in raw[raw["error"] == ""].groupby("work", sort=False):
        peer = PEERS[str(work)]
        pairs = group.pivot(index="run", columns="contender", values="rate").dropna()
        of_peer = pairs[GATEWAY] / pairs[peer]
        rows.append(
            {
                "work": work,
                "peer": peer,
                "unit": group["unit"].iloc[0],
                "gateway_rate": pairs[GATEWAY].median(),
                "peer_rate": pairs[peer].median(),
                "pairs": len(pairs),
                "median_ratio": of_peer.median(),
                "min_ratio": of_peer.min(),
                "max_ratio": of_peer.max(),
                "gateway_p99_ms": group[group["contender"] == GATEWAY]["p99_ms"].median(),
            }
        )
    return pd.DataFrame(rows)


def show(options: Options, result: pd.DataFrame) -> None:
    """Show the table, and whether the targets are met. A quick run is not judged."""
    grid = report.table(
        "HTTP: median of pairs in this run (lowest, highest)",
        ("work", "gateway", "peer", "unit", "pairs", "99 % within"),
        "gateway / peer",
    )
    for row in result.to_dict("records"):
        within = "" if pd.isna(row["gateway_p99_ms"]) else f"{row['gateway_p99_ms']:.1f} ms"
        grid.add_row(
            row["work"],
            f"{row['gateway_rate']:,.0f}",
            f"{row['peer']} {row['peer_rate']:,.0f}",
            row["unit"],
            f"{row['pairs']}",
            within,
            f"{row['median_ratio']:.2f} ({row['min_ratio']:.2f}, {row['max_ratio']:.2f})",
        )
    options.console.print(grid)
    if options.quick:
        return
    for row in result.to_dict("records"):
        ratio, target, p99 = row["median_ratio"], TARGETS[row["work"]], row["gateway_p99_ms"]
        judged = [
            report.Target(f"{row['work']}: {ratio:.2f} of {row['peer']}; the target is {target}", ratio >= target)
        ]
        if not pd.isna(p99):
            text = f"99 % within {p99:.1f} ms; the target is {TARGET_MS:g} ms"
            judged.append(report.Target(text, p99 <= TARGET_MS))
        report.show_met(options.console, judged)


def _measured(runs: int, scope: Scope, wrk: str | None) -> Iterator[dict[str, Any]]:
    for run_ in range(1, runs + 1):
        (port,) = free_ports(1)
        with spawned(SERVER, "--server", FREE_PORT, "--http", str(port)) as server, spawned(PEER) as peer:
            gateway = f"http://127.0.0.1:{port}"
            refuse_other(f"{gateway}/devices", f"{peer.location}/devices")
            works = {
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
                for measure in contenders.values():  # warm-up
                    measure()
                for number in range((run_ - 1) * scope.rounds + 1, run_ * scope.rounds + 1):
                    for name in contenders if number % 2 else reversed(contenders):
                        yield {"work": work, "contender": name, "run": number, **_outcome(contenders[name])}


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


def _outcome(measure: Callable[[], Measured]) -> dict[str, Any]:
    try:
        return {**asdict(measure()), "error": ""}
    except (TransportError, WrongPath, OSError, pa.ArrowException, http.client.HTTPException) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def small_reads(wrk: str, url: str, seconds: int) -> Measured:
    """Return the figures of `wrk` for `url`. Raise `TransportError` if a request failed."""
    command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}", "--latency", url]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds + 30).stdout
    return parsed(text, url)


def parsed(text: str, url: str) -> Measured:
    """Return the figures in the output of `wrk`."""
    if failed := FAILED.search(text):
        raise TransportError(f"wrk: {failed[1]}", where=url)
    rate, p99 = RATE.search(text), P99.search(text)
    if rate is None or p99 is None:
        raise TransportError("the output of wrk has no figures", where=url)
    return Measured(float(rate[1]), "answers/s", float(p99[1]) * MILLISECONDS[p99[2]])


def over_http(url: str, rows: int) -> Measured:
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


def over_flight(location: str, rows: int) -> Measured:
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


def _rate(size: int, received: int, rows: int, began: float) -> Measured:
    if received != rows:
        raise TransportError(f"{received} rows arrived, expected {rows}")
    return Measured(size / MIB / (time.perf_counter() - began), "MiB/s")
