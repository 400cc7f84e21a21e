"""Opens streams, abandons them at random, and checks what the server still holds.

    python -m tests.campaigns.abandons --streams 1000

Clients in separate processes ask a server for sync and async answers, slow, fast and idle ones. They leave before the
first batch, between batches, while they wait, by closing their connection, or by `kill -9`. A second after the last one
has left, the server's tasks, descriptors and threads are compared with those it had before. gRPC ends some of its own
threads later, so these are not counted. Exit code 1: something is left, or a client could not do its part. Linux only.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.flight as flight
import typer

from fastflight.errors import TransportError
from fastflight_benchmark import ending
from fastflight_benchmark.spawned import spawned

# Streams of one client process, open at the same time.
ABREAST = 25
# What is asked for: one that goes on for ever, one with a pause after each batch, one whose first batch never comes.
# A sync answer sleeps where nothing can wake it: its pauses are short.
ANSWERS: tuple[dict[str, Any], ...] = (
    {"rows_per_batch": 5_000, "total_rows": 1_000_000_000},
    {"rows_per_batch": 10, "total_rows": 1_000_000_000, "delay_per_row": 0.001},
    {"rows_per_batch": 1_000, "total_rows": 1_000_000_000, "delay_per_row": 1.0, "mode": "async"},
)
# How a client leaves; of `killed` a whole process.
WAYS = ("cancelled", "dropped", "closed", "killed")
# Batches that are read before, at most.
MOST_READ = 5
# By then a client has opened its streams, also on a machine with much else to do; and has left, once it was told to.
BEGUN_SECONDS, GONE_SECONDS = 120.0, 60.0
# When nothing may be left any more.
SETTLED_SECONDS = 1.0
# What is left by then and gone after this is late, not lost.
LATE_SECONDS = 20.0
LOOK_SECONDS = 0.02
# What there must be no more of than before.
LEFT = ("streams", "tasks", "threads", "descriptors")
# What gRPC calls its threads; those of the server's handlers have no name of theirs.
GRPC_THREADS = ("event_engine", "timer_manager", "grpc_global_tim", "resolver-execut", "default-executo")


@dataclass(frozen=True, slots=True)
class ServerHeld:
    """What the server holds; `started` counts all streams so far."""

    started: int
    streams: int
    tasks: int
    threads: int
    descriptors: int


def held(pid: int, client: flight.FlightClient) -> ServerHeld:
    """Ask the server and the system what it holds. gRPC's own threads are not counted."""
    (result,) = client.do_action(flight.Action("stats", b""))
    stats = json.loads(result.body.to_pybytes())
    threads = [comm for comm in _names(pid) if not comm.startswith(GRPC_THREADS)]
    tasks = sum(shard["tasks"] for shard in stats["shards"])
    return ServerHeld(
        stats["started"], stats["open"], tasks, len(threads), len(list(Path(f"/proc/{pid}/fd").iterdir()))
    )


def _names(pid: int) -> Iterator[str]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            yield (task / "comm").read_text().strip()


def abandon(location: str, seed: int, way: str, begun: Any) -> None:
    """Act as one client: open streams, read a little of each, set `begun`, and abandon them in this `way`."""
    chance = random.Random(seed)
    client = flight.connect(location)
    readers = []
    for _ in range(ABREAST):
        asked = {"type": "mock", "mode": chance.choice(["sync", "async"]), **chance.choice(ANSWERS)}
        reader = client.do_get(flight.Ticket(json.dumps(asked)))
        readers.append(reader)
        for _ in range(0 if asked.get("delay_per_row") == 1.0 else chance.randint(0, MOST_READ)):
            reader.read_chunk()
    begun.set()
    if way == "killed":
        signal.pause()
    chance.shuffle(readers)
    if way == "cancelled":
        for reader in readers:
            reader.cancel()
            with contextlib.suppress(pa.ArrowException, StopIteration):
                while True:
                    reader.read_chunk()
    elif way == "closed":
        client.close()
    del readers


def campaign(location: str, pid: int, streams: int, seed: int) -> dict[str, Any]:
    """Open streams and abandon them. Return what the server held before and afterwards."""
    chance = random.Random(seed)
    with flight.connect(location) as client:
        _round(location, chance, len(WAYS), WAYS)  # what is made at the first use, and kept
        before = _settled(pid, client, None)
        opened = 0
        while opened < streams:
            clients = min(len(WAYS), -(-(streams - opened) // ABREAST))
            _round(location, chance, clients, chance.sample(WAYS, clients))
            opened += clients * ABREAST
        ended = time.monotonic()
        after = _settled(pid, client, before)
        took = time.monotonic() - ended
        return {
            "asked": opened,
            "streams": after.started - before.started,
            "settled_seconds": round(took, 3),
            "before": asdict(before),
            "after": asdict(after),
            "left": {key: max(0, getattr(after, key) - getattr(before, key)) for key in LEFT},
        }


def _round(location: str, chance: random.Random, clients: int, ways: Any) -> None:
    """Run some clients at once, each in a process. `TransportError` if one fails or does not end."""
    context = multiprocessing.get_context("forkserver")
    running: list[tuple[BaseProcess, Any, str]] = []
    for _, way in zip(range(clients), ways, strict=False):
        begun = context.Event()
        arguments = (location, chance.getrandbits(32), way, begun)
        # A daemon: it ends with this process, however that comes.
        process: BaseProcess = context.Process(target=abandon, args=arguments, daemon=True)
        process.start()
        running.append((process, begun, way))
    for process, begun, way in running:
        deadline = time.monotonic() + BEGUN_SECONDS
        while not begun.wait(LOOK_SECONDS) and process.is_alive() and time.monotonic() < deadline:
            pass
        if way == "killed":
            process.kill()
        process.join(GONE_SECONDS)
        ended = -signal.SIGKILL if way == "killed" else 0
        if not begun.is_set() or process.exitcode != ended:
            raise TransportError(f"a client that was to be {way} ended with {process.exitcode}", where=location)


def _settled(pid: int, client: flight.FlightClient, wanted: ServerHeld | None) -> ServerHeld:
    """Wait until the server holds no more than `wanted`, or has no open stream, and return what it holds then."""
    deadline = time.monotonic() + LATE_SECONDS
    while True:
        now = held(pid, client)
        there = not now.streams if wanted is None else all(getattr(now, key) <= getattr(wanted, key) for key in LEFT)
        if there or time.monotonic() > deadline:
            return now
        time.sleep(LOOK_SECONDS)


def main(
    streams: Annotated[int, typer.Option(min=1, metavar="N", help="How many to open and abandon.")] = 1000,
    seed: Annotated[int, typer.Option(metavar="N", help="Which campaign.")] = 1,
) -> None:
    """Carry out a campaign, and print what is left."""
    with spawned("fastflight", "serve", "--server", "grpc://127.0.0.1:0") as server:
        outcome = campaign(server.location, server.pid, streams, seed)
    typer.echo(json.dumps(outcome, indent=2))
    clean = not any(outcome["left"].values()) and outcome["settled_seconds"] <= SETTLED_SECONDS
    clean = clean and outcome["streams"] >= outcome["asked"]
    raise typer.Exit(0 if clean else 1)


if __name__ == "__main__":
    ending.like_ctrl_c()
    typer.run(main)
