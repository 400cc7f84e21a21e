"""Visits: short connections to simulated boards, through each port of a bridge, through socat, and without a bridge.

Every server has a board of its own, because a terminal has one reader. Where fastflight and socat are compared
directly, they swap boards halfway, so that a slower board process affects both.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fastflight.errors import FastFlightError
from fastflight_benchmark.simulated import SimulatedBoard
from fastflight_benchmark.suites.bridge import rows, servers, visits
from fastflight_benchmark.suites.bridge.rows import NO_SERVER, Row
from fastflight_benchmark.suites.bridge.servers import RAW, RFC2217, NotInstalled

BOARD = "board"
BAUD = 115_200
RESUME, SOFT_RESET = "resume", "soft reset"
# The pause between two visits, in which server and board finish the last one: a small write to a serial port may wait
# 50 ms to be sent together with others.
SETTLE_SECONDS = 0.1
SCHEMES = {RAW: "socket", RFC2217: "rfc2217"}
STARTS: Mapping[str, Sequence[str]] = {
    "python -c pass": ("-c", "pass"),
    "import mpremote": ("-c", "import mpremote.main"),
}


def visited(rounds: Mapping[str, int]) -> Iterator[Row]:
    """Yield the visits of each client, as many as `rounds` says. Clients take turns; each round reverses the order."""
    with _board() as bridged, _board() as bare, servers.fastflight(bridged, baud=BAUD) as bridge:
        urls = {port: url(bridge.ports[port], port) for port in (RAW, RFC2217)}
        with asyncio.Runner() as runner:
            clients = visits.visits(runner)
            cases = [
                (client, port, soft_reset)
                for client in clients
                for port in (RAW, RFC2217, "")
                for soft_reset in (False, True)
            ]
            for number in range(1, max(rounds.values()) + 1):
                for client, port, soft_reset in cases if number % 2 else cases[::-1]:
                    if number <= rounds[client]:
                        server = bridge.name if port else NO_SERVER
                        yield _visit(clients[client], urls.get(port, bare), soft_reset, server, port, client, number)
                if number <= rounds[visits.MPREMOTE]:
                    yield from _python_starts(number)


def beside_socat(rounds: int) -> Iterator[Row]:
    """Yield times of `mpremote resume eval` through our raw port and a bare socat, in pairs, with their ratio."""
    if not rounds:
        return
    with _board() as first, _board() as second:
        for half, (ours, theirs) in enumerate(((first, second), (second, first))):
            with servers.fastflight(ours, baud=BAUD) as bridge:
                address = url(bridge.ports[RAW], RAW)
                _visit(visits.sync, address, False, bridge.name, RAW, visits.SYNC, 0)
                for place in range(rounds // 2 + (half and rounds % 2)):
                    number = half * (rounds // 2) + place + 1
                    seconds = {}
                    for server in (bridge.name, servers.SOCAT) if number % 2 else (servers.SOCAT, bridge.name):
                        row = (
                            _visit_socat(theirs, number)
                            if server == servers.SOCAT
                            else _visit_bridge(server, address, number)
                        )
                        seconds[server] = row.value
                        yield row
                    ratio = seconds[bridge.name] / seconds[servers.SOCAT]
                    if ratio == ratio:
                        yield Row(
                            rows.PAIRS, "fastflight / socat", RAW, BOARD, visits.MPREMOTE, RESUME, "", number,
                            rows.RATIO, ratio,
                        )  # fmt: skip


def url(endpoint: servers.Endpoint, port: str) -> str:
    """Return the URL of a port for fastflight's client, pyserial and mpremote."""
    host, number = endpoint
    return f"{SCHEMES[port]}://{host}:{number}"


def _visit_bridge(server: str, address: str, number: int) -> Row:
    return _visit(visits.mpremote, address, False, server, RAW, visits.MPREMOTE, number, rows.PAIRS)


def _visit_socat(board: str, number: int) -> Row:
    try:
        with servers.socat(board) as server:
            return _visit_bridge(server.name, url(server.ports[RAW], RAW), number)
    except NotInstalled as error:
        return Row(
            rows.PAIRS, servers.SOCAT, RAW, BOARD, visits.MPREMOTE, RESUME, "", number, rows.SECONDS,
            error=error.what, missing=True,
        )  # fmt: skip


def _visit(
    visit: visits.Visit,
    address: str,
    soft_reset: bool,
    server: str,
    port: str,
    client: str,
    number: int,
    part: str = rows.CONNECT,
) -> Row:
    time.sleep(SETTLE_SECONDS)
    seconds, failure = float("nan"), ""
    began = time.perf_counter()
    try:
        visit(address, soft_reset)
        seconds = time.perf_counter() - began
    except FastFlightError as error:
        failure = str(error)
    work = SOFT_RESET if soft_reset else RESUME
    return Row(part, server, port, BOARD, client, work, "", number, rows.SECONDS, seconds, failure)


def _python_starts(number: int) -> Iterator[Row]:
    for work, arguments in STARTS.items():
        began = time.perf_counter()
        visits.started(*arguments)
        seconds = time.perf_counter() - began
        yield Row(rows.START, NO_SERVER, "", "", visits.MPREMOTE, work, "", number, rows.SECONDS, seconds)


@contextlib.contextmanager
def _board() -> Iterator[str]:
    """Start a simulated board without a pace. Yield the path of its terminal."""
    with (
        tempfile.TemporaryDirectory(prefix="fastflight-bridge-") as folder,
        SimulatedBoard(Path(folder) / "b") as board,
    ):
        yield board.path
