"""The simulated UART: what a board's program sees of its line.

Received bytes come in by `arrive` (called from a line thread, see `line.py`) and wait in a `Ring` until the program
reads them. Without flow control the ring is as small as a board's and bytes that find it full are lost and counted;
with flow control `arrive` blocks instead, like native USB. Sent bytes leave through the `send` callable, at most as
fast as the `Pacer` allows.

Theory of operation. The board's program runs in the main thread and can be asked to stop in two ways: an interrupt
(Ctrl-C while `interrupt_char` is in force) and a reset. Whoever asks sets `_pending`, wakes every wait, and pokes the
main thread by `poke`: in the child that is `_thread.interrupt_main`, with `on_signal` for its handler; `None` will do
where the program only ever waits. The handler raises only in code of the board: inside this file's waits an exception
out of nowhere would leave locks torn, so they look at `_pending` themselves. A pending interrupt is used up by being
raised; a pending reset is raised at every step until `restart`, so that a program which catches everything is stopped
too.
"""

from __future__ import annotations

import threading
import time
from types import FrameType
from typing import TYPE_CHECKING

from fastflight.simulator.faults import Faults
from fastflight.simulator.pacer import SLICE_SECONDS, Pacer
from fastflight.simulator.ring import Ring

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable

# Bytes that a UART has ahead of its line, while the program gets more ready: the usual size of a transmit FIFO.
TRANSMIT_FIFO = 128
# A flow-controlled line can lose nothing, so how much waits is invisible to both ends: enough for bulk speed.
FLOW_CONTROLLED_RING = 1 << 20
# Pokes until the main thread has seen a request, and the seconds between them: the first can hit it between two steps.
POKES = 50
POKE_INTERVAL = 0.01
# A wait is taken in parts of at most this many seconds: locks refuse times that a board's `sleep` does not.
LONGEST_WAIT = 3600.0
# How often a line thread that waits for room asks whether the peer is still there.
PEER_CHECK_INTERVAL = 0.25


class LineClosed(BaseException):
    """The line is gone for good. Not an `Exception`: board code must not be able to go on."""


class BoardReset(BaseException):
    """The board restarts as if its power had been cycled. Not an `Exception`, for the same reason."""


