"""A pseudo-terminal as a board's line, which any program for serial ports opens by its name. POSIX only.

Programs may come and go: the board lives on. A terminal tells of nobody who opens it, but data wakes who waits for it:
so the link waits for an edge, never for a level, which would be "hung up" for as long as nobody is there.
"""

from __future__ import annotations

import contextlib
import os
import select
import termios
import tty

# One read: a terminal gives no more than a few kilobytes at once.
RECEIVE_SIZE = 64 * 1024
# Where the system has no edge-triggered wait (macOS), how often a terminal that nobody has open is looked at.
LOOK_SECONDS = 0.02


class Terminal:
    """The master of a raw pseudo-terminal; `address` is its slave's name."""

    def __init__(self) -> None:
        self._master, slave = os.openpty()
        # The settings stay when the slave is closed, and a program that opens it for a serial port sets its own.
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
                self._forget()
                self._wait()
            else:
                if data:
                    self._hung_up = False
                    return data
                self._forget()
                self._wait()

    def send(self, data: memoryview) -> None:
        """As `Link.send`. What finds nobody is lost, as on any serial line."""
        while data:
            try:
                data = data[os.write(self._master, data) :]
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._master, select.POLLOUT)
                if any(state & select.POLLHUP for _, state in poll.poll()):
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

    def _forget(self) -> None:
        """Nobody has it open: what they left unread is not for the next one. (A driver of a port does the same.)"""
        if not self._hung_up:
            self._hung_up = True
            with contextlib.suppress(termios.error):
                termios.tcflush(self._master, termios.TCOFLUSH)
