"""Suite `bridge`: what `fastflight bridge` costs, compared with the device alone.

Its parts: `visit` (connect to a board, enter the raw REPL, evaluate `1+1`, close) by our client; `round trip` of one
byte; `bulk`, content each way, compared afterwards; `idle`, sessions without traffic. The bridge is a process, as its
users run it, on this computer's loopback. Except for visits, a device that only moves bytes is behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from fastflight.errors import DataError, FastFlightError
from fastflight.protocol import Conversation, Output, RawRepl
from fastflight.transport import arun, parse_url
from fastflight_benchmark.engine import LESS, MORE, Bench, Figures, Measure, Suite
from fastflight_benchmark.loading.wire import Wire
from fastflight_benchmark.peers.null_device import ESCAPED, RANDOM
from fastflight_benchmark.processes import Spawned, spawned
from fastflight_benchmark.result import Label
from fastflight_benchmark.simulated import SimulatedBoard

VISIT, ROUND_TRIP, BULK, IDLE = "visit", "round trip", "bulk", "idle"
TERMINAL, SOCKET = "terminal", "socket"
DEVICES = (TERMINAL, SOCKET)
ALONE, RAW, RFC2217, VIEWERS = "device alone", "fastflight raw", "fastflight rfc2217", "viewers"
OURS = (RAW, RFC2217)
CONTENDERS = (ALONE, *OURS)
NULL_DEVICE = "fastflight_benchmark.peers.null_device"
# What `fastflight bridge` prints when it has started: the device's URL, and those of its ports.
SHARED = re.compile(r"\S+ at (.*)")
PORT = re.compile(r"(viewers at )?(rfc2217|socket)://([\d.]+:\d+)")
# The rate of the board, and of a null device: the highest that systems accept, because it has no pace.
BAUD, HIGHEST_BAUD = 115_200, 4_000_000
CODE, ANSWER = b"print(1+1)", b"2"
VISIT_SECONDS = 20.0
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


def run(bench: Bench) -> None:
    """Measure all parts."""
    scope = bench.scope(FULL, QUICK)
    _visits(bench, scope.visits)
    for device in DEVICES:
        size = scope.terminal_bytes if device == TERMINAL else scope.socket_bytes
        for round_ in bench.rounds():
            _round_trips(bench, device, scope.round_trips, round_)
            for kind in (RANDOM, ESCAPED):  # Telnet doubles 0xFF
                cell: dict[str, Label] = {"part": BULK, "device": device, "content": kind}
                contenders = {name: partial(_bulk, name, device, kind, size) for name in CONTENDERS}
                bench.measure(cell, contenders, [round_])
        _idle(bench, device, scope.idle_seconds, scope.idle_bridges)


@contextlib.contextmanager
def bridge(device: str, *, baud: int = HIGHEST_BAUD, viewers: bool = False) -> Iterator[tuple[Spawned, dict[str, str]]]:
    """Start a bridge in front of a terminal (its path) or a socket. Yield its process and the address of each port."""
    url = f"serial://{device}?baud={baud}" if device.startswith("/") else f"socket://{device}"
    options = ["--rfc2217", "0", "--socket", "0", *(["--viewers", "0"] if viewers else [])]
    with spawned("fastflight", "bridge", url, *options, pattern=SHARED) as process:
        kinds = {"rfc2217": RFC2217, "socket": RAW}
        ports = {VIEWERS if seen else kinds[kind]: address for seen, kind, address in PORT.findall(process.location)}
        yield process, ports


def _visits(bench: Bench, each: int) -> None:
    """Visit a board through both ports of a bridge, and another one without, with and without a soft reset."""
    with _board() as bridged, _board() as bare, bridge(bridged, baud=BAUD) as (_, ports):
        urls = {ALONE: bare, RAW: f"socket://{ports[RAW]}", RFC2217: f"rfc2217://{ports[RFC2217]}"}
        for reset in (False, True):
            cell: dict[str, Label] = {"part": VISIT, "soft reset": str(reset)}
            bench.measure(cell, {name: partial(_visit, url, reset) for name, url in urls.items()}, bench.rounds(each))


@contextlib.contextmanager
def _board() -> Iterator[str]:
    """Start a simulated board without a pace. Yield the path of its terminal."""
    with (
        tempfile.TemporaryDirectory(prefix="fastflight-bridge-") as folder,
        SimulatedBoard(Path(folder) / "b") as board,
    ):
        yield board.path


def _visit(url: str, soft_reset: bool) -> Figures:
    time.sleep(SETTLE_SECONDS)
    began = time.perf_counter()
    output = asyncio.run(_conversation(url, soft_reset))
    seconds = time.perf_counter() - began
    if output.stdout.strip() != ANSWER or output.stderr:
        raise DataError(f"1+1 gave {output.stdout!r} {output.stderr!r}")
    return {"time": 1e3 * seconds}


async def _conversation(url: str, soft_reset: bool) -> Output:
    port = await parse_url(url).aopen(VISIT_SECONDS)
    try:
        return await arun(_evaluate(soft_reset), port, timeout=VISIT_SECONDS)
    finally:
        await port.aclose()


def _evaluate(soft_reset: bool) -> Conversation[Output]:
    repl = RawRepl(paste=False)
    yield from repl.enter()
    if soft_reset:
        yield from repl.soft_reset()
        # A booting board may not read its input yet, and may start a program.
        yield from repl.recover()
    output = yield from repl.execute(CODE, VISIT_SECONDS)
    yield from repl.leave()
    return output


@contextlib.contextmanager
def _reached(name: str, device: str) -> Iterator[Wire]:
    """Start a null device, with a bridge in front of it unless it is measured alone. Yield a line to it."""
    with ExitStack() as stack:
        address = stack.enter_context(spawned(NULL_DEVICE, f"--{device}")).location
        if name != ALONE:
            address = stack.enter_context(bridge(address))[1][name]
        yield stack.enter_context(Wire.to(address, telnet=name == RFC2217))


def _round_trips(bench: Bench, device: str, count: int, round_: int) -> None:
    """Send single bytes there and back through all contenders, which take turns after each byte."""
    cell: dict[str, Label] = {"part": ROUND_TRIP, "device": device}
    with ExitStack() as stack:
        wires: dict[str, Wire] = {}
        for name in CONTENDERS:
            if bench.wants(cell, name):
                with bench.attempt(cell, name):
                    wires[name] = stack.enter_context(_reached(name, device))
                    wires[name].echo(count + WARM_UP)
        trips: Mapping[str, list[float]] = {name: [] for name in wires}
        for number in range(count + WARM_UP):
            for name in bench.order(list(wires), number):
                try:
                    trips[name].append(wires[name].round_trip())
                except (FastFlightError, OSError) as error:
                    bench.fail(f"{name}, {ROUND_TRIP}", error)
                    del wires[name]
        for name in wires:
            microseconds = 1e6 * np.array(trips[name][WARM_UP:])
            p99 = {"99_%": float(np.percentile(microseconds, 99))}
            bench.add(cell, name, round_, round_trip=median(microseconds), **p99)


def _bulk(name: str, device: str, kind: str, size: int) -> Figures:
    """Move content in both directions."""
    with _reached(name, device) as wire:
        up, down = (size / move(kind, size) / 1e6 for move in (wire.upload, wire.download))
    return {"to_the_device": up, "from_the_device": down}


def _idle(bench: Bench, device: str, seconds: float, count: int) -> None:
    """Measure bridges without traffic."""
    cell: dict[str, Label] = {"part": IDLE, "device": device, "sessions": count * (1 + IDLE_VIEWERS)}
    bench.measure(cell, {name: partial(_idle_cpu, name, device, seconds, count) for name in OURS}, [1])


def _idle_cpu(name: str, device: str, seconds: float, count: int) -> Figures:
    """Return the processor time of `count` bridges with their sessions, in percent of a core for all together."""
    with ExitStack() as stack:
        processes = [_idle_bridge(stack, name, device) for _ in range(count)]
        time.sleep(1.0)  # until they are idle
        began, before = time.perf_counter(), sum(process.cpu_seconds() for process in processes)
        time.sleep(seconds)
        used = sum(process.cpu_seconds() for process in processes) - before
        return {"CPU": 100 * used / (time.perf_counter() - began)}


def _idle_bridge(stack: ExitStack, name: str, device: str) -> Spawned:
    """Start a bridge with its sessions."""
    address = stack.enter_context(spawned(NULL_DEVICE, f"--{device}")).location
    process, ports = stack.enter_context(bridge(address, viewers=True))
    host, _, port = ports[VIEWERS].rpartition(":")
    for _ in range(IDLE_VIEWERS):
        stack.enter_context(socket.create_connection((host, int(port))))
    stack.enter_context(Wire.to(ports[name], telnet=name == RFC2217))
    return process


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
    ours=OURS,
    references=(ALONE,),
    run=run,
)
