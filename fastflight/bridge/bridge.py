"""Network ports in front of a device: RFC 2217, a raw socket, and one for viewers.

A client of the first two is the writer, if nobody else is: whoever comes second is told at once who has the device, and
hung up on; with `takeover` it is the first who is. Viewers get what the device says, and what they send is ignored.
A device that is lost ends its writer, with the reason; the ports stay, and viewers with them.

A browser that connects where a writer would is refused before a byte of it reaches the device, and counted (`refused`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import structlog

from fastflight.bridge.acceptor import Acceptor, listening
from fastflight.bridge.client import ViewerClient, WriterClient, notice, told
from fastflight.bridge.connection import LINGER_SECONDS, Connection
from fastflight.bridge.dialect import Dialect, Raw, Rfc2217
from fastflight.bridge.front import Front
from fastflight.bridge.line import State
from fastflight.concurrency.offload import unbroken
from fastflight.errors import BusyError, FastFlightError, TransportClosed, TransportError

log = structlog.get_logger(__name__)

# Connections at once, those counted that are just being told to go. A process often may have 1024 descriptors.
MAX_CONNECTIONS = 512
# Each costs a copy of what the device says.
MAX_VIEWERS = 32
# What clients get in all to be told of the end and to hang up.
CLOSE_SECONDS = 0.5
CLOSING = "the bridge is closing"
# A tool that connects again at once would meet its own last connection, while the port's settings are put back. Nobody
# notices that the answer comes so much later.
LEAVING_SECONDS = 0.1
# What a new writer gets to show by its first bytes that it is a browser, before it is given the device: a browser sends
# at once. One that is silent for so long is looked at when it sends something.
OPENING_SECONDS = 0.1
# A tool in the middle of a transfer sends something oftener than this: what it waits for is a board that erases flash.
QUIET_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports; 0 takes a free one, None has no such port."""

    rfc2217: int | None = None
    socket: int | None = None
    viewers: int | None = None

    def urls(self, host: str) -> dict[str, str]:
        """What to connect to, by the kind of port."""
        name = f"[{host}]" if ":" in host else host
        numbers = {"rfc2217": self.rfc2217, "socket": self.socket, "viewers": self.viewers}
        return {
            kind: f"{'rfc2217' if kind == 'rfc2217' else 'socket'}://{name}:{number}"
            for kind, number in numbers.items()
            if number is not None
        }


