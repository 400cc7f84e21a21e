"""The proxy: connections to a port of its own go on to a target, and suffer what they are told to.

Faults that are given (`strike`) hold for every connection that is open, from its next byte on, and for those that come
until they have struck; `mend` returns those that did. `unplug` breaks all connections and refuses new ones, until
`plug`.
It holds back as TCP does: what one side does not take is not read from the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar

from tests.support.chaos.course import Break, Course, Pass, Wait
from tests.support.chaos.fault import ENDINGS, Fault, Kind, Way

T = TypeVar("T")

HOST = "127.0.0.1"
READ_BYTES = 64 * 1024
# The target is on this computer: it answers at once, or nobody is there.
CONNECT_SECONDS = 5.0
# Closed so, a socket sends RST instead of FIN.
AT_ONCE = struct.pack("ii", 1, 0)


class _Connection:
    """One client's connection, and the one to the target that belongs to it."""

    def __init__(self, client: socket.socket, target: socket.socket, seed: int, told: Callable[[Fault], None]) -> None:
        self._client = client
        self._target = target
        self._told = told
        self._courses = {way: Course(seed=seed + number, told=told) for number, way in enumerate(Way)}
        self._timers: list[asyncio.TimerHandle] = []
        self._silent = False
        self._moving = len(Way)
        self._broken: asyncio.Future[Kind] = asyncio.get_running_loop().create_future()

    def strike(self, faults: Iterable[Fault]) -> None:
        """From the next byte on, or from now."""
        for fault in faults:
            if fault.after is None:
                self._courses[fault.way].strike([fault])
            else:
                self._timers.append(asyncio.get_running_loop().call_later(fault.after, self._due, fault))

    def mend(self) -> None:
        """Go on as if nothing had been; one that has swallowed bytes cannot, and is cut."""
        for timer in self._timers:
            timer.cancel()
        for course in self._courses.values():
            course.mend()
        if self._silent:
            self.end(Kind.CUT)

    def end(self, kind: Kind) -> None:
        """Break the connection: `END` or `CUT`."""
        if not self._broken.done():
            self._broken.set_result(kind)

    async def run(self) -> None:
        """Until both sides have ended, or it broke. Both sockets are the caller's to close, then."""
        ways = (
            self._pump(self._client, self._target, self._courses[Way.OUT]),
            self._pump(self._target, self._client, self._courses[Way.BACK]),
        )
        moving = [asyncio.ensure_future(way) for way in ways]
        for way in moving:
            way.add_done_callback(self._ended)
        try:
            kind = await self._broken
            if kind is Kind.CUT:
                for side in (self._client, self._target):
                    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        finally:
            for timer in self._timers:
                timer.cancel()
            for way in moving:
                way.cancel()
            await asyncio.gather(*moving, return_exceptions=True)

    def _ended(self, way: asyncio.Task[None]) -> None:
        """One way has ended: in order, and then the other may go on, or because its side broke off."""
        self._moving -= 1
        if not way.cancelled() and way.exception() is not None:
            self.end(Kind.CUT)
        elif not self._moving:
            self.end(Kind.END)

    async def _pump(self, source: socket.socket, sink: socket.socket, course: Course) -> None:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(source, READ_BYTES):
            # Neither that nor sending waits while there are bytes and room: nothing else would have its turn, and what
            # struck would never break the connection.
            await asyncio.sleep(0)
            if self._silent:
                continue
            for step in course.feed(data):
                match step:
                    case Pass(piece):
                        await loop.sock_sendall(sink, piece)
                        if len(piece) < len(data):
                            await asyncio.sleep(0)  # pieces that follow at once would arrive as one
                    case Wait(seconds):
                        await asyncio.sleep(seconds)
                    case Break(fault):
                        self._strike(fault)
                        break
        # A source that ended while it broke is not to be taken for its end: what was held back never comes.
        if not self._silent and not self._broken.done():
            with contextlib.suppress(OSError):  # it has ended as well
                sink.shutdown(socket.SHUT_WR)

    def _due(self, fault: Fault) -> None:
        """The time of a fault has come."""
        if fault.kind in ENDINGS:
            self._told(fault)
            self._strike(fault)
        else:
            self._courses[fault.way].strike([fault])

    def _strike(self, fault: Fault) -> None:
        if fault.kind is not Kind.SILENCE:
            self.end(fault.kind)
            return
        self._silent = True
        if fault.amount:
            loop = asyncio.get_running_loop()
            self._timers.append(loop.call_later(fault.amount, self.end, Kind.CUT))


