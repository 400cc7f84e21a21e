"""Suite `bridge`: the cost of `fastflight bridge`, compared with other bridges and with the device alone.

Its parts: `visit` (connect, enter the raw REPL, evaluate `1+1`, close) by our client, pyserial and mpremote;
`round trip` of one byte; `bulk`, content each way, compared afterwards; `idle`, sessions without traffic. Every server
is a process, as its users run it, on this computer's loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import psutil

from fastflight_benchmark.cores import cpu_seconds
from fastflight_benchmark.engine import LESS, MORE, Bench, Measure, Suite
from fastflight_benchmark.loading import visits
from fastflight_benchmark.loading.wire import Wire
from fastflight_benchmark.peers import bridges
from fastflight_benchmark.peers.bridges import FASTFLIGHT, RAW, RFC2217, SER2NET, SOCAT, VIEWERS, NotInstalled
from fastflight_benchmark.peers.null_device import ESCAPED, RANDOM
from fastflight_benchmark.result import Label
from fastflight_benchmark.simulated import SimulatedBoard

VISIT, ROUND_TRIP, BULK, IDLE = "visit", "round trip", "bulk", "idle"
TERMINAL, SOCKET = "terminal", "socket"
ALONE = "device alone"
OURS = {RAW: "fastflight raw", RFC2217: "fastflight rfc2217"}
BAUD = 115_200
SCHEMES = {RAW: "socket", RFC2217: "rfc2217"}
# The pause between two visits, in which server and board finish the last one: a small write to a serial port may wait
# 50 ms to be sent together with others.
SETTLE_SECONDS = 0.1
# Round trips that do not count, because the first ones are slower.
WARM_UP = 50
# The viewers of a bridge without traffic, beside its writer.
IDLE_VIEWERS = 9


@dataclass(frozen=True, slots=True)
class Scope:
    """Visits and round trips in a run, bytes in bulk by device, and idle seconds."""

    visits: int
    round_trips: int
    terminal_bytes: int
    socket_bytes: int
    idle_seconds: float
    idle_bridges: int


FULL = Scope(5, 1000, 16_000_000, 256_000_000, 10.0, 5)
QUICK = Scope(1, 200, 2_000_000, 32_000_000, 0.5, 1)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to a null device. ser2net moves only this `share` of the bytes, because all of them would take minutes."""

    name: str
    server: str
    port: str
    device: str
    share: float = 1.0


WAYS = tuple(
    way
    for device in (TERMINAL, SOCKET)
    for way in (
        Way(ALONE, "", "", device),
        Way(OURS[RAW], FASTFLIGHT, RAW, device),
        Way(OURS[RFC2217], FASTFLIGHT, RFC2217, device),
        Way(SOCAT, SOCAT, RAW, device),
        Way(SER2NET, SER2NET, RFC2217, device, 1 / 4),
    )
    if (way.server, device) != (SER2NET, SOCKET)
)


def run(bench: Bench) -> None:
    """Measure all parts."""
    scope = bench.scope(FULL, QUICK)
    bench.facts["versions"] = {name: importlib.metadata.version(name) for name in ("mpremote", "pyserial")}
    _visits(bench, scope.visits)
    for round_ in bench.rounds():
        _round_trips(bench, scope.round_trips, round_)
        for way in bench.order(WAYS, round_):
            size = scope.terminal_bytes if way.device == TERMINAL else scope.socket_bytes
            _bulk(bench, way, int(size * way.share), round_)
    _idle(bench, scope.idle_seconds, scope.idle_bridges)


def _visits(bench: Bench, each: int) -> None:
    """Visit a board through both ports of a bridge and without one, with and without a soft reset."""
    with _board() as bridged, _board() as bare, bridges.fastflight(bridged, baud=BAUD) as bridge:
        urls = {port: f"{SCHEMES[port]}://{bridge.ports[port][0]}:{bridge.ports[port][1]}" for port in (RAW, RFC2217)}
        urls["none"] = bare
        with asyncio.Runner() as runner:
            clients = visits.visits(runner)
            for round_ in bench.rounds(each):
                for port, url in urls.items():
                    for reset in (False, True):
                        cell: dict[str, Label] = {"part": VISIT, "bridge": port, "soft reset": str(reset)}
                        for client in bench.order(list(clients), round_):
                            if bench.wants(cell, client):
                                time.sleep(SETTLE_SECONDS)
                                with bench.attempt(cell, client):
                                    began = time.perf_counter()
                                    clients[client](url, reset)
                                    bench.add(cell, client, round_, time=1e3 * (time.perf_counter() - began))


@contextlib.contextmanager
def _board() -> Iterator[str]:
    """Start a simulated board without a pace. Yield the path of its terminal."""
    with (
        tempfile.TemporaryDirectory(prefix="fastflight-bridge-") as folder,
        SimulatedBoard(Path(folder) / "b") as board,
    ):
        yield board.path


