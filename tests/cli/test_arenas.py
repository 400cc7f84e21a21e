"""The arenas of glibc: how many a server has, and who decides."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from fastflight.cli.arenas import ARENAS, OWN, TUNABLES

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has no arenas")

# Threads that all have memory of their own at once, and what glibc says of its arenas then.
COUNTED = """
import ctypes, threading
from fastflight.cli.arenas import few_arenas
few_arenas()
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


def arenas(**settings: str) -> int:
    own = {name: value for name, value in os.environ.items() if name not in (OWN, TUNABLES)}
    done = subprocess.run(
        [sys.executable, "-c", COUNTED], env=own | settings, capture_output=True, text=True, timeout=60
    )
    assert not done.stderr
    return int(done.stdout)


def test_threads_share_two() -> None:
    assert arenas() <= ARENAS


@pytest.mark.parametrize("settings", [{OWN: "5"}, {TUNABLES: "glibc.malloc.arena_max=5"}])
def test_whoever_says_how_many_has_them(settings: dict[str, str]) -> None:
    assert arenas(**settings) == 5
