"""Modules about the board: sys, os, vfs, io, gc, time, machine, micropython, select, errno, simulator."""

from __future__ import annotations

import os
import time
from collections import namedtuple
from typing import TYPE_CHECKING, Any

from fastflight.simulator.console import POLLIN, POLLOUT, Poll
from fastflight.simulator.files import MEMORY_STREAMS
from fastflight.simulator.oserror import ERRNO, ERRNO_NAMES
from fastflight.simulator.timers import Timer
from fastflight.simulator.trace import format_exception
from fastflight.simulator.uart import BoardReset, LineClosed

if TYPE_CHECKING:
    from fastflight.simulator.runtime import Runtime

# Ticks wrap at the limit of MicroPython's small integers.
TICKS_PERIOD = 1 << 30
MACHINE = "Simulated board with fastflight"
# Any six bytes: a MAC address with the bit for "locally administered".
UNIQUE_ID = b"\x02simul"
FREQUENCY = 240_000_000

Uname = namedtuple("Uname", "sysname nodename release version machine")


class Implementation(namedtuple("Implementation", "name version")):
    """`sys.implementation`."""

    _machine = MACHINE
    _mpy = 0

    def __repr__(self) -> str:
        return f"(name={self[0]!r}, version={self[1]!r}, _machine={self._machine!r}, _mpy={self._mpy})"