class ChaosProxy:
    """A proxy in front of `host`:`port` while its context lasts. `port` is where it listens.

    It runs on a loop in a thread of its own. Any thread may use it.
    """

    def __init__(self, host: str, port: int, faults: Iterable[Fault | str] = (), *, seed: int = 0) -> None:
        self._target = host, port
        self.port = 0
        # How many came and reached the target.
        self.connections = 0
        self._struck: list[str] = []
        self._seed = seed
        self._ahead = [_fault(each) for each in faults]
        self._plugged = True
        self._open: set[_Connection] = set()
        self._coming: set[asyncio.Task[None]] = set()
        self._started = threading.Event()

    def __enter__(self) -> Self:
        self._loop = asyncio.SelectorEventLoop()  # what Windows has by default watches no socket
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-proxy")
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Break all connections, and listen no more."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    @property
    def has_struck(self) -> bool:
        """Whether any fault has, since the last call of `mend`."""
        return bool(self._struck)

    def aim(self, port: int) -> None:
        """Have new connections go to another port of the target."""
        self._target = self._target[0], port

    def strike(self, *faults: Fault | str) -> None:
        """Have these happen: `Fault`s, or as they are written."""
        given = [_fault(each) for each in faults]

        def strike() -> None:
            self._ahead += given
            for connection in self._open:
                connection.strike(given)

        self._on_loop(strike)

    def mend(self) -> list[str]:
        """No fault is in force any more. Those that have struck since the last call."""

        def mend() -> list[str]:
            self._ahead.clear()
            for connection in list(self._open):
                connection.mend()
            struck, self._struck = self._struck, []
            return struck

        return self._on_loop(mend)

    def cut(self, kind: Kind = Kind.CUT) -> None:
        """Break all connections now."""

        def cut() -> None:
            for connection in list(self._open):
                connection.end(kind)

        self._on_loop(cut)

    def unplug(self) -> None:
        """Break all connections, and each that comes."""
        self._plugged = False
        self.cut()

    def plug(self) -> None:
        """Let them come again."""
        self._plugged = True

    def _on_loop(self, work: Callable[[], T]) -> T:
        async def done() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._listen())

    async def _listen(self) -> None:
        """Until it is closed."""
        try:
            with socket.create_server((HOST, 0)) as self._listener:
                self._listener.setblocking(False)
                self.port = self._listener.getsockname()[1]
                # Not sock_accept: one that is cancelled when somebody has just come loses the socket.
                self._loop.add_reader(self._listener, self._accept)
                self._started.set()
                await self._stop.wait()
                self._loop.remove_reader(self._listener)
        finally:
            self._started.set()
        serving = list(self._coming)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    def _accept(self) -> None:
        """Somebody has come."""
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # and has left
            return

        def ended(serving: asyncio.Task[None]) -> None:
            self._coming.discard(serving)
            client.close()  # here, since a task that is cancelled before it begins closes nothing

        serving = asyncio.ensure_future(self._serve(client))
        self._coming.add(serving)
        serving.add_done_callback(ended)

    async def _serve(self, client: socket.socket) -> None:
        with socket.socket() as target:
            try:
                for each in (client, target):
                    each.setblocking(False)
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if not self._plugged:
                    raise ConnectionRefusedError
                async with asyncio.timeout(CONNECT_SECONDS):
                    await asyncio.get_running_loop().sock_connect(target, self._target)
            except OSError:
                # Nobody is there: the client is told what it would have been told.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                return
            self.connections += 1
            connection = _Connection(client, target, self._seed + 2 * self.connections, self._told)
            connection.strike(self._ahead)
            self._open.add(connection)
            try:
                await connection.run()
            finally:
                self._open.discard(connection)

    def _told(self, fault: Fault) -> None:
        self._struck.append(f"{fault.kind}:{fault.way}")
        # Those that come later do not suffer it again; times and counts of this one have moved.
        for each in self._ahead:
            if (each.kind, each.way, each.amount) == (fault.kind, fault.way, fault.amount):
                self._ahead.remove(each)
                break


def _fault(given: Fault | str) -> Fault:
    return Fault.parse(given) if isinstance(given, str) else given
