"""Suite `cluster`: several servers that share devices.

`requests`: clients ask any server for rows that a board has printed before and its owner still has in memory. What they
ask a server that does not own the board is passed on. `scale`: many boards are recorded, viewers watch some of them,
and recordings are read meanwhile; then a server is killed, the others take its devices, it starts again and gets them
back. Every row is compared with what the boards printed. Boards that print no rows show what the rest costs.

Servers, NATS nodes, boards and clients are processes on this computer and share its cores, so rates are those of all of
them together. The boards are light: they print rows, and thousands of them share a process.
"""

from __future__ import annotations

import contextlib
import json
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from fastflight.client import FastFlightClient, IncompleteWarning
from fastflight.errors import DataError
from fastflight_benchmark.cluster_stage import (
    ALONE,
    LOOK_SECONDS,
    NATS_NODES,
    STATUS_SECONDS,
    Stage,
    idle_percent,
    stage,
)
from fastflight_benchmark.engine import LESS, MORE, Bench, Measure, Suite
from fastflight_benchmark.loading.recorded import recorded
from fastflight_benchmark.printing_boards import Printed
from fastflight_benchmark.processes import Worker
from fastflight_benchmark.result import Label

MODULE = "fastflight_benchmark.loading.viewers"
REQUESTS, SCALE = "requests", "scale"
CLUSTER = "cluster"
BOARDS, ROWS_PER_SECOND, SCALE_ROWS_PER_SECOND = 16, 200.0, 1.0
# Rows of one request: few, which shows what a request costs, and many, which shows what rows cost. A request for more
# rows than the owner has in memory would wait for the board: it keeps about 1,000 rows that came one by one.
FEW, MANY = 10, 400
# Clients in each of the processes, whose number is that of the cores of a small computer, doubled.
CLIENTS, PROCESSES = 4, 4
# All processes have read their task by then.
LEAD_SECONDS = 0.3
WARM_UP_SECONDS = 0.5
# For the servers to share the boards out. After a join they move one after another.
PLACE_SECONDS = 120.0
# For the first rows to be through, at the most: a shorter measurement waits as long as it lasts.
SETTLE_SECONDS = 5.0
# How long the servers may take to store what the boards printed before they were stopped. Recorders gather rows for a
# second.
CATCH_UP_SECONDS, QUIET_SECONDS = 60.0, 1.5
READERS = 8
# What a user would call live. If rows are readable later than this, the computer is overloaded.
KEPT_UP_SECONDS = 2.0
# Between two readings of a recording while the boards print. A reading gets the rows of the last seconds.
READ_SECONDS, READ_BACK_SECONDS = 0.5, 20.0
COLUMNS = {"board": "int64", "n": "int64", "ns": "int64"}


@dataclass(frozen=True, slots=True)
class Scope:
    """Servers for requests (0: one without a cluster); devices that `sharing` servers share, and their viewers.

    `watched` devices print and have viewers, `recorded` ones print, and `silent` ones do not.
    """

    servers: tuple[int, ...]
    watched: tuple[int, ...]
    recorded: tuple[int, ...]
    silent: tuple[int, ...]
    viewers: int
    sharing: int
    seconds: float
    # The longest wait for devices to find an owner.
    wait_seconds: float


FULL = Scope((0, 1, 2, 4), (1_000, 3_000), (1_000, 3_000, 10_000), (10_000,), 1_000, 4, 20.0, 600.0)
QUICK = Scope((0, 2), (40,), (40,), (40,), 8, 2, 2.0, 60.0)


def run(bench: Bench) -> None:
    """Measure both parts."""
    scope = bench.scope(FULL, QUICK)
    bench.say(f"{NATS_NODES} NATS nodes, servers, boards and clients are started here; --server is not used")
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(MODULE)) for _ in range(PROCESSES)]
        for worker in workers:
            worker.hear()
        for servers in scope.servers:
            _requests(bench, servers, scope.seconds / 5, workers)
        cells = [
            *((devices, min(scope.viewers, devices), SCALE_ROWS_PER_SECOND) for devices in scope.watched),
            *((devices, 0, SCALE_ROWS_PER_SECOND) for devices in scope.recorded),
            *((devices, 0, 0.0) for devices in scope.silent),
        ]
        for devices, viewers, rate in cells:
            cell: dict[str, Label] = {"part": SCALE, "devices": devices, "viewers": viewers, "rows": int(rate)}
            if devices and bench.wants(cell, CLUSTER):
                with bench.attempt(cell, CLUSTER):
                    _scaled(bench, cell, scope, workers)


