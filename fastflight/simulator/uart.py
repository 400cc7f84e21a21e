"""The simulated UART: the board program's view of its line.

A line thread (see `line.py`) passes received bytes to `arrive`, and they wait in `ring` until the program reads them.
Without flow control, the ring is as small as a board's; bytes that arrive while it is full are lost and counted. With
flow control, `arrive` blocks instead. Then a ring that was given no size is so large that nobody sees its end. One that
was given a size (`holds`) is that of firmware over USB-CDC: it takes a byte only while it has a free place, and only
then looks whether the byte is Ctrl-C. So an interrupt needs one free place for itself and one for each byte before it;
behind a full ring nobody sees it. Sent bytes go to the `send` callable, at most as fast as the
`Pacer` allows.

Theory of operation. The board's program runs in the main thread. Two requests can stop it: an interrupt (Ctrl-C while
`interrupt_char` is set) and a reset. A request sets `_pending`, wakes every wait, and calls `poke` to signal the main
thread. In the child process `poke` is `_thread.interrupt_main`, and `on_signal` is the signal's handler; `poke` may be
None if the program only ever waits. The handler raises only while board code runs: an exception within this file's
waits could leave locks in a broken state, so the waits check `_pending` themselves. A pending interrupt is raised once.
A pending reset is raised at every step until `restart`, so that it also stops a program that catches all exceptions.
"""

from __future__ import annotations

import threading
import time
from types import FrameType
from typing import TYPE_CHECKING

from fastflight.simulator.faults import Faults
from fastflight.simulator.pacer import Pacer

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable

# Bytes that the UART can still send while the program prepares more: the usual size of a transmit FIFO.
TRANSMIT_FIFO = 128
# A flow-controlled line loses nothing, so neither side can see the size of the ring: large enough for bulk transfers.
FLOW_CONTROLLED_RING = 1 << 20
# The most pokes until the main thread has seen a request, and the seconds between them. The handler ignores a poke that
# interrupts the simulator's own code.
POKES = 50
POKE_INTERVAL = 0.01
# The longest single wait in seconds; longer ones are split. Locks refuse times that a board's `sleep` accepts.
LONGEST_WAIT = 3600.0
# How often, in seconds, a line thread that waits for space in the ring checks whether the peer is still connected.
PEER_CHECK_INTERVAL = 0.25


class LineClosed(BaseException):
    """The line is closed for ever. Not an `Exception`, so that board code does not catch it and go on."""


class BoardReset(BaseException):
    """The board restarts as after a power cycle. Not an `Exception`, for the same reason as `LineClosed`."""


