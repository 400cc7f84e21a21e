"""A port to a child process that acts as a board, and that survives soft resets.

On a soft reset (Ctrl-D on an empty line, or `SystemExit`) a board restarts its interpreter, but MicroPython's unix port
exits. A `ChildPort` follows the conversation (`ReplState`). When the child exits by a soft reset, the port starts a new
child and returns to the reader what a board prints: `MPY: soft reboot`, then the banner and prompt of the REPL that the
host was in. After any other exit, reading and writing raise `TransportClosed` with the exit code or the signal.

A soft reset also ends all processes of the child's group. Their later output reaches nobody, since each child has a
terminal of its own. Bytes that are sent to a child that is exiting are lost, as on a board that resets.
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
# A terminal hangs up a moment before its child exits. A child that has only closed its terminal is ended after this.
EXIT_SECONDS = 1.0
# The limit from start to prompt: Node and emulators take a second on a busy machine.
START_SECONDS = 10.0
# More than any banner and the output of a `boot.py`.
MAX_BANNER_BYTES = 64 * 1024


class Terminal(Port, Protocol):
    """A port with a child at its other end. Closing it ends the child."""

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The child process."""


class ChildPort:
    """A `Port` to the child that `start` starts: now, and again after each soft reset."""

    def __init__(self, start: Callable[[], Terminal], where: str) -> None:
        self._start = start
        self._where = where
        self._terminal = start()
        self._repl = ReplState()
        # Output of the last soft reset that is not read yet.
        self._reset_output = b""
        # The restart that runs for a coroutine, in a thread.
        self._restart: asyncio.Future[None] | None = None
        # Guards `_terminal`: another thread may close the port while the child is started again.
        self._changing = threading.Lock()
        self._closed = threading.Event()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The current child process."""
        return self._terminal.process

    @property
    def bytes_per_second(self) -> float | None:
        return self._terminal.bytes_per_second

    def read(self, timeout: float) -> bytes:
        if not self._reset_output:
            try:
                return self._note_received(self._terminal.read(timeout))
            except TransportClosed as error:
                self._restart_child(error)
        return self._take_reset_output()

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
        if not self._reset_output:
            try:
                return self._note_received(await self._terminal.aread(timeout))
            except TransportClosed as error:
                self._restart = asyncio.ensure_future(off_loop(self._restart_child, error))
                await unbroken(self._await_restart(self._restart))
        return self._take_reset_output()

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

    def _note_received(self, data: bytes) -> bytes:
        self._repl.received(data)
        return data

    def _take_reset_output(self) -> bytes:
        output, self._reset_output = self._reset_output, b""
        return output

    async def _await_restart(self, restart: asyncio.Future[None]) -> None:
        try:
            await restart
        finally:
            self._restart = None

    def _check_resetting(self) -> None:
        """After a failed write: raise if the port is closed, or the child has exited other than by a soft reset.

        While the child has not exited yet, the error is dropped: the next read raises it.
        """
        code = self.process.poll()
        if self._closed.is_set():
            raise self._closed_error()
        if code is not None and not self._repl.exit_is_reset(code):
            raise self._exit_error(describe_exit(code))

    def _restart_child(self, error: TransportClosed) -> None:
        """If the child exited by a soft reset, start it again, in the same REPL. If not, raise `TransportClosed`."""
        if self._closed.is_set():
            raise error
        code = _end_child(self._terminal)
        if not self._repl.exit_is_reset(code):
            raise self._exit_error(describe_exit(code))
        raw = self._repl.raw
        terminal = self._start()
        with self._changing:
            closed = self._closed.is_set()
            self._terminal = terminal
        if closed:
            terminal.close()
            raise self._closed_error()
        output = self._enter_raw(terminal) if raw else b""
        self._repl = ReplState(raw=raw)
        self._repl.received(output)
        self._reset_output = SOFT_REBOOT + output

    def _enter_raw(self, terminal: Terminal) -> bytes:
        # Wait for the prompt first: the unix port drops bytes that arrive before it has set up its terminal.
        deadline = time.monotonic() + START_SECONDS
        self._read_until(terminal, PROMPT, deadline)
        terminal.write(ENTER_RAW, START_SECONDS)
        return RAW_PROMPT + self._read_until(terminal, RAW_PROMPT, deadline)

    def _read_until(self, terminal: Terminal, mark: bytes, deadline: float) -> bytes:
        """Read until `mark`, and return what was read after it."""
        received = b""
        while mark not in received:
            try:
                received += terminal.read(max(0.0, deadline - time.monotonic()))
            except TransportTimeout:
                raise self._prompt_error() from None
            except TransportClosed:
                if self._closed.is_set():
                    raise
                raise self._exit_error(f"{describe_exit(_end_child(terminal))}, before its prompt") from None
            if len(received) > MAX_BANNER_BYTES:
                raise self._prompt_error()
        return received.partition(mark)[2]

    def _exit_error(self, why: str) -> TransportClosed:
        return TransportClosed(why, where=self._where, hint="It is started again")

    def _prompt_error(self) -> TransportClosed:
        return TransportClosed("the process gave no prompt after its soft reset", where=self._where)

    def _closed_error(self) -> TransportClosed:
        return TransportClosed("the line was closed on this side", where=self._where)


def describe_exit(code: int) -> str:
    """Describe an exit code as `subprocess` reports it: negative for a signal."""
    if code >= 0:
        return f"the process ended with exit code {code}"
    try:
        return f"the process was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"the process was ended by signal {-code}"


def _end_child(terminal: Terminal) -> int:
    """End the child and what is left of its group. Return its exit code, negative for a signal."""
    try:
        terminal.process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    terminal.close()
    return terminal.process.wait()