class Bridge:
    """A bridge in front of `front`, on the running loop: `start` it, `aclose` it; also an async context manager."""

    def __init__(
        self,
        front: Front,
        ports: Ports,
        *,
        host: str = "127.0.0.1",
        takeover: bool = False,
        max_viewers: int = MAX_VIEWERS,
    ) -> None:
        """`ports` is replaced by the ones that were had."""
        self.ports = ports
        # Connections of browsers, by the protocol that they began with.
        self.refused: Counter[str] = Counter()
        self._front = front
        self._host = host
        self._takeover = takeover
        self._max_viewers = max_viewers
        self._acceptors: list[Acceptor] = []
        self._running: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[WriterClient] = set()
        self._newest: WriterClient | None = None
        # In the order in which they came.
        self._viewers: dict[ViewerClient, None] = {}
        self._linger = LINGER_SECONDS
        self._draining = False
        self._closing = False

    async def start(self) -> None:
        """Listen. `TransportError` where a port cannot be had."""
        try:
            self.ports = Ports(
                await self._listen(self.ports.rfc2217, lambda connection: self._write(connection, Rfc2217())),
                await self._listen(self.ports.socket, lambda connection: self._write(connection, Raw())),
                await self._listen(self.ports.viewers, self._view),
            )
        except BaseException:
            await self.aclose()
            raise
        self._running = asyncio.create_task(self._front.run(self._changed))

    async def drain(self, seconds: float) -> None:
        """No new writer from now on. Returns when the one that is there has left or is quiet, or after `seconds`."""
        self._draining = True
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for writer in list(self._writers):
                    while (rest := writer.heard + QUIET_SECONDS - loop.time()) > 0 and not writer.released.is_set():
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(rest):
                                await writer.released.wait()

    async def aclose(self) -> None:
        """Tell everybody, hang up, and give the ports back: done within about a second, whatever clients do.

        Cancelled, it does so all the same: half closed, it would keep the device.
        """
        await unbroken(self._end())

    async def _end(self) -> None:
        self._linger = CLOSE_SECONDS
        self._closing = True
        await asyncio.gather(*(acceptor.aclose() for acceptor in self._acceptors))
        for client in (*self._writers, *self._viewers):
            client.end(CLOSING)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        ending = [*self._tasks, *([self._running] if self._running else [])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _listen(self, port: int | None, serve: Callable[[Connection], Awaitable[None]]) -> int | None:
        if port is None:
            return None
        try:
            listener = await listening(self._host, port)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            raise TransportError(
                "cannot listen there",
                where=f"{self._host}:{port}",
                hint="Another program has the port: choose another one, or 0 for a free one" if taken else str(error),
            ) from error
        acceptor = Acceptor(listener, lambda: Connection(lambda connection: self._accept(connection, serve)))
        self._acceptors.append(acceptor)
        return acceptor.port

    def _accept(self, connection: Connection, serve: Callable[[Connection], Awaitable[None]]) -> None:
        if self._closing:  # it came in the moment before the port was closed
            connection.abort()
        if self._closing or len(self._tasks) >= MAX_CONNECTIONS:
            connection.send(told("too many connections"))
            task = asyncio.create_task(connection.finish(linger=0))
        else:
            task = asyncio.create_task(self._serve(connection, serve))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection, serve: Callable[[Connection], Awaitable[None]]) -> None:
        try:
            if not self._closing:
                await serve(connection)
            else:  # it came just before, and those that are told to go were told already
                await connection.finish(told(CLOSING), self._linger)
        except Exception:
            # An edge: what goes wrong with one client is not the end of the others.
            log.exception("client failed", device=self._front.name, client=connection.peer)
        finally:
            await connection.finish(linger=0)

    async def _write(self, connection: Connection, dialect: Dialect) -> None:
        writer = WriterClient(connection, dialect)
        connection.send(dialect.greeting())
        began = False
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(OPENING_SECONDS):
                    await connection.begun()
            if refusal := _refusal(connection):
                raise TransportClosed(refusal)
            if self._takeover:
                await self._make_room(writer)
            else:
                await self._let_leave()
            if self._draining or self._closing:
                raise TransportClosed(CLOSING)
            self._writers.add(writer)
            async with self._front.hold(writer.name, writer) as channel:
                began = True
                self._log("writer connected", writer)
                reason = await writer.run(channel) or _refusal(connection)
        except FastFlightError as error:
            reason = str(error)
        finally:
            self._writers.discard(writer)
            writer.released.set()
        if connection.browser:
            self.refused[connection.browser] += 1
            log.warning("browser refused", device=self._front.name, client=connection.peer, protocol=connection.browser)
        else:
            self._log("writer left" if began else "writer refused", writer, reason=reason)
        last = (notice if began else told)(reason) if reason else b""
        await connection.finish(dialect.encode(last), self._linger)

    async def _let_leave(self) -> None:
        """Give a writer that may be on its way out the time for it."""
        leaving = [asyncio.ensure_future(writer.released.wait()) for writer in self._writers]
        if leaving:
            _, late = await asyncio.wait(leaving, timeout=LEAVING_SECONDS)
            for wait in late:
                wait.cancel()

    async def _make_room(self, newest: WriterClient) -> None:
        self._newest = newest
        while self._writers and self._newest is newest:
            writer = next(iter(self._writers))
            writer.end(_taken_over(newest))
            await writer.released.wait()
        if self._newest is not newest:  # who came while this one waited is newer
            raise BusyError(_taken_over(self._newest), holder=self._newest.name)

    async def _view(self, connection: Connection) -> None:
        if len(self._viewers) >= self._max_viewers and not self._put_out():
            text = f"all {self._max_viewers} places for viewers are taken"
            await connection.finish(told(text), self._linger)
            return
        viewer = ViewerClient(connection)
        self._viewers[viewer] = None
        self._log("viewer connected", viewer)
        try:
            with self._front.watch() as reader:
                reason = await viewer.run(reader)
        finally:
            self._viewers.pop(viewer, None)
            self._log("viewer left", viewer)
        await connection.finish(notice(reason) if reason else b"", self._linger)

    def _put_out(self) -> bool:
        """Whether a viewer had to go that may have gone long since: of a silent device nobody would learn that."""
        viewer = next((viewer for viewer in self._viewers if viewer.may_be_gone), None)
        if viewer is None:
            return False
        del self._viewers[viewer]
        viewer.end("another viewer got this place")
        return True

    def _changed(self, state: State) -> None:
        if state.phase == "open":
            log.info("device open", device=self._front.name)
        elif state.phase == "lost":
            log.warning("device lost", device=self._front.name, reason=state.reason)
        if state.phase != "connecting":
            for viewer in self._viewers:
                viewer.note(f"the device is {state.phase}" + (f": {state.reason}" if state.reason else ""))

    def _log(self, event: str, client: WriterClient | ViewerClient, **more: str) -> None:
        log.info(
            event, device=self._front.name, client=client.name, **{key: text for key, text in more.items() if text}
        )


def _refusal(connection: Connection) -> str:
    """What a browser is told; empty for a client that is none."""
    if not connection.browser:
        return ""
    hint = " (a line that begins with the name of a method: send Enter first)" if connection.browser == "HTTP" else ""
    return f"this port is for serial tools, and {connection.browser} is what browsers begin with{hint}"


def _taken_over(by: WriterClient) -> str:
    return f"{by.name} took the device over"
