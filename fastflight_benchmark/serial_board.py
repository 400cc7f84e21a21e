"""A simulated board as a serial port of this computer: `python -m fastflight_benchmark.serial_board --files DIR`.

Its line is a pseudo-terminal, whose name is the first line of output. POSIX only.

Programs may open and close it; the board lives on. The system does not report when a program opens the terminal, and
reports "hung up" for as long as none has it open. So the link waits for changes (edge-triggered), such as new data, and
not for states.
"""

from __future__ import annotations

import contextlib
import os
import select
import termios
import tty

from fastflight.simulator.__main__ import main

# Bytes per read. A terminal returns at most a few kilobytes at a time.
RECEIVE_SIZE = 64 * 1024
# How often a terminal is checked where the system may not report a change: one that is full, and on systems without
# edge-triggered epoll (macOS) one that is closed.
LOOK_SECONDS = 0.02


class Terminal:
    """The master side of a raw pseudo-terminal; a `Link`. `address` is the name of its slave side."""

    def __init__(self) -> None:
        self._master, slave = os.openpty()
        # The settings stay when the slave side is closed. A serial program that opens it sets its own.
        tty.setraw(slave)
        self.address = os.ttyname(slave)
        os.close(slave)
        os.set_blocking(self._master, False)
        self._hung_up = False
        self._edges = None
        if hasattr(select, "epoll"):
            self._edges = select.epoll()
            self._edges.register(self._master, select.EPOLLIN | select.EPOLLET)

    def receive(self) -> bytes:
        while True:
            try:
                data = os.read(self._master, RECEIVE_SIZE)
            except BlockingIOError:
                self._wait()
            except OSError:
                self._discard_output()
                self._wait()
            else:
                if data:
                    self._hung_up = False
                    return data
                self._discard_output()
                self._wait()

    def send(self, data: memoryview) -> None:
        """Like `Link.send`. If no program has the terminal open, the data is lost, as on a serial line."""
        while data:
            try:
                data = data[os.write(self._master, data) :]
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._master, select.POLLOUT)
                # With a time limit: when `_discard_output` makes space after the next program has opened the terminal,
                # the system wakes no writer.
                if any(state & select.POLLHUP for _, state in poll.poll(LOOK_SECONDS * 1000)):
                    return
            except OSError:
                return

    def has_ended(self) -> bool:
        return False

    def _wait(self) -> None:
        if self._edges is not None:
            self._edges.poll()
        else:
            select.select([self._master], [], [], LOOK_SECONDS)

    def _discard_output(self) -> None:
        """Discard output that the last program did not read, as a serial driver does when its port is closed."""
        if not self._hung_up:
            self._hung_up = True
            with contextlib.suppress(termios.error):
                termios.tcflush(self._master, termios.TCOFLUSH)


if __name__ == "__main__":
    main(Terminal())