def _round_trips(bench: Bench, count: int, round_: int) -> None:
    """Send single bytes there and back through all ways, which take turns after each byte."""
    with ExitStack() as stack:
        wires: dict[Way, Wire] = {}
        for way in WAYS:
            if bench.wants(_cell(ROUND_TRIP, way), way.name):
                with _noted(bench, ROUND_TRIP, way):
                    wires[way] = stack.enter_context(_reached(way))
                    wires[way].echo(count + WARM_UP)
        trips: dict[Way, list[float]] = {way: [] for way in wires}
        for number in range(count + WARM_UP):
            for way in bench.order(list(trips), number):
                try:
                    trips[way].append(wires[way].round_trip())
                except OSError as error:
                    bench.fail(f"{ROUND_TRIP} by {way.name}", error)
                    del trips[way]
        for way, seconds in trips.items():
            microseconds = 1e6 * np.array(seconds[WARM_UP:])
            p99 = {"99_%": float(np.percentile(microseconds, 99))}
            bench.add(_cell(ROUND_TRIP, way), way.name, round_, round_trip=median(microseconds), **p99)


def _bulk(bench: Bench, way: Way, size: int, round_: int) -> None:
    """Move random bytes, and only 0xFF, which Telnet doubles, in both directions."""
    cells = {kind: {**_cell(BULK, way), "content": kind} for kind in (RANDOM, ESCAPED)}
    wanted = [kind for kind, cell in cells.items() if bench.wants(cell, way.name)]
    if not wanted:
        return
    with _noted(bench, BULK, way), _reached(way) as wire:
        for kind in wanted:
            up, down = (size / move(kind, size) / 1e6 for move in (wire.take, wire.give))
            bench.add(cells[kind], way.name, round_, to_the_device=up, from_the_device=down)


@contextlib.contextmanager
def _noted(bench: Bench, part: str, way: Way) -> Iterator[None]:
    """Note a bridge that is not installed as missing, and another error as a failure."""
    with bench.attempt({"part": part, "device": way.device}, way.name):
        try:
            yield
        except NotInstalled as error:
            bench.missing[way.name] = str(error)


def _cell(part: str, way: Way) -> dict[str, Label]:
    return {"part": part, "device": way.device}


@contextlib.contextmanager
def _reached(way: Way) -> Iterator[Wire]:
    """Start a null device with the way's server in front of it. Yield a connection through both."""
    started = {FASTFLIGHT: bridges.fastflight, SOCAT: bridges.socat, SER2NET: bridges.ser2net}
    with bridges.null_device(terminal=way.device == TERMINAL) as device:
        if way.server:
            with started[way.server](device) as server, Wire.to(server.ports[way.port], way.port) as wire:
                yield wire
        elif way.device == TERMINAL:
            with Wire.to_terminal(device) as wire:
                yield wire
        else:
            with Wire.to(bridges.endpoint(device), "") as wire:
                yield wire


def _idle(bench: Bench, seconds: float, count: int) -> None:
    """Measure bridges without traffic, in percent of a core for all of them together."""
    for device in (SOCKET, TERMINAL):
        for port, name in OURS.items():
            cell: dict[str, Label] = {"part": IDLE, "device": device, "sessions": count * (1 + IDLE_VIEWERS)}
            if not bench.wants(cell, name):
                continue
            with bench.attempt(cell, name), ExitStack() as stack:
                processes = [_idle_bridge(stack, device == TERMINAL, port) for _ in range(count)]
                time.sleep(1.0)  # until they are idle
                began, before = time.perf_counter(), sum(map(cpu_seconds, processes))
                time.sleep(seconds)
                used = sum(map(cpu_seconds, processes)) - before
                bench.add(cell, name, 1, CPU=100 * used / (time.perf_counter() - began))


def _idle_bridge(stack: ExitStack, terminal: bool, port: str) -> psutil.Process:
    """Start a bridge with its sessions. Return its process."""
    device = stack.enter_context(bridges.null_device(terminal=terminal))
    bridge = stack.enter_context(bridges.fastflight(device, viewers=True))
    for _ in range(IDLE_VIEWERS):
        stack.enter_context(socket.create_connection(bridge.ports[VIEWERS]))
    stack.enter_context(Wire.to(bridge.ports[port], port))
    return psutil.Process(bridge.pid)


SUITE = Suite(
    name="bridge",
    title="A board behind a bridge, and null devices behind bridges",
    measures={
        "time": Measure("ms", LESS),
        "round trip": Measure("us", LESS),
        "99 %": Measure("us"),
        "to the device": Measure("MB/s", MORE),
        "from the device": Measure("MB/s", MORE),
        "CPU": Measure("% of a core", LESS),
    },
    ours=(*visits.OURS, *OURS.values()),
    references=(visits.PYSERIAL, SOCAT, ALONE),
    run=run,
)
