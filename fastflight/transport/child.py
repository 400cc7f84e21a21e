"""A port to a child process that acts as a board, and that survives soft resets.

On a soft reset (Ctrl-D on an empty line, or `SystemExit`) a board restarts its interpreter, but MicroPython's unix port
exits. The end of its output shows such an exit (`Reset`): the port then starts a new child and returns to the reader
what a board prints: `MPY: soft reboot`, then the banner and prompt of the REPL that the host was in. After any other
exit, reading and writing raise `TransportClosed` with the exit code or the signal.

A soft reset also ends all processes of the child's group. Their later output reaches nobody, since each child has a
terminal of its own. Bytes that are sent to a child that is exiting are lost, as on a board that resets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable
from enum import Enum

from fastflight.concurrency import off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.protocol.raw_repl import CTRL_A, FRIENDLY_PROMPT
from fastflight.protocol.raw_repl import PROMPT as RAW_PROMPT
from fastflight.transport.descriptor import DescriptorTransport
from fastflight.transport.loop_port import Port
from fastflight.transport.terminal import Terminal

SOFT_REBOOT = b"MPY: soft reboot\r\n"
# The ends of the output of a child that exits by a soft reset. In the raw REPL: the answer to Ctrl-D on an empty line,
# or the end mark of code that raised SystemExit. An older unix port answers without the carriage return.
RAW_RESET = re.compile(rb"(?:>OK\r?\n|\x04\x04)\Z")
FRIENDLY_RESET = re.compile(rb">>> \r?\n\Z")
PROMPTS = re.compile(re.escape(FRIENDLY_PROMPT) + b"|" + re.escape(RAW_PROMPT))
# How much of the last output is kept: as much as the longest of these.
TAIL_BYTES = len(RAW_PROMPT) + len(b"OK\r\n")
# A terminal hangs up a moment before its child exits. A child that has only closed its terminal is ended after this.
EXIT_SECONDS = 1.0
# The limit from start to prompt: Node and emulators take a second on a busy machine.
START_SECONDS = 10.0
# More than any banner and the output of a `boot.py`.
MAX_BANNER_BYTES = 64 * 1024
# After the exit of a child: the longest silence in its last output, and the time for all of it. Processes that it left
# running may hold the terminal and write on.
LAST_READ_SECONDS = 0.1
LAST_OUTPUT_SECONDS = 1.0
# The buffer of a terminal. A write that is cut off leaves at most this much unsent.
WRITE_BYTES = 4096
# How often to look whether the child has exited, on systems that cannot wait for it with a descriptor.
POLL_SECONDS = 0.5


class Reset(Enum):
    """The REPL in which a child was reset."""

    FRIENDLY = "friendly"
    RAW = "raw"


class ChildOutput:
    """What a child has printed, as far as it tells whether its exit is a soft reset."""

    def __init__(self) -> None:
        self._tail = b""
        # The last prompt, if there was one.
        self._prompt = b""
        # Whether the host has sent something. A child that exits without that would be started again without end.
        self.is_answer = False

    def add(self, data: bytes) -> None:
        """Process what the child prints."""
        text = self._tail + data
        self._prompt = [self._prompt, *PROMPTS.findall(text)][-1]
        self._tail = text[-TAIL_BYTES:]

    def reset(self, code: int) -> Reset | None:
        """Return in which REPL the child was reset, if it has exited by that. `code` is its exit code.

        Code that was entered at the friendly prompt may end the process with code 0: that is `sys.exit()`. A process
        that a signal has ended (a negative code) was not reset.
        """
        if code < 0 or not self._prompt or not self.is_answer:
            return None
        if RAW_RESET.search(self._tail):
            return Reset.RAW
        has_exited = code == 0 and self._prompt == FRIENDLY_PROMPT
        return Reset.FRIENDLY if has_exited or FRIENDLY_RESET.search(self._tail) else None


class ChildPort(Port):
    """A `Port` to the child of `terminal`. `start` starts another after each soft reset; it blocks."""

    def __init__(self, terminal: Terminal, start: Callable[[], Terminal], where: str) -> None:
        super().__init__(where, lambda: self._terminal.end())
        self._chunk = WRITE_BYTES
        self._start = start
        self._terminal = terminal
        self._output = ChildOutput()
        # While the child is started again: what the new one has printed.
        self._restart: asyncio.Task[None] | None = None
        self._banner: bytearray | None = None
        self._new_child_ended = False
        # How many bytes the child has printed, to notice the end of its last output.
        self._printed = 0
        # A descriptor that becomes readable when the child exits, if the system has pidfds.
        self._exit_watch: int | None = None
        self._connect()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The current child process."""
        return self._terminal.process

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._keeper is None:
            super().connection_made(transport)
        else:
            self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._printed += len(data)
        if self._banner is not None:
            self._banner += data
            self._wake()
            return
        self._output.add(data)
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch_exit()
        if self._lost.is_set():
            return
        if self._banner is not None:
            self._new_child_ended = True
            self._wake()
        elif self._closed:
            super().connection_lost(exc)
        else:
            self._restart = self._loop.create_task(unbroken(self._restart_child()))

    def _connect(self) -> None:
        self._transport = DescriptorTransport(self._terminal.descriptor, self)
        with contextlib.suppress(AttributeError, OSError):  # not on this system, or not allowed
            self._exit_watch = os.pidfd_open(self.process.pid)
        if self._exit_watch is not None:
            self._loop.add_reader(self._exit_watch, self._exited)
        else:
            self._loop.call_later(POLL_SECONDS, self._poll_exit, self._terminal)

    def _encode(self, data: bytes) -> bytes:
        self._output.is_answer = True
        return self._terminal.interrupting(data)

    def _is_writable(self) -> bool:
        return self._failure is not None or (self._restart is None and super()._is_writable())

    # The exit of the child.

    def _unwatch_exit(self) -> None:
        watch, self._exit_watch = self._exit_watch, None
        if watch is not None:
            self._loop.remove_reader(watch)
            os.close(watch)

    def _poll_exit(self, terminal: Terminal) -> None:
        if terminal is not self._terminal or self._transport.is_closing():
            return
        if terminal.process.poll() is None:
            self._loop.call_later(POLL_SECONDS, self._poll_exit, terminal)
        else:
            self._exited()

    def _exited(self) -> None:
        """The child has exited: lose the terminal when its last output has been received."""
        self._unwatch_exit()
        self._await_last_output(self._transport, -1, self._loop.time() + LAST_OUTPUT_SECONDS)

    def _await_last_output(self, transport: asyncio.Transport, printed: int, until: float) -> None:
        is_over = printed == self._printed or self._loop.time() >= until
        if is_over and not self._reading_paused:
            transport.abort()
        elif not transport.is_closing():
            self._loop.call_later(LAST_READ_SECONDS, self._await_last_output, transport, self._printed, until)

    # The next child.

    async def _restart_child(self) -> None:
        """If the child exited by a soft reset, start it again, in the same REPL. If not, the connection is lost."""
        try:
            code = await off_loop(self._terminal.end, EXIT_SECONDS)
            if self._closed:
                raise self._closed_error()
            if (reset := self._output.reset(code)) is None:
                raise self._exit_error(describe_exit(code))
            await self._start_next(reset)
        except TransportError as error:
            self._transport.abort()
            self._fail(error)
            super().connection_lost(None)
        finally:
            self._banner = None
            self._restart = None
            self._wake()

    async def _start_next(self, reset: Reset) -> None:
        self._banner, self._new_child_ended = bytearray(), False
        self._terminal = await off_loop(self._start)
        self._connect()
        if self._closed:  # meanwhile
            self._transport.abort()
            raise self._closed_error()
        output = await self._enter_raw() if reset is Reset.RAW else b""
        output += self._banner
        self._banner = None
        self._output = ChildOutput()
        self._output.add(output)
        super().data_received(SOFT_REBOOT + output)

    async def _enter_raw(self) -> bytes:
        # Wait for the prompt first: the unix port drops bytes that arrive before it has set up its terminal.
        deadline = self._loop.time() + START_SECONDS
        await self._read_until(FRIENDLY_PROMPT, deadline)
        self._transport.write(CTRL_A)
        await self._read_until(RAW_PROMPT, deadline)
        return RAW_PROMPT

    async def _read_until(self, mark: bytes, deadline: float) -> None:
        """Wait for `mark`, and drop what came before it, and the mark."""
        assert self._banner is not None
        banner = self._banner
        left = max(0.0, deadline - self._loop.time())
        with contextlib.suppress(TransportTimeout):
            await self._wait(
                lambda: mark in banner or self._new_child_ended or self._closed or len(banner) > MAX_BANNER_BYTES,
                "gave no prompt",
                left,
            )
        if self._closed:
            raise self._closed_error()
        if mark not in banner and self._new_child_ended:
            code = await off_loop(self._terminal.end, EXIT_SECONDS)
            raise self._exit_error(f"{describe_exit(code)}, before its prompt")
        if mark not in banner:
            raise TransportClosed("the process gave no prompt after its soft reset", where=self._where)
        del banner[: banner.index(mark) + len(mark)]

    def _exit_error(self, why: str) -> TransportClosed:
        return TransportClosed(why, where=self._where, hint="It is started again")


def describe_exit(code: int) -> str:
    """Describe an exit code as `subprocess` reports it: negative for a signal."""
    if code >= 0:
        return f"the process ended with exit code {code}"
    try:
        return f"the process was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"the process was ended by signal {-code}"
