"""Measures the processor time of processes, and the share of all cores that was idle."""

from __future__ import annotations

from typing import Any

import psutil

MIB = 2**20


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