class Uart:
    """One UART. `rate` is in bytes per second; 0 means unpaced, with flow control.

    Without `interrupts`, Ctrl-C never interrupts: running code reads it as a byte, as on MicroPython's unix port.
    """

    def __init__(
        self,
        send: Callable[[memoryview], None],
        *,
        rate: float = 0,
        ring: int = 512,
        faults: Faults | None = None,
        interrupts: bool = True,
        poke: Callable[[], None] | None = None,
        peer_check: Callable[[], None] = lambda: None,
        holds: bool = False,
    ) -> None:
        """`holds`: a full ring of `ring` bytes holds the sender back, and a Ctrl-C with it."""
        self.flow_control = holds or not rate
        self._holds = holds
        # The bytes that have arrived and are not read yet, at most `capacity`.
        self.ring = bytearray()
        self.capacity = ring if holds or rate else FLOW_CONTROLLED_RING
        self.interrupt_char = -1
        self.received = 0
        self.sent = 0
        # Runs the timers that are due before each read of input, and returns when the next one is (see `timers`).
        self.run_timers: Callable[[], float | None] = lambda: None
        self._send = send
        self._poke = poke
        self._peer_check = peer_check
        self._faults = faults or Faults()
        self._interrupts = interrupts
        self._pacer = Pacer(rate, fifo=TRANSMIT_FIFO) if rate else None
        # Whether the program has neither read, polled nor slept since its last write.
        self._keeps_writing = False
        self._change = threading.Condition()
        self._pending: type[KeyboardInterrupt | BoardReset] | None = None
        self._stalled = False
        self._closed = False

    # The line's side: called from line threads.

    def arrive(self, data: bytes) -> None:
        """Receive bytes from the wire. Blocks while a flow-controlled ring is full."""
        with self._change:
            if self._stalled:
                return
            before, self.received = self.received, self.received + len(data)
            data, event = self._faults.on_receive(data, before)
            if not self._holds:
                data = self._filter_interrupts(data)
            # In the same locked block: a listener that was told of the fault may call `mend`, and must find its effect.
            if event == "stall":
                self._stalled = True
            elif event == "reset":
                self._request_reset()
                data = b""
        self._poke_main()
        while data:
            with self._change:
                data = self._take(data)
                self._change.notify_all()
            self._poke_main()
            if not self.flow_control:  # the rest is lost
                break
            with self._change:
                if data and len(self.ring) == self.capacity and not self._change.wait(PEER_CHECK_INTERVAL):
                    self._peer_check()

    def _take(self, data: bytes) -> bytes:
        """Store the first bytes of `data`, as many as fit. Return the rest."""
        # A byte of an interrupt takes no place, but on a line that holds it is seen only if there is one.
        while data and (free := self.capacity - len(self.ring)):
            taken, data = data[:free], data[free:]
            self.ring += self._filter_interrupts(taken) if self._holds else taken
        return data

    def reset(self) -> None:
        """Reset the board from outside, like the button on it."""
        with self._change:
            self._request_reset()
        self._poke_main()

    def inject(self, specs: Iterable[str]) -> None:
        """Add faults whose counts begin now. Raises `ValueError` like `Faults.parse`."""
        faults = Faults.parse(specs)
        with self._change:
            self._faults.join(faults, received=self.received, sent=self.sent)

    def mend(self) -> None:
        """Remove all faults. A board that has stalled restarts, as if its reset button were pressed."""
        with self._change:
            self._faults.clear()
            stalled, self._stalled = self._stalled, False
        if stalled:
            self.reset()

    def hang_up(self) -> None:
        """Close the line: when the ring is empty, reads raise `LineClosed`."""
        with self._change:
            self._closed = True
            self._change.notify_all()

    def _request_reset(self) -> None:
        self._pending = BoardReset
        self.ring.clear()
        self._change.notify_all()

    def _filter_interrupts(self, data: bytes) -> bytes:
        if self.interrupt_char >= 0 and self.interrupt_char in data:
            data = data.replace(bytes([self.interrupt_char]), b"")
            self._pending = self._pending or KeyboardInterrupt
            self._change.notify_all()
        return data

    def _poke_main(self) -> None:
        for _ in range(POKES):
            with self._change:
                if self._pending is None or self._poke is None:
                    return
                self._poke()
                self._change.wait(POKE_INTERVAL)

    # The program's side: called from the main thread.

    def on_signal(self, signum: int, frame: FrameType | None) -> None:
        """Handle the signal that `poke` sends: raise what is pending, unless the simulator's own code runs."""
        if self._pending and frame is not None and frame.f_code.co_filename not in OWN_FILES:
            raise self._take_pending()

    def arm(self) -> None:
        """Let Ctrl-C interrupt, because board code is about to run."""
        self.interrupt_char = 3 if self._interrupts else -1

    def disarm(self) -> None:
        """Treat Ctrl-C as a character again, and drop an interrupt that came too late."""
        self.interrupt_char = -1
        if self._pending is KeyboardInterrupt:
            self._pending = None

    def checkpoint(self) -> None:
        """Raise the pending interrupt or reset, if any."""
        if self._pending:
            raise self._take_pending()

    def restart(self) -> None:
        """Complete a reset: drop what is pending and the received bytes."""
        with self._change:
            self.disarm()
            self._pending = None
            self.ring.clear()

    def readable(self, deadline: float | None) -> bool:
        """Wait for a byte to read, until `deadline` (a time of `time.monotonic`). Return whether there is one."""
        self._keeps_writing = False
        with self._change:
            return self._wait(deadline, lambda: len(self.ring) > 0)

    def sleep_until(self, deadline: float) -> None:
        self._keeps_writing = False
        with self._change:
            self._wait(deadline, lambda: False)

    def read_into(self, view: memoryview) -> None:
        """Fill `view`, however long it takes."""
        self._keeps_writing = False
        done = 0
        while done < len(view):
            if not self._has_input():
                continue
            with self._change:
                data = self._taken(len(view) - done)
            view[done : done + len(data)] = data
            done += len(data)

    def read(self, count: int) -> bytearray:
        data = bytearray(count)
        self.read_into(memoryview(data))
        return data

    def read_until(self, stop: re.Pattern[bytes], limit: int) -> bytes:
        """Wait for input. Read 1 to `limit` bytes, up to and including the first match of `stop` if there is one."""
        self._keeps_writing = False
        while not self._has_input():
            pass
        with self._change:
            match = stop.search(self.ring, 0, limit)
            return self._taken(match.end() if match else limit)

    def _taken(self, limit: int) -> bytes:
        """Take up to `limit` bytes out of the ring. The caller holds `_change`."""
        data = bytes(self.ring[:limit])
        del self.ring[:limit]
        if self.flow_control:
            self._change.notify_all()
        return data

    def _has_input(self) -> bool:
        """Run the timers that are due, and wait for a byte until the next one is. Return whether there is one."""
        due = self.run_timers()
        with self._change:
            return self._wait(due, lambda: len(self.ring) > 0)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`, at the line's pace. Then raise a pending interrupt or reset."""
        view = memoryview(data).cast("B")
        if self._pacer:
            self._pacer.begin(ahead=self._keeps_writing)
            self._keeps_writing = True
        while view:
            if self._stalled or self._pending:
                with self._change:
                    self._wait(None, lambda: not self._stalled)
            count = self._faults.send_allowance(self.sent, len(view))
            if self._pacer:
                count = min(count, self._pacer.due())
            if count:
                with self._change:  # for the same reason as in `arrive`
                    left, event = self._faults.on_send(view[:count], self.sent)
                    # Before sending: a host that sees the byte may at once add a fault for the next byte, or end this
                    # fault.
                    self.sent += count
                    self._stalled = self._stalled or event == "stall"
                self._send(memoryview(left))
                view = view[count:]
                if self._pacer:
                    self._pacer.moved(count)
                if event == "reset":
                    self._pending = BoardReset
                elif event == "unplug":
                    self._faults.unplug()
            elif self._pacer:
                with self._change:
                    self._wait(self._pacer.next_at(len(view)), lambda: False)
        self.checkpoint()

    def _wait(self, deadline: float | None, ready: Callable[[], bool]) -> bool:
        while True:
            self.checkpoint()
            if ready():
                return True
            if self._closed:
                raise LineClosed
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._change.wait(None if left is None else min(left, LONGEST_WAIT))

    def _take_pending(self) -> BaseException:
        with self._change:
            pending = self._pending or KeyboardInterrupt
            if pending is KeyboardInterrupt:
                self._pending = None
                self._change.notify_all()  # the line waits for it, and brings the next Ctrl-C
        return pending()


# Code in which a signal handler must not raise.
OWN_FILES = {__file__, threading.__file__}
