"""Measures time, threads, memory and processor time of this process, and the processor time of other processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

MIB = 2**20
# On Linux this line has the peak memory of this process, in kilobytes. `ru_maxrss` is not used there: it starts at the
# peak of the parent process, which is often higher.
STATUS, PEAK_MEMORY = Path("/proc/self/status"), "VmHWM:"


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
        """End the measurement.

        Return seconds, threads, peak memory, percent of one core, and the percentage of all cores that was idle.
        """
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
    """Return the peak resident memory of this process."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    if STATUS.exists():
        lines = STATUS.read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(PEAK_MEMORY))
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS


def idle_percent(before: Any, after: Any) -> float:
    """Return the percentage of all cores that was idle between two `psutil.cpu_times()`."""
    spent = {name: getattr(after, name) - getattr(before, name) for name in before._fields}
    # The time of guests is already part of the time of users.
    total = sum(seconds for name, seconds in spent.items() if not name.startswith("guest"))
    return 100 * (spent["idle"] + spent.get("iowait", 0.0)) / total if total else 0.0


def cpu_seconds(process: psutil.Process) -> float:
    """Return the processor time of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)
