"""A line that belongs to a bridge: opened, read, and opened again after each loss.

An `Upstream` is a `BridgedLine` over any device address. When the line is lost, it reports the state `lost` with the
reason. It opens the line again after a wait that grows (`Backoff`), at the device's present port (`whereabouts`).
Nothing polls while the line is open. While it is lost, `Upstream` must poll, because no portable call reports that a
port is back or that a peer listens.

After several quick deaths of a child process (`exec:`) in a row, `Upstream` stops trying: the child would fail for
ever, while a port only waits for its cable. `retry` starts again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import NoReturn, Protocol

import structlog

from fastflight.bridge.channel import QUIET_SECONDS
from fastflight.bridge.line import Driven, Listener, State
from fastflight.bridge.whereabouts import Whereabouts
from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.transport import Address, SerialControl
from fastflight.transport.exec import ExecAddress
from fastflight.transport.tap import Tap

log = structlog.get_logger(__name__)

# Allows for connecting, starting a simulated board, or enumerating the ports of a slow hub.
OPEN_SECONDS = 10.0
# A line that was open for this long was stable: after its next loss the waits start short again.
STABLE_SECONDS = 10.0
# How many failures of a child process in a row, each before STABLE_SECONDS, end the attempts.
QUICK_DEATHS = 5


# The first wait. A board that resets its own USB is back after it; an attempt at once would find a half-removed port.
FIRST_SECONDS = 0.25
GROWTH = 2.0
# The longest wait, for a person who has plugged a board in again or restarted it. An attempt every two seconds only
# costs a list of ports or a refused connection.
CAP_SECONDS = 2.0
# The boards of one hub are lost together. This part of each wait is random, so that they are not opened all at once.
JITTER = 0.25


class Backoff:
    """The waits between attempts, which grow from `first` to `cap` seconds.

    `chance` returns a random number from 0 to 1, which shortens each wait by up to `JITTER`.
    """

    def __init__(
        self,
        first: float = FIRST_SECONDS,
        cap: float = CAP_SECONDS,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._first = self._seconds = first
        self._cap = cap
        self._chance = chance

    def next(self) -> float:
        """Return the seconds to wait now, and make the next wait longer."""
        seconds, self._seconds = self._seconds, min(self._seconds * GROWTH, self._cap)
        return seconds * (1 - JITTER * self._chance())

    def reset(self) -> None:
        """Make the next wait short again, after a success."""
        self._seconds = self._first


class PortStream(Protocol):
    """The part of a port that a line needs."""

    async def aread(self, timeout: float) -> bytes:
        """Return at least one byte."""

    async def awrite(self, data: bytes, timeout: float) -> None:
        """Write all of `data`."""

    async def aclose(self) -> None:
        """Close the port."""


class Upstream:
    """A `BridgedLine` to the device at `address`. Attach a listener, then run `run` as a task; cancel it to close.

    `name` appears in messages to people; by default it is the URL. The caller must call `address.dispose` at the end.
    """

    def __init__(self, address: Address, *, name: str = "", backoff: Backoff | None = None) -> None:
        self._address = address
        self._name = name or address.url
        self._tap = Tap()
        self._backoff = backoff or Backoff()
        self._whereabouts = Whereabouts(address)
        self._state = State("connecting")
        self._listener: Listener | None = None
        self._stream: PortStream | None = None
        self._driven = Driven.at_first(address)
        self._reading = asyncio.Event()
        self._reading.set()
        self._retry_requested = asyncio.Event()

    @property
    def name(self) -> str:
        """The name of the device, for people."""
        return self._name

    @property
    def tap(self) -> Tap:
        """The tap, which gets everything that crosses the line."""
        return self._tap

    @property
    def state(self) -> State:
        """The present state of the line."""
        return self._state

    @property
    def control(self) -> SerialControl | None:
        """The serial control of the open port; None if the line is not open, or is not a serial line."""
        return self._stream if isinstance(self._stream, SerialControl) else None

    @property
    def driven(self) -> Driven:
        """The control lines of the open port, as they were last set."""
        return self._driven

    def attach(self, listener: Listener | None) -> None:
        """Replace the line's listener."""
        self._listener = listener

    def pause(self) -> None:
        """Stop reading; the listener gets no data after this returns."""
        self._reading.clear()

    def resume(self) -> None:
        """Continue reading."""
        self._reading.set()

    def retry(self) -> None:
        """Open a lost line now, even if the attempts have ended."""
        self._retry_requested.set()

    async def write(self, data: bytes) -> None:
        """Write all of `data`, and wait while the line accepts no more. Raises `TransportClosed` while it is lost."""
        stream = self._stream
        if stream is None:
            raise TransportClosed(
                f"the device is not there: {self._state.reason or 'it is being opened'}",
                where=self._name,
                hint="It is opened as soon as it is back",
            )
        self._tap.feed("tx", data)
        # A device that accepts no byte now may accept it later: the caller waits, or cancels this call.
        await stream.awrite(data, QUIET_SECONDS)

    async def run(self) -> None:
        """Keep the line open until cancelled. A failure of the device does not end it."""
        failures = 0
        while True:
            failure, open_seconds = await self._open_and_read()
            if open_seconds >= STABLE_SECONDS:
                self._backoff.reset()
                failures = 0
            failures += 1
            self._retry_requested.clear()
            given_up = isinstance(self._address, ExecAddress) and failures >= QUICK_DEATHS
            reason = f"given up after {failures} failures in a row: {failure.what}" if given_up else failure.what
            self._set_state(State("lost", reason))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if given_up else self._backoff.next()):
                    await self._retry_requested.wait()
                    self._backoff.reset()
                    failures = 0

    async def _open_and_read(self) -> tuple[TransportError, float]:
        """Open the line and read it until it fails. Return the failure, and how many seconds the line was open."""
        clock = asyncio.get_running_loop().time
        self._set_state(State("connecting"))
        try:
            stream = await self._open()
        except TransportError as error:
            return error, 0.0
        opened = clock()
        self._stream = stream
        self._driven = Driven.at_first(self._address)
        try:
            self._set_state(State("open"))
            await self._read(stream)
        except TransportError as error:
            return error, clock() - opened
        except Exception as error:  # the task's edge: the line is reported as lost, and opened again
            log.exception("reading a line failed", device=self._name)
            return TransportError.unexpected(error), clock() - opened
        finally:
            self._stream = None
            with contextlib.suppress(TransportError):
                await stream.aclose()

    async def _open(self) -> PortStream:
        return await self._whereabouts.aopen(OPEN_SECONDS)

    async def _read(self, stream: PortStream) -> NoReturn:
        while True:
            await self._reading.wait()
            try:
                data = await stream.aread(QUIET_SECONDS)
            except TransportTimeout:
                continue
            self._tap.feed("rx", data)
            # `pause` may have been called during the read: then the data waits here.
            await self._reading.wait()
            if self._listener is not None:
                self._listener.data_received(data)
            # A device that floods its line is always ready: let the loop's other tasks run.
            await asyncio.sleep(0)

    def _set_state(self, state: State) -> None:
        if state != self._state:
            self._state = state
            if self._listener is not None:
                self._listener.state_changed(state)
