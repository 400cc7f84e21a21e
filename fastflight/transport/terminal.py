"""The pseudo-terminal of a child process: its interrupts, and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

# A child that was asked to exit gets this long before it is killed.
GRACE_SECONDS = 2.0
POLL_SECONDS = 0.01
# Signal 0 only checks that the process group exists.
NO_SIGNAL = 0
CTRL_C = b"\x03"
# The index in the result of `termios.tcgetattr`.
LOCAL_FLAGS = 3


class Terminal:
    """The terminal of the child `process`.

    A child that leaves the terminal as it is, such as an emulator, gets Ctrl-C as a byte. MicroPython's unix port
    changes the mode of the terminal: it reads Ctrl-C as a byte at its prompts, and catches SIGINT instead while it runs
    code. While such a child catches SIGINT, it gets the signal instead of the byte.
    """

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self.descriptor = descriptor
        self.process = process
        self._manages_terminal = False
        self._ending = threading.Lock()
        self._closed = False

    def interrupting(self, data: bytes) -> bytes:
        """Send SIGINT for a Ctrl-C in `data` if the child catches it. Return the bytes to write to the terminal."""
        if self._manages_terminal and CTRL_C not in data:
            return data
        marked = _is_marked(self.descriptor)
        self._manages_terminal = self._manages_terminal or not marked
        if (
            CTRL_C not in data
            or not self._manages_terminal
            or not _catches_interrupts(self.process.pid, default=marked)
        ):
            return data
        self.process.send_signal(signal.SIGINT)
        return data.replace(CTRL_C, b"")

    def end(self, patience: float = 0.0) -> int:
        """Hang up, ask the child's process group to exit, and kill what is left of it. Return the exit code.

        The child first has `patience` seconds to exit by itself.
        """
        with self._ending:
            if not self._closed:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(patience)
                self._closed = True
                _end(self.descriptor, self.process)
        return self.process.wait()


def mark(terminal: int) -> None:
    """Set a flag of the raw `terminal` that has no effect there. A child that sets its own mode clears the flag."""
    import termios

    attributes = termios.tcgetattr(terminal)
    attributes[LOCAL_FLAGS] |= termios.ECHOE
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


def _is_marked(terminal: int) -> bool:
    """Return whether the terminal still has the flag of `mark`: then the child has not changed its mode.

    `terminal` is a descriptor of either side.
    """
    import termios

    try:
        return bool(termios.tcgetattr(terminal)[LOCAL_FLAGS] & termios.ECHOE)
    except termios.error:  # the terminal has hung up
        return True


def _catches_interrupts(process: int, *, default: bool) -> bool:
    """Return whether the process catches SIGINT, or `default` if the system does not tell."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return default
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (signal.SIGINT - 1) & 1)


def _end(descriptor: int, child: subprocess.Popen[bytes]) -> None:
    """Hang up, ask the child's process group to exit, and kill what is left of it."""
    os.close(descriptor)
    _signal(child, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_SECONDS)
    # The other processes of the group get the same time.
    while _signal(child, NO_SIGNAL) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    _signal(child, signal.SIGKILL)
    child.wait()


def _signal(child: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to the child's process group. Return false if all its processes have exited."""
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):  # macOS raises the latter for a group that only waits to be reaped
        return False
    return True
