"""A device: one board, with one owner at a time.

`lease` gives an owner a `Session` for files and code. `line` gives the bare port to a tool that speaks with the board
itself. `listen` gives the traffic to anyone, and has the line read while nobody has the device. A `Device` opens its
line (`DeviceLine`) when it is first needed and keeps it open. When the line breaks, or the board cannot be brought back
to its prompt, the port is closed, and the next lease opens it anew.

Threads call `lease` and `line`, coroutines `alease` and `aline`; `listen` serves both. Any number may do so at once:
the device has one owner at a time, and the others wait.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator

import structlog

from fastflight.concurrency import Exclusive, Shard
from fastflight.concurrency.exclusive import IdleClaim
from fastflight.concurrency.offload import unbroken
from fastflight.device.board import OpenBoard
from fastflight.device.line import DeviceLine, aclose, close
from fastflight.device.listening import listen
from fastflight.device.session import AsyncSession, Session, located
from fastflight.errors import ProtocolError, TransportClosed, TransportError
from fastflight.transport import Address, Port, arun, run
from fastflight.transport.chunk_buffer import TapReader
from fastflight.transport.relayed import RelayedAddress
from fastflight.transport.tap import Tap

log = structlog.get_logger(__name__)

# Waiting for another owner to finish a file of ordinary size.
LEASE_SECONDS = 30.0
# In all, for a board that talks without end; a silent one is given up earlier. Waking it may take three attempts,
# learning a probe that hangs and a recovery, ending a recovery and the removal of a part.
WAKE_SECONDS = 5.0
LEARN_SECONDS = 15.0
END_SECONDS = 15.0


class Device:
    """One board, known by `name`, reached at `address`."""

    def __init__(
        self, name: str, address: Address, lease_seconds: float = LEASE_SECONDS, shard: Shard | None = None
    ) -> None:
        """The line is read for those that listen on `shard`: close that before the device."""
        self.name = name
        self._lease_seconds = lease_seconds
        self._shard = shard
        self._lock = Exclusive(name)
        self._line = DeviceLine(name, address)
        self._board = OpenBoard()
        # Asking for raw paste hung the board once.
        self._hangs = False
        # Of the boards before this one.
        self._retries = 0
        # What has become of recording the traffic, empty where nobody records it. Set by the recorder.
        self.recording = ""
        self._counting = threading.Lock()
        self._listeners = 0
        self._listening: concurrent.futures.Future[None] | None = None

    @property
    def shard(self) -> Shard:
        """The event loop on which the line is read while a session or a recording listens to it."""
        if self._shard is None:
            raise RuntimeError("the device was given no shard to be listened to on")
        return self._shard

    @property
    def tap(self) -> Tap:
        """The traffic of the line, whoever has the device."""
        return self._line.tap

    @property
    def address(self) -> Address:
        """Where the device is."""
        return self._line.address

    @property
    def url(self) -> str:
        """The address as text, without what the user's URL holds in confidence."""
        return self.address.url

    @property
    def relayed(self) -> str:
        """The relay's name for the target whose traffic this is; empty for a device with a line of its own."""
        return self.address.target if isinstance(self.address, RelayedAddress) else ""

    @property
    def holder(self) -> str | None:
        """The name of the owner; None when nobody has the device."""
        return self._lock.holder

    @property
    def turns(self) -> int:
        """How often the device had an owner. While this stays the same, nobody has asked anything of the board."""
        return self._lock.turns

    @property
    def put_out(self) -> int:
        """How often an idle owner had to go because somebody else asked."""
        return self._lock.put_out

    @property
    def trouble(self) -> str:
        """Why those that listen hear nothing: the line was lost or cannot be opened. Empty when it is well."""
        return self._line.trouble

    @property
    def outages(self) -> int:
        """How often the line was lost, or could not be opened for those that listen."""
        return self._line.outages

    @property
    def openings(self) -> int:
        """How often the line was opened."""
        return self._line.openings

    @property
    def is_open(self) -> bool:
        """Whether the line is open."""
        return self._line.port is not None

    @property
    def retries(self) -> int:
        """How often a part of a transfer was lost or changed on the line, and sent again."""
        return self._retries + self._board.retries

    @contextlib.contextmanager
    def lease(self, holder: str, *, timeout: float | None = None, interrupt: bool = False) -> Iterator[Session]:
        """Own the board for a `with` block. Whoever asks meanwhile gets an error that names `holder`.

        `BusyError` when another owner keeps it for longer than `timeout` (the device's own if None), or when a program
        runs on the board and `interrupt` is false. `TransportError` when it cannot be reached.
        """
        self._line.check()
        with self._lock.held(holder, self._patience(timeout)), located(self.name), self._requesting():
            try:
                port = self._ready(interrupt)
            except BaseException:
                if self._line.port is not None and self._board.repl.entered:
                    self._end(self._line.port)
                raise
            try:
                yield Session(self.name, self._board, port)
            finally:
                self._end(port)

    @contextlib.asynccontextmanager
    async def alease(
        self, holder: str, *, timeout: float | None = None, interrupt: bool = False
    ) -> AsyncIterator[AsyncSession]:
        """As `lease`, for an `async with` block."""
        self._line.check()
        async with self._lock.aheld(holder, self._patience(timeout)):
            with located(self.name), self._requesting():
                try:
                    port = await self._aready(interrupt)
                except BaseException:
                    if self._line.port is not None and self._board.repl.entered:
                        await unbroken(self._aend(self._line.port))
                    raise
                try:
                    yield AsyncSession(self.name, self._board, port)
                finally:
                    await unbroken(self._aend(port))

    @contextlib.contextmanager
    def line(self, holder: str, *, timeout: float | None = None, claim: IdleClaim | None = None) -> Iterator[Port]:
        """Own the bare line for a `with` block, for a tool that speaks with the board itself.

        The device then forgets what it knew of the board: the tool may have reset it, or given it other firmware.
        Others that ask meanwhile soon get an error, or the line, if the `claim` has lapsed. Otherwise as `lease`.
        """
        self._line.check()
        held = self._lock.held(holder, self._patience(timeout), lasting=True, claim=claim)
        with held, located(self.name):
            port = self._line.opened()
            try:
                yield port
            except TransportError as error:
                self._lost(error)
                close(port)
                raise
            finally:
                self._forget()

    @contextlib.asynccontextmanager
    async def aline(
        self, holder: str, *, timeout: float | None = None, claim: IdleClaim | None = None
    ) -> AsyncIterator[Port]:
        """As `line`, for an `async with` block."""
        self._line.check()
        async with self._lock.aheld(holder, self._patience(timeout), lasting=True, claim=claim):
            with located(self.name):
                port = await self._line.aopened()
                try:
                    yield port
                except TransportError as error:
                    self._lost(error)
                    await aclose(port)
                    raise
                finally:
                    self._forget()

    @contextlib.contextmanager
    def listen(self, *, seq: int | None = None, since_ns: int | None = None) -> Iterator[TapReader]:
        """See what crosses the line, from now or from as far back as `Tap.reader` can go.

        For the length of the block the line is kept open, and read while nobody has the device; the board's program is
        not disturbed. Never blocks: for threads and coroutines alike.
        """
        shard = self.shard
        reader = self.tap.reader(seq=seq, since_ns=since_ns)
        with self._counting:
            if self._listeners == 0:
                self._line.trouble = ""
            if self._listening is not None and self.trouble and not self.is_open:
                # A line that cannot be opened is tried now, however long the next try would be put off.
                self._listening.cancel()
                self._listening = None
            if self._listening is None:
                self._listening = shard.submit(listen(self._lock, self._line.aopened, self._abandon))
            self._listeners += 1
        try:
            yield reader
        finally:
            with self._counting:
                self._listeners -= 1
                if self._listeners == 0 and self._listening is not None:
                    self._listening.cancel()
                    self._listening = None

    async def _abandon(self, error: TransportError) -> None:
        """Close the line, which failed with `error` while nobody had a lease."""
        port = self._line.port
        if error.what != self._line.trouble:  # one that cannot be opened fails again and again
            log.warning("device is not heard", device=self.name, reason=error.what)
        self._lost(error)
        if port is not None:
            await aclose(port)

    def _lost(self, error: TransportError) -> None:
        """Forget the port and the board: the port failed with `error`. The caller closes it."""
        self._line.lost(error)
        self._forget()

    @contextlib.contextmanager
    def _requesting(self) -> Iterator[None]:
        """Mark the end of a request's traffic in the tap; `_ready` marks its beginning."""
        try:
            yield
        finally:
            if self._line.port is not None:
                self._line.port.requests.end()

    def _ready(self, interrupt: bool) -> Port:
        """The open line, with a board behind it that is ready for conversations."""
        idle = self._line.port is not None
        port = self._line.opened()
        port.requests.begin(self._board.repl)
        try:
            run(self._board.wake(interrupt=interrupt), port, timeout=WAKE_SECONDS)
            run(self._board.learn(), port, timeout=LEARN_SECONDS)
        except TransportError as error:
            again = self._may_open_again(error, idle)
            self._give_up(error)
            close(port)
            if not again:
                raise
            return self._ready(interrupt)
        return port

    async def _aready(self, interrupt: bool) -> Port:
        """As `_ready`. Waking is not cancelled half way: the next request would take the late answer for its own."""
        idle = self._line.port is not None
        port = await self._line.aopened()
        port.requests.begin(self._board.repl)
        try:
            await unbroken(arun(self._board.wake(interrupt=interrupt), port, timeout=WAKE_SECONDS))
            await arun(self._board.learn(), port, timeout=LEARN_SECONDS)
        except TransportError as error:
            again = self._may_open_again(error, idle)
            self._give_up(error)
            await aclose(port)
            if not again:
                raise
            return await self._aready(interrupt)
        return port

    def _end(self, port: Port) -> None:
        """Bring the board back to its prompt. Where that fails the next lease opens the port anew."""
        try:
            run(self._board.end(), port, timeout=END_SECONDS)
        except (TransportError, ProtocolError) as error:
            # Not raised: the lease has its own outcome.
            self._give_up(error)
            close(port)

    async def _aend(self, port: Port) -> None:
        """As `_end`."""
        try:
            await arun(self._board.end(), port, timeout=END_SECONDS)
        except (TransportError, ProtocolError) as error:
            self._give_up(error)
            await aclose(port)

    def close(self) -> None:
        """Close the line and end its sessions. Nobody may have a lease. A thread that opens the line gets an error."""
        self._line.close()
        self._forget()

    def _patience(self, timeout: float | None) -> float:
        return self._lease_seconds if timeout is None else timeout

    def _may_open_again(self, error: TransportError, idle: bool) -> bool:
        """Whether a failed start is worth another: the line died while nobody used it, or the probe hung the board."""
        return self._board.hung_by_probe or (idle and isinstance(error, TransportClosed))

    def _give_up(self, error: TransportError | ProtocolError) -> None:
        """Forget the port and a board that does not answer. The caller closes the port.

        Unless the line was closed, and the board lost its power with it, it still runs code of ours: the next lease may
        interrupt that.
        """
        ours = self._board.dirty and not self._board.hung_by_probe and not isinstance(error, TransportClosed)
        self._line.port = None
        self._forget()
        self._board.dirty = ours

    def _forget(self) -> None:
        """Forget what was known of the board, except that asking for raw paste hung it: it is not asked again."""
        self._hangs = self._hangs or self._board.hung_by_probe
        self._retries = self.retries
        self._board = OpenBoard(paste=False if self._hangs else None)
