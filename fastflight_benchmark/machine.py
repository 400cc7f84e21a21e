"""Describes the machine on which a result was measured."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

CPU_INFO = Path("/proc/cpuinfo")
PACKAGES = {"fastflight": "fastflight-micropython", "pyarrow": "pyarrow", "numpy": "numpy"}


def describe() -> dict[str, Any]:
    """Return processor, cores, memory, system, versions, the time, and the load before the measurement."""
    return {
        "cpu": _cpu(),
        "cores": psutil.cpu_count(logical=True),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: importlib.metadata.version(package) for name, package in PACKAGES.items()},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_before": round(psutil.getloadavg()[0], 2),
    }


def in_one_line(machine: Mapping[str, Any]) -> str:
    """Return one line for the foot of a plot or a table."""
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['os']}, "
        f"Python {machine['python']}, pyarrow {machine['pyarrow']}, fastflight {machine['fastflight']}, "
        f"{machine['date']}, load before {machine['load_before']}"
    )


def _cpu() -> str:
    if CPU_INFO.exists():
        for line in CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