class Rtc:
    """`machine.RTC`: this computer's time in UTC, or what it was set to since the last reset."""

    def __init__(self, *identifier: int) -> None:
        pass

    # Each interpreter has a subclass of its own: all its `RTC()` objects share the clock.
    ahead_seconds = 0.0

    def datetime(self, moment: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
        """Return year, month, day, weekday (Monday is 0), hour, minute, second and 0; or set the clock to these."""
        if moment is None:
            now = time.gmtime(time.time() + self.ahead_seconds)
            return (*now[:3], now.tm_wday, *now[3:6], 0)
        type(self).ahead_seconds = _seconds((*moment[:3], *moment[4:7])) - time.time()
        return None


def contents(runtime: Runtime) -> dict[str, dict[str, Any]]:
    """Return the attributes of each module, by module name."""
    return {
        "sys": _sys(runtime),
        "os": _os(runtime),
        "io": {"open": runtime.files.open, "IOBase": object, **MEMORY_STREAMS},
        "gc": _gc(runtime),
        "time": _time(runtime),
        "machine": _machine(runtime),
        "micropython": _micropython(runtime),
        "select": {
            "poll": lambda: Poll(runtime.uart),
            "POLLIN": POLLIN,
            "POLLOUT": POLLOUT,
            "POLLERR": 8,
            "POLLHUP": 16,
        },
        "errno": {**ERRNO, "errorcode": dict(ERRNO_NAMES)},
        "vfs": {"mount": runtime.files.mount, "umount": runtime.files.unmount},
        "simulator": {**runtime.constants, "somebody_types": runtime.somebody_types},
    }


def soft_reset(*status: object) -> None:
    """Implement `machine.soft_reset` and `sys.exit`, which do the same on a board."""
    raise SystemExit(*status)


def _sys(runtime: Runtime) -> dict[str, Any]:
    def print_exception(error: BaseException, file: Any = runtime.stdout) -> None:
        file.write(format_exception(error))

    return {
        "argv": [],
        "byteorder": "little",
        "exit": soft_reset,
        "implementation": Implementation("micropython", (1, 27, 0, "")),
        "maxsize": (1 << 31) - 1,
        "modules": runtime.loaded,
        "path": runtime.path,
        "platform": runtime.platform,
        "print_exception": print_exception,
        "stderr": runtime.stdout,
        "stdin": runtime.stdin,
        "stdout": runtime.stdout,
        "version": "3.4.0; MicroPython v1.27.0 (sim) on 2026-01-01",
        "version_info": (3, 4, 0),
    }


def _os(runtime: Runtime) -> dict[str, Any]:
    files = runtime.files
    return {
        "chdir": files.chdir,
        "getcwd": files.getcwd,
        "ilistdir": files.entries,
        "listdir": files.names,
        "mkdir": files.mkdir,
        "mount": files.mount,
        "remove": files.remove,
        "rename": files.rename,
        "rmdir": files.rmdir,
        "sep": "/",
        "stat": files.stat,
        "statvfs": files.statvfs,
        "sync": lambda: None,
        "umount": files.unmount,
        "uname": lambda: Uname("simulator", "simulator", "1.27.0", "v1.27.0 (sim) on 2026-01-01", MACHINE),
        "unlink": files.remove,
        "urandom": os.urandom,
    }


def _gc(runtime: Runtime) -> dict[str, Any]:
    return {
        "collect": lambda: 0,
        "disable": lambda: None,
        "enable": lambda: None,
        "isenabled": lambda: True,
        "mem_alloc": lambda: runtime.heap - runtime.mem_free(),
        "mem_free": runtime.mem_free,
        "threshold": lambda *amount: -1,
    }


def _time(runtime: Runtime) -> dict[str, Any]:
    def ticks_diff(end: int, start: int) -> int:
        half = TICKS_PERIOD // 2
        return (end - start + half) % TICKS_PERIOD - half

    def calendar(seconds: float | None = None) -> tuple[int, ...]:
        return tuple(time.gmtime(seconds))[:8]

    return {
        "gmtime": calendar,
        "localtime": calendar,
        "mktime": lambda moment: _seconds(moment),
        "sleep": runtime.sleep,
        "sleep_ms": lambda count: runtime.sleep(count / 1e3),
        "sleep_us": lambda count: runtime.sleep(count / 1e6),
        "ticks_add": lambda ticks, delta: (ticks + delta) % TICKS_PERIOD,
        "ticks_cpu": lambda: time.monotonic_ns() % TICKS_PERIOD,
        "ticks_diff": ticks_diff,
        "ticks_ms": lambda: time.monotonic_ns() // 1_000_000 % TICKS_PERIOD,
        "ticks_us": lambda: time.monotonic_ns() // 1_000 % TICKS_PERIOD,
        "time": lambda: int(time.time()),
        "time_ns": time.time_ns,
    }


def _seconds(moment: tuple[int, ...]) -> int:
    """Return the seconds since 1970 of a calendar tuple. Years are counted from March, so that leap days come last."""
    year, month, day, hour, minute, second = moment[:6]
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 1 - 719_468
    return ((days * 24 + hour) * 60 + minute) * 60 + second


def _machine(runtime: Runtime) -> dict[str, Any]:
    def reset() -> None:
        runtime.uart.reset()
        raise BoardReset

    def bootloader(*timeout: int) -> None:
        """Leave MicroPython: the line goes away."""
        raise LineClosed

    return {
        "PWRON_RESET": 1,
        "RTC": type("RTC", (Rtc,), {"__module__": "machine"}),
        "SOFT_RESET": 5,
        "Timer": type("Timer", (Timer,), {"timers": runtime.timers, "__module__": "machine"}),
        "bootloader": bootloader,
        "freq": lambda *hertz: FREQUENCY,
        "idle": lambda: None,
        "reset": reset,
        "reset_cause": lambda: 1,
        "soft_reset": soft_reset,
        "unique_id": lambda: UNIQUE_ID,
    }


def _micropython(runtime: Runtime) -> dict[str, Any]:
    def kbd_intr(char: int) -> None:
        runtime.uart.interrupt_char = char

    def mem_info(*_: object) -> None:
        used = runtime.heap - runtime.mem_free()
        runtime.stdout.write(f"GC: total: {runtime.heap}, used: {used}, free: {runtime.mem_free()}\n")

    return {
        "alloc_emergency_exception_buf": lambda size: None,
        "const": lambda value: value,
        "kbd_intr": kbd_intr,
        "mem_info": mem_info,
        "native": lambda function: function,
        "opt_level": lambda *level: 0,
        "schedule": lambda function, argument: function(argument),
        "viper": lambda function: function,
    }
