"""An asyncio transport on a POSIX file descriptor that is not a socket, such as a pseudo-terminal or a serial port.

asyncio's own pipes cannot be used: uvloop's do not work on a pseudo-terminal. The transport watches the descriptor with
`add_reader` and `add_writer`. It never closes it: the owner does that after `connection_lost`.

It reads until nothing is left before it waits again: libuv reports an error of the descriptor only once, in one event
with the bytes before it.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

# A terminal returns at most 4 KiB a call.
READ_BYTES = 16 * 1024
# After this many reads or writes in a row the loop's other tasks get a turn.
TURN_CALLS = 16


class DescriptorTransport(asyncio.Transport):
    """Connects `protocol` to `descriptor`, on the running loop. Use all methods on that loop.

    `set_write_buffer_limits` has no effect: writing is paused while the system has not taken all bytes.
    """

    def __init__(self, descriptor: int, protocol: asyncio.Protocol) -> None:
        super().__init__()
        os.set_blocking(descriptor, False)
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._protocol = protocol
        self._unsent = bytearray()
        self._is_reading = False
        self._is_writing = False
        self._closing = False
        protocol.connection_made(self)
        self.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._descriptor)

    def resume_reading(self) -> None:
        if not self._is_reading and not self._closing:
            self._is_reading = True
            self._loop.add_reader(self._descriptor, self._read_ready)
            # The event of an error may have come before the pause.
            self._loop.call_soon(self._read_ready)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self._unsent += data
            if not self._is_writing:
                self._write_ready()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def flush(self) -> None:
        """Drop the bytes that the system has not taken."""
        self._unsent.clear()
        if self._is_writing:
            self._write_ready()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._stop_reading()
            if not self._unsent:
                self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    def _read_ready(self) -> None:
        for _ in range(TURN_CALLS):
            if not self._is_reading:
                return
            try:
                data = os.read(self._descriptor, READ_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._lose(error)
                return
            if not data:
                self._lose(None)
                return
            self._protocol.data_received(data)
        self._loop.call_soon(self._read_ready)

    def _write_ready(self) -> None:
        for _ in range(TURN_CALLS):
            if not self._unsent or self._descriptor < 0:
                break
            try:
                count = os.write(self._descriptor, self._unsent)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._read_ready()  # what the device has sent before
                self._lose(error)
                return
            del self._unsent[:count]
        if self._descriptor < 0:
            return
        if self._unsent and not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._descriptor, self._write_ready)
            self._protocol.pause_writing()
        elif not self._unsent:
            self._stop_writing()
            if self._closing and not self._unsent:
                self._lose(None)

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._descriptor)

    def _stop_writing(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._descriptor)
            self._protocol.resume_writing()

    def _lose(self, error: OSError | None) -> None:
        """End the connection. Does nothing the second time."""
        if self._descriptor < 0:
            return
        self._closing = True
        self._stop_reading()
        if self._is_writing:
            self._loop.remove_writer(self._descriptor)
        self._descriptor = -1
        self._loop.call_soon(self._end, error)

    def _end(self, error: OSError | None) -> None:
        self._protocol.connection_lost(error)
        self._unsent.clear()
