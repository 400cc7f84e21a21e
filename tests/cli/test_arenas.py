"""The arenas of glibc: how many a server has, what becomes of what is free in them, and who decides."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from fastflight.cli.arenas import ARENAS, OWN_ARENAS, OWN_TRIM, TUNABLES

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has no arenas")

# Threads that all have memory of their own at once, and what glibc says of its arenas then.
COUNTED = """
import ctypes, threading
from fastflight.cli.arenas import hold_little
hold_little()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.open_memstream.restype = ctypes.c_void_p
libc.malloc_info.argtypes = ctypes.c_int, ctypes.c_void_p
libc.fclose.argtypes = (ctypes.c_void_p,)
all_there = threading.Barrier(33)
def have():
    libc.malloc(5000)
    all_there.wait()
threads = [threading.Thread(target=have) for _ in range(32)]
for thread in threads:
    thread.start()
all_there.wait()
text, size = ctypes.c_char_p(), ctypes.c_size_t()
stream = libc.open_memstream(ctypes.byref(text), ctypes.byref(size))
libc.malloc_info(0, stream)
libc.fclose(stream)
print(text.value.count(b"<heap "))
"""


# Blocks in an arena, of which each second one is freed: most that is resident then is free, and none is at the end.
KEPT = """
import ctypes, sys, threading, time
from fastflight.cli import arenas
arenas.TRIM_SECONDS = 0.01
arenas.hold_little()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = (ctypes.c_void_p,)
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
blocks = [libc.malloc(100_000) for _ in range(1000)]
for block in blocks:
    ctypes.memset(block, 1, 100_000)
full = resident()
for block in blocks[::2]:
    libc.free(block)
until = time.monotonic() + float(sys.argv[1])
while resident() > full - 40_000_000 and time.monotonic() < until:
    time.sleep(0.01)
print((full - resident()) // 40_000_000)
"""


def said(code: str, *arguments: str, **settings: str) -> int:
    """The number that a process prints which has glibc's variables as given."""
    own = {name: value for name, value in os.environ.items() if name not in (OWN_ARENAS, OWN_TRIM, TUNABLES)}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=own | settings, capture_output=True, text=True, timeout=120)
    assert not done.stderr
    return int(done.stdout)


def test_threads_share_two() -> None:
    assert said(COUNTED) <= ARENAS


@pytest.mark.parametrize("settings", [{OWN_ARENAS: "5"}, {TUNABLES: "glibc.malloc.arena_max=5"}])
def test_whoever_says_how_many_has_them(settings: dict[str, str]) -> None:
    assert said(COUNTED, **settings) == 5


def test_what_is_free_goes_back() -> None:
    assert said(KEPT, "60") == 1


@pytest.mark.parametrize("settings", [{OWN_TRIM: "200000000"}, {TUNABLES: "glibc.malloc.trim_threshold=200000000"}])
def test_whoever_says_what_is_kept_keeps_it(settings: dict[str, str]) -> None:
    assert said(KEPT, "0.5", **settings) == 0
