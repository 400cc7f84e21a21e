"""Measures bridges without traffic: processor time and wake-ups of their processes.

There are fifty sessions on five bridges. Each bridge has nine viewers and one writer, alternately on the raw and on the
RFC 2217 port. In front of a terminal, a bridge with an RFC 2217 writer reads the modem lines twice a second, because
the system does not report changes. A socket has no modem lines.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil

from fastflight_benchmark.cores import cpu_seconds
from fastflight_benchmark.suites.bridge import rows, servers
from fastflight_benchmark.suites.bridge.rows import Row
from fastflight_benchmark.suites.bridge.servers import RAW, RFC2217, VIEWERS
from fastflight_benchmark.suites.bridge.traffic import BARE, SOCKET, TERMINAL
from fastflight_benchmark.suites.bridge.wire import Wire

BRIDGES, VIEWERS_EACH = 5, 9
SESSIONS = BRIDGES * (1 + VIEWERS_EACH)
CPU, WAKE_UPS = f"{SESSIONS} sessions: processor", f"{SESSIONS} sessions: wake-ups"
# The pause after connecting, until the bridges are idle.
SETTLE_SECONDS = 1.0


def watched(seconds: float, number: int, *, terminals: bool) -> Iterator[Row]:
    """Yield percent of a core and voluntary context switches per second, of all bridges together."""
    cases: list[tuple[str, tuple[str, ...]]] = [(SOCKET, (RAW, RFC2217))]
    if terminals:
        cases += [(TERMINAL, (RAW,)), (TERMINAL, (RFC2217,))]
    for device, ports in cases:
        with ExitStack() as stack:
            pids = [_bridge(stack, device == TERMINAL, ports[place % len(ports)]) for place in range(BRIDGES)]
            time.sleep(SETTLE_SECONDS)
            began, cpu, switches = time.perf_counter(), _cpu(pids), _switches(pids)
            time.sleep(seconds)
            passed = time.perf_counter() - began
            for work, unit, value in (
                (CPU, rows.PERCENT, 100 * (_cpu(pids) - cpu) / passed),
                (WAKE_UPS, rows.PER_SECOND, (_switches(pids) - switches) / passed),
            ):
                writers = " and ".join(ports)
                yield Row(rows.IDLE, servers.FASTFLIGHT, writers, device, BARE, work, "", number, unit, value)


def _bridge(stack: ExitStack, terminal: bool, port: str) -> int:
    """Start a bridge with its sessions. Return the id of its process."""
    device = stack.enter_context(servers.null_device(terminal=terminal))
    bridge = stack.enter_context(servers.fastflight(device, viewers=True))
    for _ in range(VIEWERS_EACH):
        stack.enter_context(socket.create_connection(bridge.ports[VIEWERS]))
    stack.enter_context(Wire.to(bridge.ports[port], port))
    return bridge.pid


def _cpu(pids: Sequence[int]) -> float:
    """Return the seconds of processor time so far."""
    return sum(cpu_seconds(psutil.Process(pid)) for pid in pids)


def _switches(pids: Sequence[int]) -> float:
    """Return how often their threads waited so far (voluntary context switches); NaN on systems without `/proc`."""
    count = 0.0
    for pid in pids:
        tasks = Path(f"/proc/{pid}/task")
        if not tasks.exists():
            return float("nan")
        for task in tasks.iterdir():
            with contextlib.suppress(OSError):  # the thread has ended
                count += _voluntary((task / "status").read_text(encoding="ascii", errors="replace"))
    return count


def _voluntary(status: str) -> int:
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary_ctxt_switches"))
