"""Connections that never become calls, and what a good client notices of them.

    python -m tests.campaigns.floods --connections 1000
    python -m tests.campaigns.floods --connections 1000 --descriptors 400    # more than the server may open

Against a server of its own, on loopback: connections that say nothing, that send what is no HTTP/2, that send half a
hello of TLS, and a storm of connections that are opened and closed. A good client asks `health` meanwhile, by one
connection that it has and by one that it opens for each call; medians and worst in milliseconds, and how often it got
no answer in 5 s. At last the flood ends, and the same is measured again. Linux only; ends by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.flight as flight
import typer

from fastflight_benchmark import ending
from fastflight_benchmark.spawned import spawned_by

# Calls in each measurement, and how long each may take.
CALLS = 40
PATIENCE_SECONDS = 5.0
# Descriptors that a server has for other things than connections, and those that may come and go by themselves.
OTHER_DESCRIPTORS, SPARE_DESCRIPTORS = 100, 8
BEFORE, SILENT, STORM, AFTER = "before", "silent", "storm", "after"
SAID = {True: "held  ", False: "FAILED"}
# What the connections of each kind send.
GARBAGE = b"\x00\xff" * 500
HALF_HELLO = bytes.fromhex("16030100ff010000fb0303") + b"\x00" * 20


def flooded(address: tuple[str, int], number: int, sent: bytes) -> Iterator[socket.socket]:
    """Open connections that send these bytes, and stay open."""
    for _ in range(number):
        connection = socket.socket()
        connection.settimeout(PATIENCE_SECONDS)
        try:
            connection.connect(address)
            if sent:
                connection.sendall(sent)
        except OSError:  # the server takes no more, which is its right
            connection.close()
            continue
        yield connection


@contextlib.contextmanager
def storming(address: tuple[str, int], count: list[int]) -> Iterator[None]:
    """Open and close connections as fast as possible, until the context ends."""
    begun, over = threading.Event(), threading.Event()

    def storm() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(address, PATIENCE_SECONDS):
                count[0] += 1
            begun.set()

    thread = threading.Thread(target=storm, name="storm")
    thread.start()
    try:
        begun.wait()
        yield
    finally:
        over.set()
        thread.join()


def asked(client: flight.FlightClient) -> None:
    """Make one call."""
    list(client.do_action(flight.Action("health", b""), flight.FlightCallOptions(timeout=PATIENCE_SECONDS)))


def measured(location: str, known: flight.FlightClient) -> dict[str, Any]:
    """Return the milliseconds of a good client's calls."""

    def anew() -> None:
        with flight.connect(location) as client:
            asked(client)

    return {"same_connection": _times(lambda: asked(known)), "new_connection": _times(anew)}


def _times(call: Callable[[], None]) -> dict[str, float]:
    taken, failed = [], 0
    for _ in range(CALLS):
        began = time.perf_counter()
        try:
            call()
        except pa.ArrowException:
            failed += 1
            if failed > 2:  # each has waited for as long as it may
                break
        taken.append((time.perf_counter() - began) * 1000)
    return {"median_ms": round(statistics.median(taken), 1), "worst_ms": round(max(taken), 1), "failed": failed}


def campaign(location: str, pid: int, connections: int) -> dict[str, Any]:
    """Run every kind of flood, one after the other."""
    parts = urlsplit(location)
    address = (str(parts.hostname), int(parts.port or 0))
    found: dict[str, Any] = {}
    with flight.connect(location) as known:
        asked(known)
        found[BEFORE] = measured(location, known) | _process(pid)
        for kind, sent in ((SILENT, b""), ("garbage", GARBAGE), ("half a hello", HALF_HELLO)):
            with contextlib.ExitStack() as flood:
                made = [flood.enter_context(connection) for connection in flooded(address, connections, sent)]
                found[kind] = measured(location, known) | _process(pid) | {"connections": len(made)}
        count = [0]
        with storming(address, count):
            found[STORM] = measured(location, known) | _process(pid) | {"connections": count[0]}
        found[AFTER] = measured(location, known) | _process(pid)
    return found


def verdicts(found: Mapping[str, Any], connections: int, *, enough: bool) -> dict[str, bool]:
    """Return each promise, and whether it held. `enough`: the server has enough descriptors for the flood."""
    floods = {kind: each["connections"] for kind, each in found.items() if "connections" in each}
    same = {kind: each["same_connection"]["failed"] for kind, each in found.items()}
    new = {kind: each["new_connection"]["failed"] for kind, each in found.items()}
    before, after = (found[kind]["descriptors"] for kind in (BEFORE, AFTER))
    judged = new if enough else {kind: new[kind] for kind in (BEFORE, AFTER)}
    return {
        f"there was a flood: {floods}": all(floods.values()) and (not enough or floods[SILENT] == connections),
        f"calls by a connection that is there are answered, without: {same}": not any(same.values()),
        f"calls by new ones are answered{'' if enough else ' before and afterwards'}, without: {new}": (
            not any(judged.values())
        ),
        f"descriptors are back: {before}, then {after}": after <= before + SPARE_DESCRIPTORS,
    }


def _process(pid: int) -> dict[str, float]:
    times = os.sysconf("SC_CLK_TCK")
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    seconds = round((int(fields[11]) + int(fields[12])) / times, 1)
    return {"descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())), "processor_seconds": seconds}


def main(
    connections: Annotated[int, typer.Option(min=1, max=5000, metavar="N", help="Of each kind.")] = 1000,
    descriptors: Annotated[
        int | None, typer.Option(min=100, metavar="N", help="What the server may open. By default what this may.")
    ] = None,
) -> None:
    """Flood a server, and print the figures of a good client."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * connections + 1000), hard))
    command = [sys.executable, "-m", "fastflight", "serve", "--server", "grpc://127.0.0.1:0"]
    if descriptors is not None:
        command = ["prlimit", f"--nofile={descriptors}", *command]
    with spawned_by(command, "the server") as server:
        found = campaign(server.location, server.pid, connections)
    typer.echo(json.dumps(found, indent=2))
    # `serve` takes all that the system lets it have.
    told = verdicts(found, connections, enough=(descriptors or hard) >= connections + OTHER_DESCRIPTORS)
    for text, held in told.items():
        typer.echo(f"{SAID[held]}  {text}")
    raise typer.Exit(0 if all(told.values()) else 1)


if __name__ == "__main__":
    ending.like_ctrl_c()
    typer.run(main)