def ticket(board: str, **keys: Any) -> str:
    """Return a request for the rows of a board."""
    return json.dumps({"type": "device.session", "device": board, "format": "jsonl", "schema": COLUMNS, **keys})


def _requests(bench: Bench, servers: int, seconds: float, workers: Sequence[Worker]) -> None:
    """Measure requests to so many servers."""
    name = f"{CLUSTER} of {servers}" if servers else ALONE
    cells: dict[int, dict[str, Label]] = {rows: {"part": REQUESTS, "rows": rows} for rows in (FEW, MANY)}
    wanted = [rows for rows, cell in cells.items() if bench.wants(cell, name)]
    if not wanted:
        return
    with bench.attempt(cells[wanted[0]], name), stage(BOARDS, ROWS_PER_SECOND, servers) as running:
        running.add(*([f"s{number}" for number in range(servers)] or [ALONE]))
        _, missing = running.wait(running.placed(), PLACE_SECONDS)
        if missing:
            raise DataError(f"{missing} of {BOARDS} devices were not placed", where=name)
        running.start_boards()
        while min(printed.rows for printed in running.printed()) < 2 * MANY:
            time.sleep(LOOK_SECONDS)
        running.stop_boards()
        for rows in wanted:
            _asked(running, workers, rows, WARM_UP_SECONDS)
            for round_ in bench.rounds():
                before = running.used().servers_cpu
                rate, milliseconds, requests = _asked(running, workers, rows, seconds)
                used = 1e6 * (running.used().servers_cpu - before) / requests
                bench.add(cells[rows], name, round_, rate=rate, median=milliseconds, server_CPU=used)


def _asked(running: Stage, workers: Sequence[Worker], rows: int, seconds: float) -> tuple[float, float, int]:
    """Load the servers. Return the rate of all clients together, the median time in ms, and the requests."""
    tickets = [ticket(board, since_seconds=3600, limit_rows=rows) for board in running.boards]
    at = time.perf_counter() + LEAD_SECONDS
    for place, worker in enumerate(workers):
        # Each begins with another server and another board.
        clients = [
            {"location": running.location(number), "tickets": tickets[number % BOARDS :] + tickets[: number % BOARDS]}
            for number in range(place * CLIENTS, (place + 1) * CLIENTS)
        ]
        worker.tell({"do": "call", "clients": clients, "rows": rows, "at": at, "seconds": seconds})
    parts = [worker.hear() for worker in workers]
    if errors := sorted({error for part in parts for error in part["errors"]}):
        raise DataError(errors[0], where="a request for rows of a live session")
    latencies = [latency for part in parts for latency in part["latencies"]]
    passed = max(part["ended"] for part in parts) - min(part["began"] for part in parts)
    return len(latencies) / passed, 1000 * float(np.median(latencies)), len(latencies)


