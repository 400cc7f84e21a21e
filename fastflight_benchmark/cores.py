"""Measures time, threads, memory and processor time of this process, and the processor time of others."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

MIB = 2**20
# Linux says here, in kilobytes, what this process had since it began. Its `ru_maxrss` begins with what the process had
# that started this one, which is often more.
STATUS, MOST = Path("/proc/self/status"), "VmHWM:"


class Usage:
    """Measures this process and the processes `others` between `begin` and `end`."""

    def __init__(self, others: Sequence[int]) -> None:
        self._own = psutil.Process()
        self._others = [psutil.Process(pid) for pid in others]

    def begin(self) -> None:
        """Start the measurement."""
        self._cores = psutil.cpu_times()
        self._cpu = cpu_seconds(self._own)
        self._others_cpu = sum(map(cpu_seconds, self._others))
        self._began = time.perf_counter()

    def end(self) -> dict[str, Any]:
        """End it. Return seconds, threads, the most memory so far, percent of a core, and percent of all cores idle."""
        seconds = time.perf_counter() - self._began
        return {
            "seconds": seconds,
            "threads": self._own.num_threads(),
            "peak_mb": peak_bytes() / MIB,
            "cpu_percent": 100 * (cpu_seconds(self._own) - self._cpu) / seconds,
            "boards_cpu_percent": 100 * (sum(map(cpu_seconds, self._others)) - self._others_cpu) / seconds,
            "idle_percent": idle_percent(self._cores, psutil.cpu_times()),
        }


def peak_bytes() -> int:
    """Return the most memory that this process has had resident."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    if STATUS.exists():
        return next(1024 * int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith(MOST))
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS says it in bytes


def idle_percent(before: Any, after: Any) -> float:
    """Return the percentage of all cores that was idle between two `psutil.cpu_times()`."""
    spent = {name: getattr(after, name) - getattr(before, name) for name in before._fields}
    # Guests' time is in the users' too.
    total = sum(seconds for name, seconds in spent.items() if not name.startswith("guest"))
    return 100 * (spent["idle"] + spent.get("iowait", 0.0)) / total if total else 0.0


def cpu_seconds(process: psutil.Process) -> float:
    """Return the processor time of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)
