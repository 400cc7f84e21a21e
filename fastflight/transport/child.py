"""A child process that stands for a board, as a port that outlives its soft resets.

MicroPython's unix port ends where a board starts anew: at a Ctrl-D on an empty line, or at `SystemExit`. A `ChildPort`
follows the conversation (`ReplState`). When the child ends where a soft reset was asked for, the port starts it again
and says what a board says: `MPY: soft reboot`, then the banner and prompt of the REPL that the host was in. Any other
end is a death: reading and writing raise `TransportClosed` with the exit code or the signal.

A soft reset ends all that the child had started in its group, and what comes from it later reaches nobody: each child
has a terminal of its own. What is sent to a child that is ending is lost, as a board loses it that resets.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Protocol

from fastflight.concurrency.offload import off_loop, unbroken
from fastflight.errors import TransportClosed, TransportTimeout
from fastflight.protocol.repl_state import PROMPT, RAW_PROMPT, ReplState
from fastflight.transport.port import Port

SOFT_REBOOT = b"MPY: soft reboot\r\n"
ENTER_RAW = b"\x01"
# A terminal hangs up a moment before its child has ended. A child that only closed its terminal is ended after this.
EXIT_SECONDS = 1.0
# From start to prompt: Node and emulators take a second on a busy machine.
START_SECONDS = 10.0
# More than any banner, with what a `boot.py` prints.
MAX_BANNER_BYTES = 64 * 1024


class Terminal(Port, Protocol):
    """A port with a child at its other end. Closing it ends the child."""

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The child."""


class ChildPort:
    """The child that `start` starts, at once and again after each soft reset. A port: see `Port`."""

    def __init__(self, start: Callable[[], Terminal], where: str) -> None:
        self._start = start
        self._where = where
        self._terminal = start()
        self._repl = ReplState()
        # What the last soft reset said that was not read yet.
        self._said = b""
        # The restart that is under way for a loop.
        self._restart: asyncio.Future[None] | None = None
        # Closing may come from another thread, while the child is started again.
        self._changing = threading.Lock()
        self._closed = threading.Event()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The child as it runs now."""
        return self._terminal.process

    @property
    def bytes_per_second(self) -> float | None:
        return self._terminal.bytes_per_second

    def read(self, timeout: float) -> bytes:
        if not self._said:
            try:
                return self._received(self._terminal.read(timeout))
            except TransportClosed as error:
                self._begin_anew(error)
        return self._take_said()

    def write(self, data: bytes, timeout: float) -> None:
        self._repl.sent(data)
        try:
            self._terminal.write(data, timeout)
        except TransportClosed:
            self._check_resetting()

    def close(self) -> None:
        with self._changing:
            self._closed.set()
            terminal = self._terminal
        terminal.close()

    async def aread(self, timeout: float) -> bytes:
        if not self._said:
            try:
                return self._received(await self._terminal.aread(timeout))
            except TransportClosed as error:
                self._restart = asyncio.ensure_future(off_loop(self._begin_anew, error))
                await unbroken(self._restarted(self._restart))
        return self._take_said()

    async def awrite(self, data: bytes, timeout: float) -> None:
        if self._restart is not None:
            await asyncio.wait({self._restart})
        self._repl.sent(data)
        try:
            await self._terminal.awrite(data, timeout)
        except TransportClosed:
            self._check_resetting()

    async def aclose(self) -> None:
        await unbroken(off_loop(self.close))

    def _received(self, data: bytes) -> bytes:
        self._repl.received(data)
        return data

    def _take_said(self) -> bytes:
        said, self._said = self._said, b""
        return said

    async def _restarted(self, restart: asyncio.Future[None]) -> None:
        try:
            await restart
        finally:
            self._restart = None

    def _check_resetting(self) -> None:
        """Raise unless the child ends by a soft reset, as far as can be said before it has ended: reading says more."""
        code = self.process.poll()
        if self._closed.is_set():
            raise self._closed_here()
        if code is not None and not self._repl.exit_is_reset(code):
            raise self._died(ending(code))

    def _begin_anew(self, error: TransportClosed) -> None:
        """Start the child again, in the same REPL, if its end is a soft reset; `TransportClosed` if it is not."""
        if self._closed.is_set():
            raise error
        code = _reaped(self._terminal)
        if not self._repl.exit_is_reset(code):
            raise self._died(ending(code))
        raw = self._repl.raw
        terminal = self._start()
        with self._changing:
            closed = self._closed.is_set()
            self._terminal = terminal
        if closed:
            terminal.close()
            raise self._closed_here()
        said = self._enter_raw(terminal) if raw else b""
        self._repl = ReplState(raw=raw)
        self._repl.received(said)
        self._said = SOFT_REBOOT + said

    def _enter_raw(self, terminal: Terminal) -> bytes:
        # Not before its prompt: the unix port drops what it was sent before it has set up its terminal.
        deadline = time.monotonic() + START_SECONDS
        self._until(terminal, PROMPT, deadline)
        terminal.write(ENTER_RAW, START_SECONDS)
        return RAW_PROMPT + self._until(terminal, RAW_PROMPT, deadline)

    def _until(self, terminal: Terminal, mark: bytes, deadline: float) -> bytes:
        """What the child says after `mark`, so far."""
        heard = b""
        while mark not in heard:
            try:
                heard += terminal.read(max(0.0, deadline - time.monotonic()))
            except TransportTimeout:
                raise self._no_prompt() from None
            except TransportClosed:
                if self._closed.is_set():
                    raise
                raise self._died(f"{ending(_reaped(terminal))}, before its prompt") from None
            if len(heard) > MAX_BANNER_BYTES:
                raise self._no_prompt()
        return heard.partition(mark)[2]

    def _died(self, why: str) -> TransportClosed:
        return TransportClosed(why, where=self._where, hint="It is started again")

    def _no_prompt(self) -> TransportClosed:
        return TransportClosed("the process gave no prompt after its soft reset", where=self._where)

    def _closed_here(self) -> TransportClosed:
        return TransportClosed("the line was closed on this side", where=self._where)


def ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"the process ended with exit code {code}"
    try:
        return f"the process was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"the process was ended by signal {-code}"


def _reaped(terminal: Terminal) -> int:
    """End what is left of the child; its exit code, negative for a signal."""
    try:
        terminal.process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    terminal.close()
    return terminal.process.wait()