def _scaled(bench: Bench, cell: dict[str, Label], scope: Scope, workers: Sequence[Worker]) -> None:
    """Measure a number of boards. `DataError` if a device has no owner, or a row is not where it should be."""
    devices, viewers, prints = int(cell["devices"]), int(cell["viewers"]), bool(cell["rows"])
    names = [f"s{number}" for number in range(scope.sharing)]

    def add(**figures: float) -> None:
        bench.add(cell, CLUSTER, 1, **figures)

    with stage(devices, SCALE_ROWS_PER_SECOND, scope.sharing) as running:
        began = time.perf_counter()
        running.add(*names)
        _owned(running.wait(None, scope.wait_seconds))
        add(placed=time.perf_counter() - began)
        _owned(running.wait(running.placed(), scope.wait_seconds))
        add(settled=time.perf_counter() - began)
        watched: dict[int, list[str]] = {}
        if prints:
            running.start_boards()
            if viewers:
                watched = _watched(running, viewers, workers)
            time.sleep(min(SETTLE_SECONDS, scope.seconds))
            if viewers:
                _seen(workers)
        before, rows_before = running.used(), sum(each.rows for each in running.printed())
        ages: list[float] = []
        if prints:
            ages = _ages(running, scope.seconds)
        else:
            time.sleep(scope.seconds)
        after, rows_after = running.used(), sum(each.rows for each in running.printed())
        seconds, rows = after.at - before.at, rows_after - rows_before
        add(
            printed=rows / seconds,
            per_row=1e6 * (after.servers_cpu - before.servers_cpu) / rows if rows else float("nan"),
            servers=(after.servers_cpu - before.servers_cpu) / seconds,
            NATS=(after.nats_cpu - before.nats_cpu) / seconds,
            memory=after.servers_memory / 1e6,
            threads=after.threads,
            to_NATS=(after.messages - before.messages) / seconds,
            idle=idle_percent(before.cores, after.cores),
        )
        if prints:
            latencies = [each["p50_ms"] for each in (_seen(workers) if viewers else []) if each["p50_ms"] is not None]
            medians = {"readable": float(np.median(ages))}
            if latencies:
                medians["median"] = float(np.median(latencies))
            add(**medians, overload=max(medians.values()) > 1000 * KEPT_UP_SECONDS)
            add(stored=_complete(running, watched, workers), listing=_listing(running))
        own = sum(owner == names[-1] for owner in running.owners().values())
        running.kill(names[-1])
        took = running.wait(None, scope.wait_seconds)
        _owned(took)
        running.add(names[-1])
        back = running.wait(running.placed(), scope.wait_seconds)
        _owned(back)
        add(owned_again=took[0], moved_back=back[0], moved=own)


