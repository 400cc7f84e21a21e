"""The input of `fastflight repl`: the keys of a terminal, or the text of a pipe or a file.

    with Keyboard() as keyboard:
        keys = keyboard.read()

In the block a terminal is raw: it shows nothing by itself, and gives every key at once as the bytes that a terminal
sends for it, also Ctrl-C, Ctrl-D and the arrows. Its old settings come back at the end of the block, however it ends.
The output of the terminal is still processed, so that a line feed begins a line. Other input stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from types import TracebackType
from typing import Self, TextIO

from fastflight.errors import RequestError

READ_BYTES = 4096


def standard_input() -> TextIO:
    """Return `sys.stdin`. Raises `RequestError` if this process was started without one."""
    if sys.stdin is None:
        raise RequestError("it is closed", where="standard input", hint="Give a file or a pipe: < FILE")
    return sys.stdin


if sys.platform == "win32":
    import ctypes
    import msvcrt

    # How often the console is asked for a key: it cannot be waited for together with `wake`.
    POLL_SECONDS = 0.01
    # The sequences of a terminal for the keys that a console reports with a prefix and these letters.
    KEYS = {"H": "A", "P": "B", "M": "C", "K": "D", "G": "H", "O": "F", "S": "3~", "R": "2~", "I": "5~", "Q": "6~"}
    PREFIXES = ("\x00", "\xe0")
    STD_OUTPUT_HANDLE = -11
    # ENABLE_PROCESSED_OUTPUT, ENABLE_WRAP_AT_EOL_OUTPUT and ENABLE_VIRTUAL_TERMINAL_PROCESSING.
    OUTPUT_MODE = 0x7

    class Keyboard:
        """The input of this process. See the module."""

        def __init__(self) -> None:
            self._descriptor = standard_input().fileno()
            self.is_terminal = os.isatty(self._descriptor)
            self._woken = threading.Event()
            self._interrupts = 0
            self._handler: signal._HANDLER = signal.SIG_DFL

        def read(self, seconds: float | None = None) -> bytes | None:
            """Return the next bytes, empty at the end of the input; None after `seconds`, or after `wake`."""
            if not self.is_terminal:
                return os.read(self._descriptor, READ_BYTES)
            left = seconds
            while not (keys := self._pressed()) and (left is None or left > 0):
                if self._woken.wait(POLL_SECONDS):
                    self._woken.clear()
                    return None
                left = None if left is None else left - POLL_SECONDS
            return keys or None

        def wake(self) -> None:
            """Have `read` return None, now or at its next call. From any thread."""
            self._woken.set()

        def _pressed(self) -> bytes:
            keys, self._interrupts = "\x03" * self._interrupts, 0
            while msvcrt.kbhit():
                key = msvcrt.getwch()
                keys += f"\x1b[{KEYS[code]}" if key in PREFIXES and (code := msvcrt.getwch()) in KEYS else key
            return keys.encode("utf-8", "replace")

        def _interrupt(self, *_: object) -> None:
            self._interrupts += 1

        def __enter__(self) -> Self:
            if self.is_terminal:
                self._handler = signal.signal(signal.SIGINT, self._interrupt)
                output = ctypes.windll.kernel32.GetStdHandle(STD_OUTPUT_HANDLE)
                ctypes.windll.kernel32.SetConsoleMode(output, OUTPUT_MODE)
            return self

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
        ) -> None:
            if self.is_terminal:
                signal.signal(signal.SIGINT, self._handler)

else:
    import select
    import termios
    import tty

    class Keyboard:
        """The input of this process. See the module."""

        def __init__(self) -> None:
            self._descriptor = standard_input().fileno()
            self.is_terminal = os.isatty(self._descriptor)
            self._resources = contextlib.ExitStack()

        def read(self, seconds: float | None = None) -> bytes | None:
            """Return the next bytes, empty at the end of the input; None after `seconds`, or after `wake`."""
            ready, _, _ = select.select([self._woken, self._descriptor], [], [], seconds)
            if self._woken in ready:
                os.read(self._woken, 1)
                return None
            return os.read(self._descriptor, READ_BYTES) if ready else None

        def wake(self) -> None:
            """Have `read` return None, now or at its next call. From any thread."""
            with contextlib.suppress(BlockingIOError):  # a full pipe wakes it as well
                os.write(self._waking, b".")

        def __enter__(self) -> Self:
            self._woken, self._waking = os.pipe()
            self._resources.callback(os.close, self._woken)
            self._resources.callback(os.close, self._waking)
            if threading.current_thread() is threading.main_thread():  # only the main thread handles signals
                # The system may deliver a signal to another thread, or just before `select`, which then goes on.
                os.set_blocking(self._waking, False)
                before = signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)
                self._resources.callback(signal.set_wakeup_fd, before)
            if self.is_terminal:
                settings = termios.tcgetattr(self._descriptor)
                self._resources.callback(termios.tcsetattr, self._descriptor, termios.TCSANOW, settings)
                tty.setraw(self._descriptor, termios.TCSANOW)
                raw = termios.tcgetattr(self._descriptor)
                raw[1] = settings[1]
                termios.tcsetattr(self._descriptor, termios.TCSANOW, raw)
            return self

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
        ) -> None:
            self._resources.close()
