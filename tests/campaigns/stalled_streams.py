"""Measures what HTTP clients that stop reading cost the gateway.

    python -m tests.campaigns.stalled_streams

Clients of `POST /stream` ask for a table without end and never read. The server's memory is taken before, and when it
no longer grows.
"""

from __future__ import annotations

import http.client
import json
import time
from contextlib import ExitStack, closing
from typing import Annotated

import psutil
import typer

from fastflight.app.nats_servers import free_ports
from fastflight.client import FastFlightClient
from fastflight.errors import TransportError
from fastflight_benchmark import ending, machine
from fastflight_benchmark.spawned import spawned

MIB = 1024 * 1024
# 2 GB of rows: more than waits anywhere.
REQUEST = json.dumps({"type": "mock", "variant": "simple", "total_rows": 10_000_000})
# The memory stands still when it has grown by less than this in so many looks, so many seconds apart.
STILL_BYTES, LOOKS, APART = 128 * 1024, 10, 0.2


def main(clients: Annotated[int, typer.Option(min=1, metavar="N", help="How many stop reading.")] = 20) -> None:
    """Print the server's memory for each client that stalls."""
    (port,) = free_ports(1)
    with spawned("fastflight", "serve", "--server", "grpc://127.0.0.1:0", "--http", str(port)) as server:
        process = psutil.Process(server.pid)
        with ExitStack() as parts:
            _stall(port, 2, parts)  # what the first ones load stays
            before = settled(process)
            _stall(port, clients, parts)
            after = settled(process)
            _refuse_fewer(server.location, 2 + clients)
    typer.echo(f"{clients} clients that do not read: {(after - before) / clients / MIB:.2f} MiB each")
    typer.echo(f"the server before: {before / MIB:.0f} MiB")
    typer.echo(machine.in_one_line(machine.describe()))


def _stall(port: int, clients: int, parts: ExitStack) -> None:
    """Start clients that send their request, and read no more than the head of the answer."""
    for _ in range(clients):
        connection = parts.enter_context(closing(http.client.HTTPConnection("127.0.0.1", port)))
        connection.request("POST", "/stream", REQUEST)
        connection.getresponse()


def _refuse_fewer(location: str, streams: int) -> None:
    """Raise `TransportError` unless so many streams are open: refused ones would cost nothing."""
    with FastFlightClient(location) as client:
        there = client.stats()["open"]
    if there != streams:
        raise TransportError(f"{there} streams are open of {streams}", where=location, hint="The log has the reason")


def settled(process: psutil.Process) -> int:
    """Wait until the memory of a process stops growing. Return its resident bytes."""
    seen: list[int] = []
    while len(seen) < LOOKS or max(seen[-LOOKS:]) - min(seen[-LOOKS:]) > STILL_BYTES:
        time.sleep(APART)
        seen.append(process.memory_info().rss)
    return seen[-1]


if __name__ == "__main__":
    ending.like_ctrl_c()
    typer.run(main)
