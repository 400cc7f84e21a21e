"""The board's standard streams and `select.poll`, over its UART.

As in MicroPython, text output turns LF into CRLF and text input turns CR into LF; the `buffer` of either stream passes
bytes unchanged. A read waits until it has the whole requested amount.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastflight.simulator.uart import Uart

POLLIN = 1
POLLOUT = 4
# The longest line that `readline` collects before it returns what it has: a board has no memory for more.
MAX_LINE = 64 * 1024
LINE_END = re.compile(rb"\n")
TEXT_LINE_END = re.compile(rb"[\r\n]")


class BytesIn:
    """`sys.stdin.buffer`."""

    def __init__(self, uart: Uart, heap: Callable[[], int]) -> None:
        self._uart = uart
        self._heap = heap

    def read(self, count: int = -1) -> Any:
        """Read exactly `count` bytes. Without a count, wait for ever, as on a board: the stream never ends."""
        if count < 0:
            self._uart.sleep_until(float("inf"))
        if count > self._heap():
            raise MemoryError(f"memory allocation failed, allocating {count} bytes")
        return bytes(self._uart.read(count))

    def readinto(self, buffer: Any, count: int | None = None) -> int:
        view = memoryview(buffer).cast("B")
        view = view if count is None else view[:count]
        self._uart.read_into(view)
        return len(view)

    def readline(self, count: int = MAX_LINE) -> Any:
        return self._line(LINE_END, count)

    def _line(self, end: re.Pattern[bytes], count: int) -> bytes:
        line = b""
        while len(line) < count and not end.search(line[-1:]):
            line += self._uart.read_until(end, count - len(line))
        return line


class TextIn(BytesIn):
    """`sys.stdin`."""

    def __init__(self, uart: Uart, heap: Callable[[], int]) -> None:
        super().__init__(uart, heap)
        self.buffer = BytesIn(uart, heap)

    def read(self, count: int = -1) -> str:
        """Read exactly `count` characters."""
        if count < 0:
            super().read(count)
        text = bytearray()
        for _ in range(count):
            first = self._uart.read(1)
            follow = 0 if first[0] < 0xC0 else 1 if first[0] < 0xE0 else 2 if first[0] < 0xF0 else 3
            text += first + self._uart.read(follow)
        return str(text.replace(b"\r", b"\n"), "utf-8")

    def readline(self, count: int = MAX_LINE) -> str:
        return str(self._line(TEXT_LINE_END, count).replace(b"\r", b"\n"), "utf-8")


class BytesOut:
    """`sys.stdout.buffer`."""

    def __init__(self, uart: Uart) -> None:
        self._uart = uart

    def write(self, data: Any, *bounds: int) -> int:
        """Write all of `data`; with `bounds`, its first bytes, or those from an offset on: their most, or both."""
        view = memoryview(data).cast("B")
        offset, most = (0, *bounds)[-2:] if bounds else (0, len(view))
        view = view[offset : offset + most]
        self._uart.write(view)
        return len(view)

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""


class TextOut(BytesOut):
    """`sys.stdout` and `sys.stderr`."""

    def __init__(self, uart: Uart) -> None:
        super().__init__(uart)
        self.buffer = BytesOut(uart)

    def write(self, data: Any, *bounds: int) -> int:
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
        self._uart.write(raw.replace(b"\n", b"\r\n"))
        return len(data)


class Poll:
    """`select.poll()` for the standard streams. Output is always ready; input is ready when a byte has arrived."""

    def __init__(self, uart: Uart) -> None:
        self._uart = uart
        self._streams: dict[int, tuple[Any, int]] = {}
        # What `poll` returns when input is ready, if that is all that is watched.
        self._only_input: list[tuple[Any, int]] | None = None

    def register(self, stream: Any, events: int = POLLIN | POLLOUT) -> None:
        self._streams[id(stream)] = (stream, events)
        self._find_input()

    def unregister(self, stream: Any) -> None:
        self._streams.pop(id(stream), None)
        self._find_input()

    def _find_input(self) -> None:
        watched = list(self._streams.values())
        only = len(watched) == 1 and watched[0][1] == POLLIN and self._reads(*watched[0])
        self._only_input = [(watched[0][0], POLLIN)] if only else None

    def modify(self, stream: Any, events: int) -> None:
        self.register(stream, events)

    def poll(self, timeout: int = -1) -> list[tuple[Any, int]]:
        """Wait for ready streams. `timeout` is in milliseconds; None or a negative one means no limit."""
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout / 1000
        watches_input = any(self._reads(stream, events) for stream, events in self._streams.values())
        if self._ready() or not watches_input:
            return self._ready()
        self._uart.readable(deadline)
        return self._ready()

    def ipoll(self, timeout: int = -1, flags: int = 0) -> Iterator[tuple[Any, int]]:
        # Programs that read byte by byte poll before each one.
        if self._only_input is not None and len(self._uart.ring):
            return iter(self._only_input)
        return iter(self.poll(timeout))

    @staticmethod
    def _reads(stream: Any, events: int) -> bool:
        return bool(events & POLLIN) and isinstance(stream, BytesIn)

    def _ready(self) -> list[tuple[Any, int]]:
        ready = []
        for stream, events in self._streams.values():
            flags = POLLIN if self._reads(stream, events) and len(self._uart.ring) else 0
            flags |= POLLOUT if events & POLLOUT and isinstance(stream, BytesOut) else 0
            if flags:
                ready.append((stream, flags))
        return ready
