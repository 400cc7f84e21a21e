"""Many boards on several servers, which record them: what they cost, and how long devices take to find an owner.

In this order, with the same servers: all start, and take the devices (`placed`: each has an owner; `settled`: the right
one, because a server that was earlier takes more); the boards print a row a second, and viewers watch some of them; the
boards stop, and what was printed is compared with what the viewers and the recordings have; a server is killed
(SIGKILL), and the others take its devices; it starts again, and gets them back.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from fastflight_benchmark.cores import idle_percent
from fastflight_benchmark.printing_boards import Printed
from fastflight_benchmark.suites.cluster.requesting import ticket
from fastflight_benchmark.suites.cluster.stage import LOOK_SECONDS, Stage, Used, stage
from fastflight_benchmark.worker import Worker

ROWS_PER_SECOND = 1.0
# For the first rows to be through, at the most: a shorter measurement waits as long as it lasts.
SETTLE_SECONDS = 5.0
# How long the servers may take to store what the boards printed before they were stopped. If they take longer, they
# were not keeping up.
CATCH_UP_SECONDS = 60.0
# Recorders gather rows for a second.
QUIET_SECONDS = 1.5
READERS = 8
KIB = 1024


@dataclass(frozen=True, slots=True)
class Scope:
    """The devices, their viewers and servers; seconds of the measurement, and the longest wait for owners.

    Without viewers the boards print nothing.
    """

    devices: int
    viewers: int
    servers: int
    seconds: float
    wait_seconds: float


def measure(scope: Scope, workers: Sequence[Worker], idle_memory: float) -> Iterator[tuple[str, float, str]]:
    """Yield names, values and units. `idle_memory`: bytes of a server that has few devices."""
    names = [f"s{number}" for number in range(scope.servers)]
    with stage(scope.devices, ROWS_PER_SECOND, scope.servers) as running:
        began = time.perf_counter()
        running.add(*names)
        yield "servers listen after", time.perf_counter() - began, "s"
        _, missing = running.wait(None, scope.wait_seconds)
        yield "placed after", time.perf_counter() - began, "s"
        yield "not placed", missing, "devices"
        _, missing = running.wait(running.placed(), scope.wait_seconds)
        yield "settled after", time.perf_counter() - began, "s"
        yield "not settled", missing, "devices"
        if missing:  # a device that moves misses rows
            return
        yield from load(running, scope, workers, idle_memory) if scope.viewers else silence(running, scope, idle_memory)
        yield from moves(running, names[-1], scope.wait_seconds)


def load(
    running: Stage, scope: Scope, workers: Sequence[Worker], idle_memory: float
) -> Iterator[tuple[str, float, str]]:
    """Let the boards print and viewers watch, and count all rows."""
    running.start_boards()
    watched = running.boards[:: max(1, len(running.boards) // scope.viewers)][: scope.viewers]
    owners = running.owners()
    passed_on = 0
    for place, worker in enumerate(workers):
        numbers = range(place, len(watched), len(workers))
        passed_on += sum(running.name(number) != owners.get(watched[number]) for number in numbers)
        viewers = [{"location": running.location(number), "ticket": ticket(watched[number])} for number in numbers]
        worker.tell({"do": "view", "viewers": viewers})
    for worker in workers:
        worker.hear()
    time.sleep(min(SETTLE_SECONDS, scope.seconds))
    before, printed_before = running.used(), sum(each.rows for each in running.printed())
    _seen(workers)
    time.sleep(scope.seconds)
    latencies = [each["p50_ms"] for each in _seen(workers) if each["p50_ms"] is not None]
    after, printed_after = running.used(), sum(each.rows for each in running.printed())
    owners_after = running.owners()
    yield from cost(scope, before, after, printed_after - printed_before, idle_memory)
    yield "viewers passed on", passed_on / max(1, len(watched)), "share"
    yield "row to viewer, median", float(np.median(latencies)) if latencies else float("nan"), "ms"
    yield "row to viewer, slowest viewer", max(latencies, default=float("nan")), "ms"
    yield "without owner at the end", scope.devices - len(owners_after), "devices"
    changed = sum(owners_after.get(name) not in (None, owner) for name, owner in owners.items())
    yield "with another owner at the end", changed, "devices"  # a device that moves misses rows
    printed = running.stop_boards()
    yield "rows printed", sum(each.rows for each in printed), "rows"
    took, found = caught_up(running, printed)
    yield "recorded after the last row", took, "s"
    seen = _seen(workers)
    for worker in workers:
        worker.ask({"do": "leave"})
    # `view` and `seen` have the viewers of each process one after the other.
    order = [number for place in range(len(workers)) for number in range(place, len(watched), len(workers))]
    rows = dict(zip(running.boards, (each.rows for each in printed), strict=True))
    expected = [rows[watched[number]] - each["first"] for number, each in zip(order, seen, strict=True)]
    yield "viewers with errors", sum(bool(each["error"]) for each in seen), "viewers"
    yield "viewers with rows", sum(each["rows"] > 0 for each in seen), "viewers"
    yield "rows expected by viewers", sum(expected), "rows"
    yield "rows seen by viewers", sum(each["rows"] for each in seen), "rows"
    yield "rows recorded", sum(rows for rows, _ in found), "rows"
    yield "recordings that differ", sum(not same for _, same in found), "devices"


def silence(running: Stage, scope: Scope, idle_memory: float) -> Iterator[tuple[str, float, str]]:
    """Let the servers have their devices, and do nothing else."""
    before = running.used()
    time.sleep(scope.seconds)
    yield from cost(scope, before, running.used(), 0, idle_memory)


def cost(scope: Scope, before: Used, after: Used, printed: int, idle_memory: float) -> Iterator[tuple[str, float, str]]:
    """Yield what the parts used in a time in which the boards printed so many rows."""
    seconds = after.at - before.at
    yield "rows", printed / seconds, "1/s"
    yield "servers", (after.servers_cpu - before.servers_cpu) / seconds, "cores"
    yield "NATS", (after.nats_cpu - before.nats_cpu) / seconds, "cores"
    yield "idle", idle_percent(before.cores, after.cores), "% of all cores"
    yield "boards", (after.boards_cpu - before.boards_cpu) / seconds, "cores"
    yield "servers for each board", 1e6 * (after.servers_cpu - before.servers_cpu) / seconds / scope.devices, "us/s"
    yield "memory of servers", after.servers_memory / 1e6, "MB"
    own = after.servers_memory - scope.servers * idle_memory
    yield "memory of servers for each board", own / scope.devices / KIB, "KiB"
    yield "memory of NATS", after.nats_memory / 1e6, "MB"
    yield "threads of servers", after.threads, "threads"
    yield "NATS in", (after.messages_in - before.messages_in) / seconds, "messages/s"
    yield "NATS in, bytes", (after.bytes_in - before.bytes_in) / seconds, "B/s"
    yield "NATS out", (after.messages_out - before.messages_out) / seconds, "messages/s"
    yield "NATS out, bytes", (after.bytes_out - before.bytes_out) / seconds, "B/s"
    for name, (last, size) in sorted(after.stored.items()):
        last_before, size_before = before.stored.get(name, (0, 0))
        yield f"stream {name}", (last - last_before) / seconds, "messages/s"
        yield f"stream {name}, bytes", (size - size_before) / seconds, "B/s"


def caught_up(running: Stage, printed: Sequence[Printed]) -> tuple[float, list[tuple[int, bool]]]:
    """Wait until the recordings have all rows, but not for ever.

    Return the seconds until the last message was stored, and what `read_recordings` gives for each board.
    """
    began = changed = time.perf_counter()
    stored = running.recorded_messages()
    found = [(0, False)] * len(printed)
    over = False
    while not over:
        time.sleep(LOOK_SECONDS)
        over = time.perf_counter() - began > CATCH_UP_SECONDS
        if (newest := running.recorded_messages()) != stored:
            stored, changed = newest, time.perf_counter()
        if over or time.perf_counter() - changed > QUIET_SECONDS:
            rest = [number for number, (_, same) in enumerate(found) if not same]
            for number, answer in zip(rest, read_recordings(running, rest, printed), strict=True):
                found[number] = answer
            over = over or all(same for _, same in found)
    return changed - began, found


def read_recordings(running: Stage, numbers: Sequence[int], printed: Sequence[Printed]) -> list[tuple[int, bool]]:
    """Return for each board how many rows are recorded, and whether they are what it has printed."""
    clients = [flight.connect(running.location(number)) for number in range(READERS)]

    def read(number: int) -> tuple[int, bool]:
        wanted = {"type": "recording", "name": running.boards[number], "columns": ["data"]}
        try:
            answer = clients[number % READERS].do_get(flight.Ticket(json.dumps(wanted).encode()))
            content = b"".join(answer.read_all()["data"].to_pylist())
        except (flight.FlightError, pa.ArrowException, OSError):  # a recording without a row does not exist
            content = b""
        return content.count(b"\n"), zlib.crc32(content) == printed[number].crc

    try:
        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(read, numbers))
    finally:
        for client in clients:
            client.close()


def moves(running: Stage, name: str, wait_seconds: float) -> Iterator[tuple[str, float, str]]:
    """Kill a server and start it again. Yield how long its devices take to be owned, and to move back."""
    own = sum(owner == name for owner in running.owners().values())
    running.kill(name)
    took, missing = running.wait(None, wait_seconds)
    yield "devices of the killed server", own, "devices"
    yield "owned again after a kill", took, "s"
    yield "not owned after a kill", missing, "devices"
    began = time.perf_counter()
    running.add(name)
    yield "the server is back after", time.perf_counter() - began, "s"
    _, missing = running.wait(running.placed(), wait_seconds)
    yield "moved back after a join", time.perf_counter() - began, "s"
    yield "not moved back after a join", missing, "devices"


def _seen(workers: Sequence[Worker]) -> list[dict[str, Any]]:
    for worker in workers:
        worker.tell({"do": "seen"})
    return [viewer for worker in workers for viewer in worker.hear()]
