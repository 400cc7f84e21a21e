"""Bytes through bridges in front of null devices: round trips of single bytes, and throughput.

The ways to a device take turns, after each byte for round trips and after each transfer for throughput. Each round
reverses their order. The time that a server adds is the difference of two round trips in the same round.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from fastflight.errors import FastFlightError
from fastflight_benchmark.suites.bridge import rows, servers
from fastflight_benchmark.suites.bridge.device import ESCAPED, RANDOM
from fastflight_benchmark.suites.bridge.rows import NO_SERVER, Row
from fastflight_benchmark.suites.bridge.servers import RAW, RFC2217, NotInstalled, Server
from fastflight_benchmark.suites.bridge.wire import Wire

TERMINAL, SOCKET = "terminal", "socket"
BARE = "bare"
UP, DOWN = "up", "down"
ROUND_TRIP, ADDED = "1 byte there and back", "added"
# Round trips that do not count, because the first ones are slower.
WARM_UP = 50


@dataclass(frozen=True, slots=True)
class Way:
    """One way to a device. A slow way moves only this `share` of the bytes, because all of them would take minutes."""

    server: str
    port: str
    device: str
    share: float = 1.0


DIRECT = {TERMINAL: Way(NO_SERVER, "", TERMINAL), SOCKET: Way(NO_SERVER, "", SOCKET)}
WAYS = (
    DIRECT[TERMINAL],
    Way(servers.FASTFLIGHT, RAW, TERMINAL),
    Way(servers.FASTFLIGHT, RFC2217, TERMINAL),
    Way(servers.SOCAT, RAW, TERMINAL),
    Way(servers.SER2NET, RFC2217, TERMINAL, 1 / 4),
    Way(servers.PORT_MANAGER, RFC2217, TERMINAL, 1 / 8),
    DIRECT[SOCKET],
    Way(servers.FASTFLIGHT, RAW, SOCKET),
    Way(servers.FASTFLIGHT, RFC2217, SOCKET),
    Way(servers.SOCAT, RAW, SOCKET),
)


def round_trips(count: int) -> Iterator[Row]:
    """Yield `count` round trips of each way, and the time that each server adds to that of the device alone."""
    with ExitStack() as stack:
        wires: dict[Way, Wire] = {}
        for way in WAYS:
            try:
                wires[way] = stack.enter_context(_reached(way))
            except NotInstalled as error:
                yield _missing(rows.ROUND_TRIP, way, ROUND_TRIP, "", rows.SECONDS, error)
                continue
            wires[way].echo(count + WARM_UP)
        ways = list(wires)
        for number in range(1 - WARM_UP, count + 1):
            seconds: dict[Way, float] = {}
            for way in list(ways if number % 2 else ways[::-1]):
                try:
                    seconds[way] = wires[way].round_trip()
                except (FastFlightError, OSError) as error:
                    yield _row(rows.ROUND_TRIP, way, ROUND_TRIP, "", number, rows.SECONDS, float("nan"), str(error))
                    ways.remove(way)
            if number < 1:
                continue
            for way in ways:
                yield _row(rows.ROUND_TRIP, way, ROUND_TRIP, "", number, rows.SECONDS, seconds[way])
                if way.server != NO_SERVER and DIRECT[way.device] in seconds:
                    added = seconds[way] - seconds[DIRECT[way.device]]
                    yield _row(rows.ROUND_TRIP, way, ADDED, "", number, rows.SECONDS, added)


def bulk(rounds: int, sizes: Mapping[str, int]) -> Iterator[Row]:
    """Yield the rates of content in both directions through each way, `rounds` times. `sizes` is by kind of device."""
    missing = set()
    for number in range(1, rounds + 1):
        for way in WAYS if number % 2 else WAYS[::-1]:
            if way in missing:
                continue
            try:
                with _reached(way) as wire:
                    yield from _moved(wire, way, int(sizes[way.device] * way.share), number)
            except NotInstalled as error:
                missing.add(way)
                yield _missing(rows.BULK, way, UP, RANDOM, rows.RATE, error)
            except FastFlightError as error:
                yield _row(rows.BULK, way, UP, RANDOM, number, rows.RATE, float("nan"), str(error))


def _moved(wire: Wire, way: Way, size: int, number: int) -> Iterator[Row]:
    for kind in (RANDOM, ESCAPED):
        for work, move in ((UP, wire.take), (DOWN, wire.give)):
            rate = size / move(kind, size) / 1e6
            yield _row(rows.BULK, way, work, kind, number, rows.RATE, rate)


@contextlib.contextmanager
def _reached(way: Way) -> Iterator[Wire]:
    """Start a null device with the way's server in front of it. Yield a connection through both."""
    terminal = way.device == TERMINAL
    with servers.null_device(terminal=terminal) as device:
        if way.server != NO_SERVER:
            with STARTED[way.server](device) as server, Wire.to(server.ports[way.port], way.port) as wire:
                yield wire
        elif terminal:
            with Wire.to_terminal(device) as wire:
                yield wire
        else:
            with Wire.to(servers.endpoint(device), "") as wire:
                yield wire


def _fastflight(device: str) -> AbstractContextManager[Server]:
    return servers.fastflight(device)


STARTED = {
    servers.FASTFLIGHT: _fastflight,
    servers.SOCAT: servers.socat,
    servers.SER2NET: servers.ser2net,
    servers.PORT_MANAGER: servers.port_manager,
}


def _row(part: str, way: Way, work: str, content: str, number: int, unit: str, value: float, error: str = "") -> Row:
    return Row(part, way.server, way.port, way.device, BARE, work, content, number, unit, value, error)


def _missing(part: str, way: Way, work: str, content: str, unit: str, error: NotInstalled) -> Row:
    return Row(part, way.server, way.port, way.device, BARE, work, content, 0, unit, error=error.what, missing=True)
