"""What bridges cost while nobody says anything: processor time and wake-ups of their processes.

Fifty sessions on five bridges: each has a writer, on the raw port or the RFC 2217 one by turns, and nine viewers. In
front of a terminal an RFC 2217 writer has its bridge ask for the modem lines twice a second, as no system tells of
their changes; in front of a socket there is nothing to ask.
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
# For what connecting started to come to rest.
SETTLE_SECONDS = 1.0


def watched(seconds: float, number: int, *, terminals: bool) -> Iterator[Row]:
    """Percent of a core, and voluntary context switches per second, of all bridges together."""
    behind: list[tuple[str, tuple[str, ...]]] = [(SOCKET, (RAW, RFC2217))]
    if terminals:
        behind += [(TERMINAL, (RAW,)), (TERMINAL, (RFC2217,))]
    for device, ports in behind:
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
    """A bridge with its sessions: the process's id."""
    device = stack.enter_context(servers.null_device(terminal=terminal))
    bridge = stack.enter_context(servers.fastflight(device, viewers=True))
    for _ in range(VIEWERS_EACH):
        stack.enter_context(socket.create_connection(bridge.ports[VIEWERS]))
    stack.enter_context(Wire.to(bridge.ports[port], port))
    return bridge.pid


def _cpu(pids: Sequence[int]) -> float:
    """Seconds of processor time so far."""
    return sum(cpu_seconds(psutil.Process(pid)) for pid in pids)


def _switches(pids: Sequence[int]) -> float:
    """Times that a thread of them gave the processor away so far; NaN where the system does not tell."""
    count = 0.0
    for pid in pids:
        tasks = Path(f"/proc/{pid}/task")
        if not tasks.exists():
            return float("nan")
        for task in tasks.iterdir():
            with contextlib.suppress(OSError):  # a thread that ended meanwhile
                count += _voluntary((task / "status").read_text(encoding="ascii", errors="replace"))
    return count


def _voluntary(status: str) -> int:
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary_ctxt_switches"))
