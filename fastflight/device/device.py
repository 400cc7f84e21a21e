"""A device: one board and the line to it, with one owner at a time.

A `Device` opens its line when it is first leased and keeps it open. A line that broke, or a board that could not be
mended, is closed, and opened anew by the next lease.

Whoever has it, all that crosses its line is seen by its `tap`; `listen` also has the line read while nobody has it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator

import structlog

from fastflight.concurrency import Exclusive, Shard, off_loop
from fastflight.concurrency.exclusive import IdleClaim
from fastflight.concurrency.offload import unbroken
from fastflight.device.board import OpenBoard
from fastflight.device.listening import listen
from fastflight.device.session import AsyncSession, Session, located
from fastflight.errors import ProtocolError, RequestError, TransportClosed, TransportError
from fastflight.transport import Address, AsyncAddress, Port, arun, run
from fastflight.transport.exec import ExecAddress
from fastflight.transport.relayed import RelayedAddress
from fastflight.transport.sim import SimAddress
from fastflight.transport.tap import Tap, TapReader
from fastflight.transport.tapped import WAITED_SECONDS, TappedPort, tapped, what_waited

log = structlog.get_logger(__name__)

# Waiting for another owner to finish a file of ordinary size.
LEASE_SECONDS = 30.0
# Starting a child or connecting over a slow network.
OPEN_SECONDS = 10.0
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
        """`shard` is where the line is read for those that listen; close it before the device."""
        self.name = name
        self.tap = Tap()
        self._lease_seconds = lease_seconds
        self._address = address
        # Its traffic is fed to the tap by whoever carries it, and nobody here can say anything.
        self._only_heard = isinstance(address, RelayedAddress)
        # What a board said while nobody had opened its line; not one that opening the line starts.
        self._may_have_waited = not isinstance(address, ExecAddress | RelayedAddress | SimAddress)
        self._shard = shard
        self._lock = Exclusive(name)
        self._port: TappedPort | None = None
        # Who opens the line in a thread may still do so when the device is closed.
        self._closing = threading.Lock()
        self._closed = False
        self._board = OpenBoard()
        # Asking for raw paste hung the board once.
        self._hangs = False
        self._trouble = ""
        # How often the line was lost, or could not be opened for those that listen.
        self.outages = 0
        # How often it was opened, and what boards before this one had lost on the way.
        self.openings = 0
        self._retries = 0
        # What has become of keeping its traffic: empty where nobody keeps it. Set by whoever does.
        self.recording = ""
        self._counting = threading.Lock()
        self._listeners = 0
        self._listening: concurrent.futures.Future[None] | None = None

    @property
    def shard(self) -> Shard:
        """Where its line is read for those that listen."""
        if self._shard is None:
            raise RuntimeError("the device was given no shard to be listened to on")
        return self._shard

    @property
    def address(self) -> Address:
        """Where the device is."""
        return self._address

    @property
    def url(self) -> str:
        """The same as text: what may be told of the URL that the user wrote."""
        return self._address.url

    @property
    def relayed(self) -> str:
        """The target whose traffic it is, as a rule of the relay names it; empty for one with a line of its own."""
        return self._address.target if isinstance(self._address, RelayedAddress) else ""

    @property
    def holder(self) -> str | None:
        """Who has it now; None when nobody has."""
        return self._lock.holder

    @property
    def turns(self) -> int:
        """How often somebody has had it. While this stays the same, nobody has asked anything of the board."""
        return self._lock.turns

    @property
    def trouble(self) -> str:
        """Why those that listen hear nothing: the line was lost or cannot be opened. Empty when it is well."""
        return self._trouble

    @property
    def retries(self) -> int:
        """How often a part of a transfer was lost or changed on the line, and moved again."""
        return self._retries + self._board.retries

    @property
    def put_out(self) -> int:
        """How often one that had it and was idle had to go because somebody else asked."""
        return self._lock.put_out

    @property
    def is_open(self) -> bool:
        """Whether the line to it is open."""
        return self._port is not None

    @contextlib.contextmanager
    def lease(self, holder: str, *, timeout: float | None = None, interrupt: bool = False) -> Iterator[Session]:
        """Have the board for a `with` block; `holder` is what others are told meanwhile.

        `BusyError` when another owner keeps it for longer than `timeout` (the device's own if None), or when a program
        runs on the board and `interrupt` is false. `TransportError` when it cannot be reached.
        """
        self._check_line()
        with self._lock.held(holder, self._patience(timeout)), located(self.name), self._requesting():
            try:
                port = self._ready(interrupt)
            except BaseException:
                if self._port is not None and self._board.repl.entered:
                    self._end(self._port)
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
        self._check_line()
        async with self._lock.aheld(holder, self._patience(timeout)):
            with located(self.name), self._requesting():
                try:
                    port = await self._aready(interrupt)
                except BaseException:
                    if self._port is not None and self._board.repl.entered:
                        await unbroken(self._aend(self._port))
                    raise
                try:
                    yield AsyncSession(self.name, self._board, port)
                finally:
                    await unbroken(self._aend(port))

    @contextlib.contextmanager
    def line(self, holder: str, *, timeout: float | None = None, claim: IdleClaim | None = None) -> Iterator[Port]:
        """Have the bare line for a `with` block, for a tool that speaks with the board itself.

        What was known of the board is forgotten then: the tool may have reset it, or given it other firmware. Others
        that ask meanwhile soon get an error, or the line, if the `claim` has lapsed. Otherwise as `lease`.
        """
        self._check_line()
        held = self._lock.held(holder, self._patience(timeout), lasting=True, claim=claim)
        with held, located(self.name):
            port = self._opened()
            try:
                yield port
            except TransportError as error:
                self._lost(error)
                _close(port)
                raise
            finally:
                self._forget()

    @contextlib.asynccontextmanager
    async def aline(
        self, holder: str, *, timeout: float | None = None, claim: IdleClaim | None = None
    ) -> AsyncIterator[Port]:
        """As `line`, for an `async with` block."""
        self._check_line()
        async with self._lock.aheld(holder, self._patience(timeout), lasting=True, claim=claim):
            with located(self.name):
                port = await self._aopened()
                try:
                    yield port
                except TransportError as error:
                    self._lost(error)
                    await _aclose(port)
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
                self._trouble = ""
            if self._listening is not None and self._trouble and not self.is_open:
                # A line that cannot be opened is tried now, however long the next try would be put off.
                self._listening.cancel()
                self._listening = None
            if self._listening is None:
                self._listening = shard.submit(listen(self._lock, self._aopened, self._abandon))
            self._listeners += 1
        try:
            yield reader
        finally:
            with self._counting:
                self._listeners -= 1
                if self._listeners == 0 and self._listening is not None:
                    self._listening.cancel()
                    self._listening = None

    def _check_line(self) -> None:
        """`RequestError` for a device that has none of its own to talk over."""
        if self._only_heard:
            raise RequestError(
                "only heard: it is what the relay carries to a target",
                where=self.name,
                hint="Read its session, or a recording of it; talk to the target through the relay",
            )

    def _opened(self) -> TappedPort:
        """The open line."""
        if self._port is not None:
            return self._port
        port = tapped(self._address.open(OPEN_SECONDS), self.tap)
        if not self._has(port):
            _close(port)
            raise self._late()
        if self._may_have_waited:
            with port.opening():
                run(what_waited(), port, timeout=WAITED_SECONDS)
        return port

    async def _aopened(self) -> TappedPort:
        """As `_opened`."""
        if self._port is not None:
            return self._port
        port = tapped(await _aopen(self._address), self.tap)
        if not self._has(port):
            await _aclose(port)
            raise self._late()
        if self._may_have_waited:
            with port.opening():
                await arun(what_waited(), port, timeout=WAITED_SECONDS)
        return port

    def _has(self, port: TappedPort) -> bool:
        """Have this line from now on; false where the device was closed while it was opened."""
        with self._closing:
            if self._closed:
                return False
            self._port = port
        self._well()
        return True

    def _late(self) -> TransportClosed:
        self._address.dispose()  # opening may have made anew what closing had removed
        return TransportClosed("closed while the line was opened", where=self.name, hint="Ask a server that runs")

    def _well(self) -> None:
        """The line is open: what comes now does not go on from what an earlier one brought."""
        if not self._only_heard:
            self.tap.cut(f"the line was lost: {self._trouble}" if self._trouble else "the line was opened")
            if self._trouble:
                log.info("device is heard again", device=self.name)
        self._trouble = ""
        self.openings += 1
        self.tap.nudge()

    async def _abandon(self, error: TransportError) -> None:
        """Close the line that failed those that listen."""
        port = self._port
        if error.what != self._trouble:  # one that cannot be opened fails again and again
            log.warning("device is not heard", device=self.name, reason=error.what)
        self._lost(error)
        if port is not None:
            await _aclose(port)

    def _lost(self, error: TransportError) -> None:
        """The line failed whoever had it: those that listen want to know."""
        self._drop()
        self._trouble = error.what
        self.outages += 1
        self.tap.lost()

    @contextlib.contextmanager
    def _requesting(self) -> Iterator[None]:
        """A request has the line for a `with` block; `_ready` begins it."""
        try:
            yield
        finally:
            if self._port is not None:
                self._port.requests.end()

    def _ready(self, interrupt: bool) -> Port:
        """The open line, with a board behind it that is ready for conversations."""
        idle = self._port is not None
        port = self._opened()
        port.requests.begin(self._board.repl)
        try:
            run(self._board.wake(interrupt=interrupt), port, timeout=WAKE_SECONDS)
            run(self._board.learn(), port, timeout=LEARN_SECONDS)
        except TransportError as error:
            again = self._may_open_again(error, idle)
            self._give_up(error)
            _close(port)
            if not again:
                raise
            return self._ready(interrupt)
        return port

    async def _aready(self, interrupt: bool) -> Port:
        """As `_ready`. Waking is not broken off: half an answer would be taken for the next one's."""
        idle = self._port is not None
        port = await self._aopened()
        port.requests.begin(self._board.repl)
        try:
            await unbroken(arun(self._board.wake(interrupt=interrupt), port, timeout=WAKE_SECONDS))
            await arun(self._board.learn(), port, timeout=LEARN_SECONDS)
        except TransportError as error:
            again = self._may_open_again(error, idle)
            self._give_up(error)
            await _aclose(port)
            if not again:
                raise
            return await self._aready(interrupt)
        return port

    def _end(self, port: Port) -> None:
        """Leave the board as it was found; one that cannot be is for the next lease to open anew."""
        try:
            run(self._board.end(), port, timeout=END_SECONDS)
        except (TransportError, ProtocolError) as error:
            # What the lease was for has its own outcome.
            self._give_up(error)
            _close(port)

    async def _aend(self, port: Port) -> None:
        """As `_end`."""
        try:
            await arun(self._board.end(), port, timeout=END_SECONDS)
        except (TransportError, ProtocolError) as error:
            self._give_up(error)
            await _aclose(port)

    def close(self) -> None:
        """Close the line, and end those that listen. Nobody may have the device; who is opening it gets an error."""
        with self._closing:
            self._closed = True
            port = self._port
        self._drop()
        if port is not None:
            _close(port)
        self.tap.close()
        self._address.dispose()

    def _patience(self, timeout: float | None) -> float:
        return self._lease_seconds if timeout is None else timeout

    def _may_open_again(self, error: TransportError, idle: bool) -> bool:
        """Whether a failed start is worth another: the line died while nobody used it, or the probe hung the board."""
        return self._board.hung_by_probe or (idle and isinstance(error, TransportClosed))

    def _give_up(self, error: TransportError | ProtocolError) -> None:
        """Close with a board that does not answer. What it runs is ours, unless it lost the line, and so its power."""
        ours = self._board.dirty and not self._board.hung_by_probe and not isinstance(error, TransportClosed)
        self._drop()
        self._board.dirty = ours

    def _drop(self) -> None:
        """Forget the line and what was known of the board behind it: another one may be there next time."""
        self._port = None
        self._forget()

    def _forget(self) -> None:
        """Forget what was known of the board, but not that the probe for raw paste hung it.

        Only a board that is probed no more can be used then.
        """
        self._hangs = self._hangs or self._board.hung_by_probe
        self._retries = self.retries
        self._board = OpenBoard(paste=False if self._hangs else None)


async def _aopen(address: Address) -> Port:
    if isinstance(address, AsyncAddress):
        return await address.aopen(OPEN_SECONDS)
    return await off_loop(address.open, OPEN_SECONDS, discard=_close)


def _close(port: Port) -> None:
    """Close a line. Last bytes that it does not take are not news: what is closed after it must be, too."""
    with contextlib.suppress(TransportError):
        port.close()


async def _aclose(port: Port) -> None:
    """As `_close`."""
    with contextlib.suppress(TransportError):
        await port.aclose()
