"""Measures what clients that stop reading cost the gateway's relay, and another client beside them.

    python -m tests.campaigns.stalled_relays

Clients ask the relay for half a gigabyte each, give it all the credit that the protocol has, and never read. The
relay's memory is taken before, and when it no longer grows. The transfers of another client are timed before and
meanwhile.
"""

from __future__ import annotations

import socket
import statistics
from typing import Annotated

import psutil
import typer

from fastflight.errors import TransportError
from fastflight.protocol.relay import MAX_CREDIT, Opened, RelayConnection
from fastflight_benchmark import ending, machine
from fastflight_benchmark.spawned import spawned
from fastflight_benchmark.suites.relay.client import Client, Job, say, shake_hands
from fastflight_benchmark.suites.relay.content import MIB
from fastflight_benchmark.suites.relay.measuring import RELAYS, SEEDER
from fastflight_benchmark.suites.relay.relays import OURS
from tests.campaigns.stalled_sockets import settled

READ_BYTES = 128 * 1024
SIZE = 100 * MIB
ENDLESS = 512 * MIB
TRANSFERS = 5


def main(clients: Annotated[int, typer.Option(min=1, metavar="N", help="How many stop reading.")] = 10) -> None:
    """Print the relay's memory for each client that stalls, and the other one's rates."""
    with spawned(SEEDER) as seeder, spawned(RELAYS, OURS, str(READ_BYTES)) as relay:
        process = psutil.Process(relay.pid)
        job = Job(OURS, relay.location, seeder.location, SIZE, READ_BYTES, READ_BYTES, whole=False)
        _rates(job)  # what the first transfers load stays
        alone, before = _rates(job), process.memory_info().rss
        stalled = [_stalled(relay.location, seeder.location) for _ in range(clients)]
        try:
            after = settled(process)
            beside = _rates(job)
        finally:
            for sock in stalled:
                sock.close()
    each = (after - before) / clients / MIB
    typer.echo(f"{clients} clients that do not read: {each:.2f} MiB each, of {before / MIB:.0f} MiB in all before")
    typer.echo(f"another client: {alone:,.0f} MiB/s alone, {beside:,.0f} beside them ({beside / alone:.2f})")
    typer.echo(machine.in_one_line(machine.describe()))


def _rates(job: Job) -> float:
    client = Client()
    return statistics.median(SIZE / MIB / client.carry_out(job).seconds for _ in range(TRANSFERS))


def _stalled(relay: str, seeder: str) -> socket.socket:
    """Return the socket of a client that has sent its request, and does not read."""
    host, _, port = relay.rpartition(":")
    sock = socket.create_connection((host, int(port)))
    shake_hands(sock, relay)
    side = RelayConnection(accepts=False, window_bytes=MAX_CREDIT)
    request = f"{ENDLESS} {READ_BYTES}\n".encode()
    say(sock, side.open(1, seeder))
    head = sock.recv(2, socket.MSG_WAITALL)
    (event,) = side.feed(sock.recv(head[1], socket.MSG_WAITALL))
    if not isinstance(event, Opened):
        raise TransportError(f"the stream was not opened: {event}", where=seeder)
    say(sock, side.data(1, len(request)) + request)
    return sock


if __name__ == "__main__":
    ending.like_ctrl_c()
    typer.run(main)
