"""The process of a server: its limit on descriptors, the signals that end it, and that it ends."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from fastflight.app.process import ARENAS, ShortageLog, watch_process
from fastflight.runtime.process import has_descriptors
from fastflight.runtime.stream_registry import StreamRegistry

if sys.platform == "win32":
    pytest.skip("Windows has no such limit, and other errors for a pipe without a reader", allow_module_level=True)
import resource

# For Python to start on a busy computer.
SECONDS = 60.0
# A thread that hangs, and what still waits to be written.
HANGS = """
import sys, threading
from fastflight.app.process import abandon, end_within, leave
threading.Thread(target=threading.Event().wait).start()
sys.stdout.write("one more line")
"""
# Python lists such a thread for ever, and refuses to join it.
START_IS_INTERRUPTED = """
import contextlib
from unittest.mock import patch
with contextlib.suppress(KeyboardInterrupt), patch("threading._start_new_thread", side_effect=KeyboardInterrupt):
    threading.Thread(target=print).start()
"""
ENDS = {
    "a command that is given up": ("abandon(130)", 130),
    "a command that is given up while a thread starts": (f"{START_IS_INTERRUPTED}abandon(130)", 130),
    "a server that is closed": ("leave()", 0),
    "a server that does not close": ("with end_within(0): sys.stdin.read()", 1),
}


@contextlib.contextmanager
def without_any() -> Iterator[None]:
    """This process may open no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(2)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_soft_limit_becomes_the_hard_one() -> None:
    code = (
        "import resource\n"
        "from fastflight.app.process import raise_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))\n"
        "raise_limit()\n"
        "raise_limit()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=True)
    assert done.stdout == "(300, 300)\n"


def test_a_server_without_descriptors_is_overloaded_for_as_long() -> None:
    registry = StreamRegistry()
    with without_any():
        assert not has_descriptors()
        assert registry.state == "overloaded"
    assert has_descriptors()
    assert registry.state == "serving"


def test_a_shortage_is_logged_once_and_not_again_within_a_minute() -> None:
    now, some = 0.0, True
    shortages = ShortageLog(lambda: some, lambda: now)

    def warns(seconds: float, has_some: bool) -> bool:
        nonlocal now, some
        now, some = now + seconds, has_some
        with capture_logs() as lines:
            shortages.check()
        return [line["log_level"] for line in lines] == ["warning"]

    assert not warns(2, True)
    assert warns(2, False)
    assert not warns(100, False)  # the same shortage
    assert not warns(2, True)
    assert warns(2, False)
    assert not warns(2, True)
    assert not warns(2, False)  # another one, so soon
    assert not warns(2, True)
    assert warns(60, False)


def test_watching_leaves_no_thread() -> None:
    with watch_process():
        pass


# Threads that all allocate at once, and the number of arenas that glibc then reports.
COUNT_ARENAS = """
import ctypes, threading
from fastflight.app.process import limit_arenas
limit_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.open_memstream.restype = ctypes.c_void_p
libc.malloc_info.argtypes = ctypes.c_int, ctypes.c_void_p
libc.fclose.argtypes = (ctypes.c_void_p,)
together = threading.Barrier(33)
def allocate():
    libc.malloc(5000)
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(32)]
for thread in threads:
    thread.start()
together.wait()
text, size = ctypes.c_char_p(), ctypes.c_size_t()
stream = libc.open_memstream(ctypes.byref(text), ctypes.byref(size))
libc.malloc_info(0, stream)
libc.fclose(stream)
print(text.value.count(b"<heap "))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no arenas")
@pytest.mark.parametrize(
    ("settings", "arenas"),
    [({}, ARENAS), ({"MALLOC_ARENA_MAX": "5"}, 5), ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=5"}, 5)],
    ids=["by default", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"],
)
def test_the_number_of_arenas(settings: dict[str, str], arenas: int) -> None:
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
    }
    command = [sys.executable, "-c", COUNT_ARENAS]
    done = subprocess.run(
        command, env=inherited | settings, capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert int(done.stdout) == arenas


# Blocks of which each second one is freed, so that half of what is resident is free, and none of it is at the end.
RETURN_MEMORY = """
import ctypes
from fastflight.app import process
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
if trim := process.memory_trim():
    trim()
print(int((full - resident()) / 40_000_000))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries decide for themselves")
@pytest.mark.parametrize(
    ("settings", "returned"),
    [({}, 1), ({"MALLOC_TRIM_THRESHOLD_": "1000000000"}, 0)],
    ids=["by default", "MALLOC_TRIM_THRESHOLD_"],
)
def test_free_memory_is_returned(settings: dict[str, str], returned: int) -> None:
    own = ("MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
    inherited = {name: value for name, value in os.environ.items() if name not in own}
    command = [sys.executable, "-c", RETURN_MEMORY]
    done = subprocess.run(
        command, env=inherited | settings, capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert int(done.stdout) == returned


def test_a_signal_that_another_thread_is_given_is_heard() -> None:
    """The system may choose any thread; the main one is not woken by that."""
    code = (
        "import signal, threading\n"
        "from fastflight.app.process import stop_signal\n"
        "other = threading.Thread(target=threading.Event().wait, daemon=True)\n"
        "other.start()\n"
        "with stop_signal() as wait:\n"
        "    threading.Timer(0.2, signal.pthread_kill, (other.ident, signal.SIGTERM)).start()\n"
        "    wait()\n"
        "print('heard')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=True)
    assert done.stdout == "heard\n"


@pytest.mark.parametrize(("code", "exit_code"), ENDS.values(), ids=ENDS.keys())
def test_a_process_whose_reader_has_gone_ends_all_the_same(code: str, exit_code: int) -> None:
    """As in `fastflight tail demo | less`: Ctrl-C ends both, and `less` is the quicker one."""
    read, write = os.pipe()
    os.close(read)
    command, buffered = [sys.executable, "-c", HANGS + code], os.environ | {"PYTHONUNBUFFERED": ""}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=write, stderr=write, env=buffered) as child:
        os.close(write)
        try:
            assert child.wait(SECONDS) == exit_code
        finally:
            child.kill()