def _ages(running: Stage, seconds: float) -> list[float]:
    """Read recordings for so long, one after another. Return how old the newest row of each answer is, in ms."""
    ages = []
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(flight.connect(running.location(at))) for at in range(len(running.servers))]
        end, number = time.perf_counter() + seconds, 0
        while (begin := time.perf_counter()) < end:
            board = running.boards[number * len(running.boards) // int(1 + seconds / READ_SECONDS)]
            request = {"type": "recording", "name": board, "since_seconds": READ_BACK_SECONDS}
            asked = json.dumps({**request, "format": "jsonl", "schema": COLUMNS})
            newest = time.monotonic_ns() - int(READ_BACK_SECONDS * 1e9)
            with contextlib.suppress(flight.FlightError):  # nothing of it is recorded yet
                found = clients[number % len(clients)].do_get(flight.Ticket(asked.encode())).read_all().column("ns")
                newest = found[-1].as_py() if len(found) else newest
            ages.append((time.monotonic_ns() - newest) / 1e6)
            number += 1
            time.sleep(max(0.0, begin + READ_SECONDS - time.perf_counter()))
    return ages


def _listing(running: Stage) -> float:
    """Return the seconds of the slowest listing of all recordings: of flights, of states, or of tables in SQL."""
    seconds = []
    location = running.location(0)
    with (
        FastFlightClient(location, timeout=STATUS_SECONDS) as client,
        flight.connect(location) as bare,
        warnings.catch_warnings(),
    ):
        # Of boards that print and answer nothing, the files are not listed.
        warnings.simplefilter("ignore", IncompleteWarning)
        asks = (lambda: list(bare.list_flights()), client.recordings, lambda: client.sql("show tables").to_arrow())
        for ask in asks:
            began = time.perf_counter()
            ask()
            seconds.append(time.perf_counter() - began)
    return max(seconds)


def _owned(waited: tuple[float, int]) -> None:
    if waited[1]:
        raise DataError(f"{waited[1]} devices have no owner after {waited[0]:.0f} s", where=CLUSTER)


def _watched(running: Stage, viewers: int, workers: Sequence[Worker]) -> dict[int, list[str]]:
    """Start the viewers. Return the boards that the viewers of each process watch."""
    boards = running.boards[:: max(1, len(running.boards) // viewers)][:viewers]
    watched = {place: boards[place :: len(workers)] for place in range(len(workers))}
    for place, worker in enumerate(workers):
        # A viewer asks any server.
        asked = [
            {"location": running.location(place + number * len(workers)), "ticket": ticket(board)}
            for number, board in enumerate(watched[place])
        ]
        worker.tell({"do": "view", "viewers": asked})
    for worker in workers:
        worker.hear()
    return watched


def _complete(running: Stage, watched: dict[int, list[str]], workers: Sequence[Worker]) -> float:
    """Stop the boards. Return the seconds until all their rows are stored. `DataError` if one is not, or not seen."""
    printed = running.stop_boards()
    rows = dict(zip(running.boards, (each.rows for each in printed), strict=True))
    took, wrong = _stored(running, printed)
    seen = _seen(workers) if watched else []
    for worker in workers if watched else ():
        worker.ask({"do": "leave"})
    boards = [board for place in sorted(watched) for board in watched[place]]
    if errors := sorted({each["error"] for each in seen} - {""}):
        raise DataError(errors[0], where="a viewer")
    unseen = sum(rows[board] - each["first"] - each["rows"] for board, each in zip(boards, seen, strict=True))
    if unseen or wrong:
        raise DataError(f"{unseen} rows did not reach their viewer, {wrong} recordings differ", where=CLUSTER)
    return took


def _stored(running: Stage, printed: Sequence[Printed]) -> tuple[float, int]:
    """Wait until the recordings have all rows, but not for ever.

    Return the seconds until the last message was stored, and how many recordings are not what was printed.
    """
    began = changed = time.perf_counter()
    messages, rest = running.recorded_messages(), list(range(len(printed)))
    while rest:
        time.sleep(LOOK_SECONDS)
        over = time.perf_counter() - began > CATCH_UP_SECONDS
        if (newest := running.recorded_messages()) != messages:
            messages, changed = newest, time.perf_counter()
        if over or time.perf_counter() - changed > QUIET_SECONDS:
            rest = _differing(running, rest, printed)
        if over:
            break
    return changed - began, len(rest)


def _differing(running: Stage, numbers: Sequence[int], printed: Sequence[Printed]) -> list[int]:
    """Read the recordings of these boards. Return the boards whose recording differs from what they printed."""
    clients = [flight.connect(running.location(number)) for number in range(READERS)]

    def is_wrong(number: int) -> bool:
        try:
            return recorded(clients[number % READERS], running.boards[number]) != printed[number]
        except (flight.FlightError, pa.ArrowException, OSError):  # a recording without a row does not exist
            return printed[number].rows > 0

    try:
        with ThreadPoolExecutor(READERS) as pool:
            return [number for number, wrong in zip(numbers, pool.map(is_wrong, numbers), strict=True) if wrong]
    finally:
        for client in clients:
            client.close()


def _seen(workers: Sequence[Worker]) -> list[dict[str, Any]]:
    for worker in workers:
        worker.tell({"do": "seen"})
    return [viewer for worker in workers for viewer in worker.hear()]


SUITE = Suite(
    name="cluster",
    title="Servers that share devices",
    measures={
        "rate": Measure("1/s", MORE),
        "median": Measure("ms", LESS),
        "server CPU": Measure("us", LESS),
        "placed": Measure("s", LESS),
        "settled": Measure("s", LESS),
        "printed": Measure("rows/s"),
        "per row": Measure("us", LESS),
        "readable": Measure("ms", LESS),
        "overload": Measure(""),
        "listing": Measure("s", LESS),
        "servers": Measure("cores", LESS),
        "NATS": Measure("cores", LESS),
        "memory": Measure("MB", LESS),
        "threads": Measure(""),
        "to NATS": Measure("messages/s", LESS),
        "idle": Measure("%"),
        "stored": Measure("s"),
        "owned again": Measure("s", LESS),
        "moved back": Measure("s", LESS),
        "moved": Measure("devices"),
    },
    ours=(ALONE, CLUSTER, *(f"{CLUSTER} of {servers}" for servers in FULL.servers if servers)),
    references=(ALONE,),
    run=run,
)