class Uart:
    """One UART. `rate` is in bytes per second, 0 for a flow-controlled line without a pace.

    Without `interrupts` Ctrl-C never interrupts: code that runs reads it as a byte, as on MicroPython's unix port.
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
        slice_seconds: float = SLICE_SECONDS,
    ) -> None:
        self.flow_control = not rate
        self.ring = Ring(FLOW_CONTROLLED_RING if self.flow_control else ring)
        self.interrupt_char = -1
        self.received = 0
        self.sent = 0
        self.overflowed = 0
        self._send = send
        self._poke = poke
        self._peer_check = peer_check
        self._faults = faults or Faults()
        self._interrupts = interrupts
        self._pacer = Pacer(rate, fifo=TRANSMIT_FIFO, slice_seconds=slice_seconds) if rate else None
        # The program has not read, polled or slept since it wrote last.
        self._writes_on = False
        self._change = threading.Condition()
        self._pending: type[KeyboardInterrupt | BoardReset] | None = None
        self._stalled = False
        self._closed = False

    # The line's side: called from line threads.

    def arrive(self, data: bytes) -> None:
        """Bytes come off the wire. Blocks while a flow-controlled ring is full."""
        with self._change:
            if self._stalled:
                return
            before, self.received = self.received, self.received + len(data)
            data, event = self._faults.on_receive(data, before)
            data = self._without_interrupts(data)
            # Here, as who was told of it may `mend` it from now on, and has to find what struck.
            if event == "stall":
                self._stalled = True
            elif event == "reset":
                self._ask_for_reset()
                data = b""
        self._poke_main()
        with self._change:
            while data:
                taken = self.ring.put(data)
                data = data[taken:]
                self._change.notify_all()
                if not data:
                    break
                if not self.flow_control:
                    self.overflowed += len(data)
                    break
                if not self._change.wait(PEER_CHECK_INTERVAL):
                    self._peer_check()

    def reset(self) -> None:
        """Ask for a reset from outside: the button on the board."""
        with self._change:
            self._ask_for_reset()
        self._poke_main()

    def inject(self, specs: Iterable[str]) -> None:
        """Put faults in force, whose counts begin now. Raises `ValueError` as `Faults.parse` does."""
        faults = Faults.parse(specs)
        with self._change:
            self._faults.join(faults, received=self.received, sent=self.sent)

    def mend(self) -> None:
        """No fault is in force any more; a board that stalled restarts, as if somebody had pressed its button."""
        with self._change:
            self._faults.clear()
            stalled, self._stalled = self._stalled, False
        if stalled:
            self.reset()

    def hang_up(self) -> None:
        """Nothing more will arrive: reads that find the ring empty raise `LineClosed`."""
        with self._change:
            self._closed = True
            self._change.notify_all()

    def _ask_for_reset(self) -> None:
        self._pending = BoardReset
        self.ring.clear()
        self._change.notify_all()

    def _without_interrupts(self, data: bytes) -> bytes:
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
        """The handler of the signal that `poke` sends."""
        if self._pending and frame is not None and frame.f_code.co_filename not in OWN_FILES:
            raise self._use_pending()

    def arm(self) -> None:
        """From now on Ctrl-C interrupts: board code is about to run."""
        self.interrupt_char = 3 if self._interrupts else -1

    def disarm(self) -> None:
        """Ctrl-C is a character again, and one that came too late is forgotten."""
        self.interrupt_char = -1
        if self._pending is KeyboardInterrupt:
            self._pending = None

    def checkpoint(self) -> None:
        """Raise what is pending."""
        if self._pending:
            raise self._use_pending()

    def restart(self) -> None:
        """The reset has been carried out."""
        with self._change:
            self.disarm()
            self._pending = None
            self.ring.clear()

    def readable(self, deadline: float | None) -> bool:
        """Wait until there is a byte to read or `deadline` (of `time.monotonic`) has passed."""
        self._writes_on = False
        with self._change:
            return self._wait(deadline, lambda: len(self.ring) > 0)

    def sleep_until(self, deadline: float) -> None:
        self._writes_on = False
        with self._change:
            self._wait(deadline, lambda: False)

    def read_into(self, view: memoryview) -> None:
        """Fill `view`, waiting as long as that takes."""
        self._writes_on = False
        done = 0
        while done < len(view):
            with self._change:
                self._wait(None, lambda: len(self.ring) > 0)
                done += self.ring.take_into(view[done:])
                if self.flow_control:
                    self._change.notify_all()

    def read(self, count: int) -> bytearray:
        data = bytearray(count)
        self.read_into(memoryview(data))
        return data

    def read_until(self, stop: re.Pattern[bytes], limit: int) -> bytes:
        """Wait for input, then as `Ring.take_until`."""
        self._writes_on = False
        with self._change:
            self._wait(None, lambda: len(self.ring) > 0)
            data = self.ring.take_until(stop, limit)
            if self.flow_control:
                self._change.notify_all()
            return data

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`, at the line's pace."""
        view = memoryview(data).cast("B")
        if self._pacer:
            self._pacer.begin(ahead=self._writes_on)
            self._writes_on = True
        while view:
            if self._stalled or self._pending:
                with self._change:
                    self._wait(None, lambda: not self._stalled)
            count = self._faults.send_allowance(self.sent, len(view))
            if self._pacer:
                count = min(count, self._pacer.due())
            if count:
                with self._change:  # as in `arrive`
                    left, event = self._faults.on_send(view[:count], self.sent)
                    # First, as who sees the byte may ask for a fault at the next one, or for the end of this.
                    self.sent += count
                    self._stalled = self._stalled or event == "stall"
                self._send(memoryview(left))
                view = view[count:]
                if self._pacer:
                    self._pacer.moved(count)
                if event == "reset":
                    self._pending = BoardReset
                elif event == "unplug":
                    self._faults.pull()
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

    def _use_pending(self) -> BaseException:
        pending = self._pending or KeyboardInterrupt
        if pending is KeyboardInterrupt:
            self._pending = None
        return pending()


# Code in which a signal handler must not raise.
OWN_FILES = {__file__, threading.__file__}
