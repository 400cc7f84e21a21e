"""The line of a bridge's own: opened, read, and opened again for as long as the bridge lives.

An `Upstream` is a `BridgedLine` over any device address. A line that is lost is told as such, with the reason,
and opened again after a wait that grows (`Backoff`), wherever the device is then (`whereabouts`). Nothing polls while
it is open. While it is lost, something must: no portable call says that a port came back, or that a peer listens.

A child process (`exec:`) that dies again and again is given up: it would fail for ever, where a port only waits for its
cable. `retry` begins anew.
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
from fastflight.concurrency.offload import off_loop
from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.transport import Address, SerialControl
from fastflight.transport.exec import ExecAddress
from fastflight.transport.tap import Tap

log = structlog.get_logger(__name__)

# Connecting, starting a simulated board, or enumerating what a slow hub gives.
OPEN_SECONDS = 10.0
# A line that stood this long was up: its next loss is a new one, and is followed up quickly.
STABLE_SECONDS = 10.0
# Deaths of a child in a row, none of which stood that long, until it is given up.
QUICK_DEATHS = 5


# A board that resets its own USB is back within this; asking at once would find the port half gone.
FIRST_SECONDS = 0.25
GROWTH = 2.0
# Somebody who plugs a board back in, or starts it again, waits at most this long; asking once in two seconds costs a
# list of ports or a refused connection, and nothing that shows.
CAP_SECONDS = 2.0
# The boards of one hub go away together: this part of each wait is left to chance, so that they do not come back so.
JITTER = 0.25


class Backoff:
    """The waits between attempts, from `first` to `cap` seconds. `chance` returns a number from 0 to 1."""

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
        """Seconds to wait now; the next wait is longer."""
        seconds, self._seconds = self._seconds, min(self._seconds * GROWTH, self._cap)
        return seconds * (1 - JITTER * self._chance())

    def reset(self) -> None:
        """An attempt has succeeded: the next wait is short again."""
        self._seconds = self._first


class PortStream(Protocol):
    """The part of a port that a line needs."""

    async def aread(self, timeout: float) -> bytes:
        """At least one byte."""

    async def awrite(self, data: bytes, timeout: float) -> None:
        """Hand all of `data` over."""

    async def aclose(self) -> None:
        """Give it back."""


class Upstream:
    """The device at `address`, as people know it by `name`. Whoever made the address disposes of it."""

    def __init__(
        self, address: Address, *, name: str = "", tap: Tap | None = None, backoff: Backoff | None = None
    ) -> None:
        self._address = address
        self._name = name or address.url
        self._tap = tap or Tap()
        self._backoff = backoff or Backoff()
        self._place = Whereabouts(address)
        self._state = State("connecting")
        self._listener: Listener | None = None
        self._stream: PortStream | None = None
        self._driven = Driven.at_first(address)
        self._reading = asyncio.Event()
        self._reading.set()
        self._wanted = asyncio.Event()

    @property
    def name(self) -> str:
        """The device as people know it."""
        return self._name

    @property
    def tap(self) -> Tap:
        """Where everything that crosses the line is seen."""
        return self._tap

    @property
    def state(self) -> State:
        """How the line is now."""
        return self._state

    @property
    def control(self) -> SerialControl | None:
        """The serial line's control while it is open; None for anything else."""
        return self._stream if isinstance(self._stream, SerialControl) else None

    @property
    def driven(self) -> Driven:
        """How the control lines of the open port were left."""
        return self._driven

    def attach(self, listener: Listener | None) -> None:
        """Tell `listener` from now on, and nobody else."""
        self._listener = listener

    def pause(self) -> None:
        """Read no further; nothing is told after this returns."""
        self._reading.clear()

    def resume(self) -> None:
        """Read on."""
        self._reading.set()

    def retry(self) -> None:
        """Try now what would be tried later, or not any more."""
        self._wanted.set()

    async def write(self, data: bytes) -> None:
        """Hand all of `data` to the line, waiting while it takes no more. `TransportClosed` while it is lost."""
        stream = self._stream
        if stream is None:
            raise TransportClosed(
                f"the device is not there: {self._state.reason or 'it is being opened'}",
                where=self._name,
                hint="It is opened as soon as it is back",
            )
        self._tap.feed("tx", data)
        # A device that takes no byte may do so later: whoever writes waits, or gives up by cancelling.
        await stream.awrite(data, QUIET_SECONDS)

    async def run(self) -> None:
        """Keep the line open until cancelled. No failure of the device ends it."""
        failures = 0
        while True:
            failure, stood = await self._once()
            if stood >= STABLE_SECONDS:
                self._backoff.reset()
                failures = 0
            failures += 1
            self._wanted.clear()
            given_up = isinstance(self._address, ExecAddress) and failures >= QUICK_DEATHS
            reason = f"given up after {failures} failures in a row: {failure.what}" if given_up else failure.what
            self._tell(State("lost", reason))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if given_up else self._backoff.next()):
                    await self._wanted.wait()
                    self._backoff.reset()
                    failures = 0

    async def _once(self) -> tuple[TransportError, float]:
        """Open the line and read it until it fails: how it failed, and how many seconds it stood."""
        clock = asyncio.get_running_loop().time
        self._tell(State("connecting"))
        try:
            stream = await self._open()
        except TransportError as error:
            return error, 0.0
        opened = clock()
        self._stream = stream
        self._driven = Driven.at_first(self._address)
        try:
            self._tell(State("open"))
            await self._read(stream)
        except TransportError as error:
            return error, clock() - opened
        except Exception as error:  # the task's edge: clients are told, and the line is opened again
            log.exception("reading a line failed", device=self._name)
            return TransportError.unexpected(error), clock() - opened
        finally:
            self._stream = None
            with contextlib.suppress(TransportError):
                await stream.aclose()

    async def _open(self) -> PortStream:
        return await off_loop(self._place.open, OPEN_SECONDS, discard=lambda port: port.close())

    async def _read(self, stream: PortStream) -> NoReturn:
        while True:
            await self._reading.wait()
            try:
                data = await stream.aread(QUIET_SECONDS)
            except TransportTimeout:
                continue
            self._tap.feed("rx", data)
            # Paused while the read was on its way: the data waits here.
            await self._reading.wait()
            if self._listener is not None:
                self._listener.data_received(data)
            # A device that floods its line is always ready: let the loop's other tasks run.
            await asyncio.sleep(0)

    def _tell(self, state: State) -> None:
        if state != self._state:
            self._state = state
            if self._listener is not None:
                self._listener.state_changed(state)
