"""A device: one board, with one owner at a time.

`lease` gives an owner a `Session` for files and code. `line` gives the bare port to a tool that speaks to the board
itself. `listen` shows the traffic to any number of readers, and reads the line while nobody owns the device.

A `Device` opens its line (`DeviceLine`) when it is first needed and keeps it open. When the line breaks, or the board
does not return to its prompt, the port is closed, and the next lease opens it again.

Threads call `lease` and `line`, coroutines call `alease` and `aline`; `listen` is for both. Any number of callers may
do so at once: one of them owns the device, the others wait.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator

from fastflight.concurrency import Exclusive, Shard
from fastflight.concurrency.exclusive import IdleClaim
from fastflight.concurrency.offload import unbroken
from fastflight.concurrency.portal import Portal
from fastflight.device.board import OpenBoard
from fastflight.device.capabilities import PRINTS, DeviceInfo
from fastflight.device.line import DeviceLine, aclose
from fastflight.device.listening import listen
from fastflight.device.session import AsyncSession, Session, located
from fastflight.errors import BusyError, ProtocolError, RequestError, TransportClosed, TransportError
from fastflight.lazy import Logger
from fastflight.protocol.raw_repl import GRACE_SECONDS
from fastflight.transport import Address, Port, arun
from fastflight.transport.chunk_buffer import TapReader
from fastflight.transport.port import MovableAddress
from fastflight.transport.port_tap import Guard, unguarded
from fastflight.transport.tap import Tap
from fastflight.transport.url import LINES, MICROPYTHON, kind_of

log = Logger(__name__)

# Enough for another owner to finish a file of ordinary size.
LEASE_SECONDS = 30.0
# Total times, which matter for a board that prints without end: a silent one fails earlier. `wake` may need three
# attempts and the grace of an interrupted program, `learn` a probe that hangs and a recovery, `end` a recovery and the
# removal of a temporary file.
WAKE_SECONDS = 10.0
LEARN_SECONDS = 15.0
END_SECONDS = 15.0


class Device:
    """One board, known by `name`, reached at `address`."""

    def __init__(
        self,
        name: str,
        address: Address,
        lease_seconds: float = LEASE_SECONDS,
        shard: Shard | None = None,
        guard: Guard = unguarded,
        *,
        agent: bool = False,
        grace: float = GRACE_SECONDS,
    ) -> None:
        """`agent`: the board's program runs the agent or aiorepl, also if it has not announced itself on this line.

        `grace` is what an interrupted program gets to clean up, in seconds, before more Ctrl-C follow.

        `shard` is the event loop on which `listen` reads the line: close it before the device.

        `lease_seconds` is how long a lease waits for another owner if it gives no timeout. `guard` is called before
        each write to the board, and raises if this process may not do that now.
        """
        # The address says that it only prints: nothing is ever sent, but what a client sends itself.
        self._only_prints = kind_of(address.url) == LINES
        agent = agent and not self._only_prints
        self.name = name
        self._lease_seconds = lease_seconds
        self._lock = Exclusive(name)
        self._line = DeviceLine(name, address, guard, shard=shard, agent=agent)
        self._grace = grace
        self._board = OpenBoard(None, self._line.unread, grace)
        self._agent = agent
        self._line.unread.kind = MICROPYTHON if agent else kind_of(address.url)
        # The board once stopped answering when it was asked for raw paste.
        self._raw_paste_hangs = False
        # The retries of the earlier `OpenBoard`s.
        self._retries = 0
        # The changes of the earlier `OpenBoard`s, each of which ended with one that nobody saw.
        self._changes = 0
        # The state of the recording of this device, empty if it is not recorded. Set by the recorder.
        self.recording = ""
        self._listeners_lock = threading.Lock()
        self._listeners = 0
        self._listen_task: concurrent.futures.Future[None] | None = None

    @property
    def _wake_seconds(self) -> float:
        return WAKE_SECONDS + self._grace

    @property
    def shard(self) -> Shard:
        """The event loop on which the line lives."""
        return self._line.shard

    @property
    def _portal(self) -> Portal:
        """The way of threads into that loop."""
        return Portal(self.shard.loop, self._line.ended_error)

    @property
    def tap(self) -> Tap:
        """The traffic of the line, whoever owns the device."""
        return self._line.tap

    @property
    def address(self) -> Address:
        """The address of the device."""
        return self._line.address

    @property
    def url(self) -> str:
        """The URL of the device, without what may be secret in it (`transport.url`)."""
        return self.address.url

    @property
    def kind(self) -> str:
        """What its address says, or the device has shown: `lines` if it only prints, `micropython`, or `unknown`."""
        return LINES if self._only_prints else self._line.unread.kind

    def known_info(self, *, interrupt: bool = False) -> DeviceInfo | None:
        """Return what a device that only prints is known to be, without asking it; None for one that can be asked.

        With `interrupt`, one can be asked whose address does not say that it only prints.
        """
        return PRINTS if self._only_prints or (self.kind == LINES and not interrupt) else None

    @property
    def holder(self) -> str | None:
        """The name of the owner; None if nobody owns the device."""
        return self._lock.holder

    @property
    def in_request(self) -> bool:
        """Whether a request has the device now. A tool with the bare line, such as a terminal, is none."""
        return self.holder is not None and not self._lock.is_lasting

    @property
    def turns(self) -> int:
        """How often the device was handed to an owner. While this stays the same, no new owner has used the board."""
        return self._lock.turns

    @property
    def changes(self) -> int:
        """How often somebody may have changed files of the board."""
        return self._changes + self._board.changes

    @property
    def is_heard(self) -> bool:
        """Whether all that the board's program says is seen: the line is read, and no program goes on beside requests.

        Of such a program, what it says while a request has the board is not told from the request's traffic.
        """
        return self._listen_task is not None and not self.trouble and self._board.repl.beside == "none"

    @property
    def is_deaf(self) -> bool:
        """Whether it is known that a request gets no answer now, unless it interrupts.

        The board's program runs: it has not answered to a request, and printed no prompt since then.
        """
        return self.is_heard and not self._board.dirty and not self._line.unread.may_ask(1)

    def no_answer(self) -> BusyError:
        """Return the error for a request while the device `is_deaf`."""
        return self._board.no_answer()

    @property
    def evicted(self) -> int:
        """How often an idle owner had to give the device up to another caller (`IdleClaim`)."""
        return self._lock.evicted

    @property
    def trouble(self) -> str:
        """Why listeners receive nothing: the line was lost or cannot be opened. Empty while the line works."""
        return self._line.trouble

    @property
    def outages(self) -> int:
        """How often the line was lost, or could not be opened for listeners."""
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
        """How often a part of a transfer was lost or changed on the line and sent again."""
        return self._retries + self._board.retries

    @contextlib.contextmanager
    def lease(self, holder: str, *, timeout: float | None = None, interrupt: bool = False) -> Iterator[Session]:
        """As `alease`, for a `with` block of a thread."""
        with self._portal.entered(self.alease(holder, timeout=timeout, interrupt=interrupt)) as session:
            yield Session(session)

    @contextlib.asynccontextmanager
    async def alease(
        self, holder: str, *, timeout: float | None = None, interrupt: bool = False
    ) -> AsyncIterator[AsyncSession]:
        """Own the device for an `async with` block. `holder` names the owner in the `BusyError` that other callers get.

        Raises `BusyError` if another owner keeps the device for longer than `timeout` seconds (None: the device's
        default), or if a program runs on the board and `interrupt` is false. `TransportError` if the board cannot be
        reached. `RequestError` at once if its address says that it only prints.
        """
        if self._only_prints:
            raise RequestError(
                "this device only prints lines: it has no files and runs no code",
                where=self.name,
                hint="Read its lines with tail, record or sql. If it is a MicroPython board, take kind=lines out of "
                "its address",
            )
        # Not `aheld`: an event loop that ends closes all asynchronous generators at once, also one within this one.
        await self._lock.aacquire(holder, self._lease_timeout(timeout))
        try:
            with located(self.name), self._tagging_requests():
                try:
                    port = await self._prepare(interrupt)
                except BaseException:
                    if self._line.port is not None and self._board.repl.entered:
                        await unbroken(self._end(self._line.port))
                    raise
                try:
                    yield AsyncSession(self.name, self._board, port)
                finally:
                    await unbroken(self._end(port))
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def line(self, holder: str, *, timeout: float | None = None, claim: IdleClaim | None = None) -> Iterator[Port]:
        """As `aline`, for a `with` block of a thread."""
        with self._portal.entered(self.aline(holder, timeout=timeout, claim=claim)) as port:
            yield port

    @contextlib.asynccontextmanager
    async def aline(
        self, holder: str, *, timeout: float | None = None, claim: IdleClaim | None = None
    ) -> AsyncIterator[Port]:
        """Own the bare line for an `async with` block, for a tool that speaks to the board itself.

        Afterwards the device forgets what it knew about the board: the tool may have reset it or changed its firmware.
        Callers that ask for the device meanwhile get a `BusyError` after a short wait. If the `claim` has lapsed, they
        get the device instead, and this owner loses it. `holder`, `timeout` and errors are as for `alease`.
        """
        await self._lock.aacquire(holder, self._lease_timeout(timeout), lasting=True, claim=claim)
        try:
            with located(self.name):
                port = await self._line.aensure_open()
                try:
                    yield port
                except TransportError as error:
                    self._mark_lost(error)
                    await aclose(port)
                    raise
                finally:
                    self._line.unread.forget()
                    self._forget()
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def listen(self, *, seq: int | None = None, since_ns: int | None = None) -> Iterator[TapReader]:
        """Return a reader of the line's traffic for a `with` block. `seq` and `since_ns` are those of `Tap.reader`.

        During the block the line is kept open, and read while nobody owns the device, on `shard`. The board's program
        is not disturbed. Entering and leaving the block does not wait, in threads and in coroutines.
        """
        shard = self.shard
        reader = self.tap.reader(seq=seq, since_ns=since_ns)
        self._line.follows = True
        with self._listeners_lock:
            if self._listeners == 0:
                self._line.trouble = ""
            if self._listen_task is not None and self.trouble and not self.is_open:
                # The line cannot be opened: try again now instead of after the delay.
                self._listen_task.cancel()
                self._listen_task = None
            if self._listen_task is None:
                is_local = isinstance(self.address, MovableAddress)
                reading = listen(self._lock, self._line.aensure_open, self._abandon, is_local=is_local)
                self._listen_task = shard.submit(reading)
            self._listeners += 1
        try:
            yield reader
        finally:
            with self._listeners_lock:
                self._listeners -= 1
                if self._listeners == 0 and self._listen_task is not None:
                    self._listen_task.cancel()
                    self._listen_task = None

    async def _abandon(self, error: TransportError) -> None:
        """Close the line, which failed with `error` while it was read for listeners."""
        port = self._line.port
        if error.what != self._line.trouble:  # log the repeated failures of opening once
            log.warning("device line failed", device=self.name, reason=error.what)
        self._mark_lost(error)
        if port is not None:
            await aclose(port)

    def _mark_lost(self, error: TransportError) -> None:
        """Forget the port, which failed with `error`, and the state of the board. The caller closes the port."""
        self._line.mark_lost(error)
        self._forget()

    @contextlib.contextmanager
    def _tagging_requests(self) -> Iterator[None]:
        """Mark the end of a request's traffic in the tap; `_prepare` marks its beginning."""
        try:
            yield
        finally:
            if self._line.port is not None:
                self._line.tapping.traffic.end()

    async def _prepare(self, interrupt: bool) -> Port:
        """Return the open port, with the board ready for conversations.

        `wake` is not cancelled half way: the next request would take its late answer for its own.
        """
        idle = self._line.port is not None
        port = await self._line.aensure_open()
        traffic = self._line.tapping.traffic
        self._board.repl.traffic = traffic
        traffic.begin(self._board.repl.beside)
        self._board.agent = self._agent or traffic.has_agent
        try:
            await unbroken(arun(self._board.wake(interrupt=interrupt), port, timeout=self._wake_seconds))
            await arun(self._board.learn(), port, timeout=LEARN_SECONDS)
        except TransportError as error:
            reopen = self._should_reopen(error, idle)
            self._give_up(error)
            await aclose(port)
            if not reopen:
                raise
            return await self._prepare(interrupt)
        return port

    async def _end(self, port: Port) -> None:
        """Bring the board back to its prompt. If that fails, close the port; the next lease opens it again."""
        try:
            await arun(self._board.end(), port, timeout=END_SECONDS + self._grace)
        except (TransportError, ProtocolError) as error:
            # Not raised: the lease has its own result.
            self._give_up(error)
            await aclose(port)

    def close(self) -> None:
        """Close the line and end its readers. Nobody may hold a lease. A thread that opens the line gets an error."""
        self._line.close()
        self._forget()

    async def aretire(self) -> None:
        """Close the line as soon as nobody owns the device. Await it on `shard`. Later leases get an error.

        Nothing is taken from a present owner: what it does may take as long as its own limits allow.
        """
        while True:
            try:
                async with self._lock.aheld("a removal", self._lease_seconds):
                    with self._listeners_lock:
                        if self._listen_task is not None:
                            self._listen_task.cancel()
                            self._listen_task = None
                    port, self._line.port = self._line.port, None
                    if port is not None:
                        await unbroken(aclose(port))
                    self.close()
                    return
            except BusyError:
                continue

    def _lease_timeout(self, timeout: float | None) -> float:
        return self._lease_seconds if timeout is None else timeout

    def _should_reopen(self, error: TransportError, idle: bool) -> bool:
        """Return whether to open the line once more: it died while idle, or the probe for raw paste hung the board."""
        return self._board.hung_by_probe or (idle and isinstance(error, TransportClosed))

    def _give_up(self, error: TransportError | ProtocolError) -> None:
        """Forget the port and the state of a board that does not answer. The caller closes the port.

        The board stays `dirty` if it may still run fastflight's code, so that the next lease interrupts that code. It
        does not if the line was closed: the board may have lost its power, and run a program by now. Nor if a program
        goes on beside requests: the interrupt would stop that program.
        """
        still_dirty = self._board.dirty and not self._board.hung_by_probe and self._board.repl.beside == "none"
        user_code = self._board.runs_user_code
        # A local port is lost when the board is unplugged, and has lost its power.
        if still_dirty and isinstance(error, TransportClosed) and not isinstance(self.address, MovableAddress):
            self._line.unread.cut_off(pasting=self._board.repl.is_pasting)
        still_dirty = still_dirty and not isinstance(error, TransportClosed)
        self._line.port = None
        self._forget()
        self._board.dirty, self._board.runs_user_code = still_dirty, user_code

    def _forget(self) -> None:
        """Forget the state of the board, except that raw paste hangs it: it is not probed for that again."""
        self._raw_paste_hangs = self._raw_paste_hangs or self._board.hung_by_probe
        self._retries, self._changes = self.retries, self.changes + 1
        self._board = OpenBoard(False if self._raw_paste_hangs else None, self._line.unread, self._grace)
