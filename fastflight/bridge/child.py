"""A child process that stands for a board, as a stream that outlives its soft resets.

MicroPython's unix port ends where a board starts anew: at a ^D on an empty line, or at `SystemExit`. A `Child` follows
the conversation (`ReplState`), and when such an end was asked for it starts the process again and says what a board
says: `MPY: soft reboot`, then the banner and prompt of the REPL that the host was in. Any other end is a death: `aread`
raises `TransportClosed` with the exit code or the signal.

A soft reset ends all that the process had started in its group, and what comes from it later reaches nobody: each
process has a terminal of its own. What the host sends to a process that is ending is lost, as a board loses it that
resets.

A ^C reaches the process as a byte. The unix port takes it so at its prompts; while code runs there it waits for a
signal instead, which is not sent: a byte of a file on its way to the board would become one.

The end is seen on the terminal, which hangs up, and on Linux on the process itself too: something that it left running
may hold the terminal open. Where that cannot be seen, only the terminal counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator

from fastflight.concurrency.offload import off_loop
from fastflight.errors import TransportClosed, TransportTimeout
from fastflight.protocol.repl_state import PROMPT, RAW_PROMPT, ReplState
from fastflight.transport.exec import ExecAddress, ExecPort

SOFT_REBOOT = b"MPY: soft reboot\r\n"
ENTER_RAW = b"\x01"
# A terminal hangs up a moment before its process has ended. One that only closed its terminal is ended after this.
EXIT_SECONDS = 1.0
# From start to prompt: Node and emulators take a second on a busy machine.
START_SECONDS = 10.0
# More than any banner, with what a `boot.py` prints.
MAX_BANNER_BYTES = 64 * 1024
# What an ended process has said waits in its terminal, which holds less. More comes from what it left running.
MAX_LAST_BYTES = 64 * 1024


class Child:
    """The process of an `exec:` address. `open` starts it; `aclose` ends it, whatever it is doing."""

    def __init__(self, address: ExecAddress) -> None:
        self._address = address
        self._repl = ReplState()
        self._port: ExecPort | None = None
        # What can tell that the process has ended, whether it told, and whether the last words were taken.
        self._watch: int | None = None
        self._exited = self._silenced = False
        # Who waits on the terminal now, to be woken when the process has ended.
        self._waits: set[asyncio.Timeout] = set()
        # Set while a process stands that can be written to.
        self._standing = asyncio.Event()

    async def open(self) -> None:
        """Start the process. `TransportError` when it cannot be started."""
        await self._start()
        self._standing.set()

    async def aread(self, timeout: float) -> bytes:
        """At least one byte. `TransportTimeout` after `timeout` silent seconds, `TransportClosed` when it died."""
        data = await self._receive(timeout)
        if data is not None:
            self._repl.received(data)
            return data
        code = await self._reap()
        if not self._repl.exit_is_reset(code):
            raise TransportClosed(ending(code), where=self._address.url, hint="It is started again")
        return await self._restart(raw=self._repl.raw)

    async def awrite(self, data: bytes, timeout: float) -> None:
        """Hand all of `data` to the process, after the restart that may be under way."""
        await self._standing.wait()
        if self._port is None:
            raise self._closed()
        self._repl.sent(data)
        # A process that ended takes nothing; the reader says what that was.
        with contextlib.suppress(TransportClosed, TimeoutError):
            async with self._waiting():
                await self._port.awrite(data, timeout)

    async def aclose(self) -> None:
        """End the process and its group. Safe while another task waits in `aread` or `awrite`, which end then."""
        self._unwatch()
        self._wake()
        self._standing.set()
        port, self._port = self._port, None
        if port is not None:
            await off_loop(port.close)

    async def _start(self) -> None:
        self._port = await off_loop(self._address.open, START_SECONDS, discard=ExecPort.close)
        self._exited = self._silenced = False
        with contextlib.suppress(AttributeError, OSError):  # not on this system, or not allowed
            self._watch = os.pidfd_open(self._port.process.pid)
            asyncio.get_running_loop().add_reader(self._watch, self._ended)

    async def _restart(self, *, raw: bool) -> bytes:
        """Start the process again, in the same REPL; the first that the host is to hear of it."""
        await self._start()
        heard = b""
        if raw:
            try:
                async with asyncio.timeout(START_SECONDS):
                    heard = await self._enter_raw()
            except TimeoutError:
                raise self._no_prompt() from None
        self._repl = ReplState(raw=raw)
        self._repl.received(heard)
        self._standing.set()
        return SOFT_REBOOT + heard

    async def _enter_raw(self) -> bytes:
        # Not before its prompt: the unix port drops what it was sent before it has set up its terminal.
        await self._until(PROMPT)
        assert self._port is not None
        with contextlib.suppress(TransportClosed):  # `_until` says how it ended
            await self._port.awrite(ENTER_RAW, START_SECONDS)
        return RAW_PROMPT + await self._until(RAW_PROMPT)

    async def _until(self, mark: bytes) -> bytes:
        """What the process says after `mark`, so far."""
        heard = b""
        while mark not in heard:
            try:
                data = await self._receive(START_SECONDS)
            except TransportTimeout:
                raise self._no_prompt() from None
            if data is None:
                why = ending(await self._reap())
                raise TransportClosed(f"{why}, before its prompt", where=self._address.url, hint="It is started again")
            heard += data
            if len(heard) > MAX_BANNER_BYTES:
                raise self._no_prompt()
        return heard.partition(mark)[2]

    async def _receive(self, timeout: float) -> bytes | None:
        """Output of the process; None when it has ended and all of it was read."""
        if self._port is None or self._silenced:
            return None
        try:
            if not self._exited:
                with contextlib.suppress(TimeoutError):
                    async with self._waiting():
                        return await self._port.aread(timeout)
            # It has ended while this waited: its last words are here, or never come.
            return await self._last_words()
        except TransportClosed:
            return None

    async def _last_words(self) -> bytes | None:
        heard = b""
        self._silenced = True
        with contextlib.suppress(TransportTimeout, TransportClosed):
            while self._port is not None and len(heard) < MAX_LAST_BYTES:
                heard += await self._port.aread(0)
        return heard or None

    async def _reap(self) -> int:
        """End what is left of the process; its exit code, negative for a signal."""
        self._standing.clear()
        self._unwatch()
        self._wake()
        port, self._port = self._port, None
        if port is None:
            raise self._closed()
        return await off_loop(_reaped, port)

    @contextlib.asynccontextmanager
    async def _waiting(self) -> AsyncIterator[None]:
        """Wait here for the terminal; `TimeoutError` when it is of no use any more."""
        async with asyncio.timeout(None) as wait:
            self._waits.add(wait)
            try:
                yield
            finally:
                self._waits.discard(wait)

    def _closed(self) -> TransportClosed:
        return TransportClosed("the line was closed on this side", where=self._address.url)

    def _no_prompt(self) -> TransportClosed:
        return TransportClosed("the process gave no prompt after its soft reset", where=self._address.url)

    def _ended(self) -> None:
        self._exited = True
        self._unwatch()
        self._wake()

    def _wake(self) -> None:
        now = asyncio.get_running_loop().time()
        # Each once: one that is ending already cannot be told again.
        while self._waits:
            self._waits.pop().reschedule(now)

    def _unwatch(self) -> None:
        if self._watch is not None:
            asyncio.get_running_loop().remove_reader(self._watch)
            os.close(self._watch)
            self._watch = None


def ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"the process ended with exit code {code}"
    try:
        return f"the process was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"the process was ended by signal {-code}"


def _reaped(port: ExecPort) -> int:
    with contextlib.suppress(subprocess.TimeoutExpired):
        port.process.wait(EXIT_SECONDS)
    port.close()
    return port.process.wait()
