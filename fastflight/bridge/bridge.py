"""Network ports in front of a device: RFC 2217, a raw socket, and one for viewers.

A client of the first two ports becomes the device's writer. Only one writer is connected at a time: the bridge tells a
second one at once who holds the device, and closes its connection. With `takeover` it closes the first one's instead.
Viewers receive what the device sends, and the bridge ignores what they send. If the device is lost, the bridge tells
the writer the reason and closes its connection; the ports stay open, and viewers stay connected.

A browser that connects to a writer's port is refused before any of its bytes reach the device, and counted (`refused`).
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

from fastflight.bridge.acceptor import Acceptor, open_listener
from fastflight.bridge.clients import ViewerClient, WriterClient, bridge_message, notice
from fastflight.bridge.connection import LINGER_SECONDS, Connection
from fastflight.bridge.dialect import Dialect, Raw, Rfc2217
from fastflight.bridge.front import DeviceFront
from fastflight.concurrency.offload import unbroken
from fastflight.errors import BusyError, FastFlightError, TransportClosed, TransportError

log = structlog.get_logger(__name__)

# Connections at once, including those that are being closed. The limit of a process is often 1024 descriptors.
MAX_CONNECTIONS = 512
# Each viewer costs a copy of what the device sends.
MAX_VIEWERS = 32
# How long clients have, when the bridge closes, to receive the reason and to close their connections.
CLOSE_SECONDS = 0.5
CLOSING = "the bridge is closing"
# How long a new writer waits for the last one to leave. A tool that connects again at once would otherwise be refused
# because of its own last connection, while the port's settings are being restored. The delay is too short to notice.
LEAVING_SECONDS = 0.1
# How long to wait, before a new writer gets the device, for first bytes that show a browser: a browser sends at once.
# The first bytes of a writer that is silent for longer are examined when they arrive.
OPENING_SECONDS = 0.1
# A writer that sends nothing for this long is not in the middle of a transfer. The longest pause in one is a board that
# erases flash.
QUIET_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP port numbers of a bridge. 0 takes a free port, None opens no port of that kind."""

    rfc2217: int | None = None
    socket: int | None = None
    viewers: int | None = None

    def urls(self, host: str) -> dict[str, str]:
        """Return the URL to connect to for each kind of port."""
        name = f"[{host}]" if ":" in host else host
        numbers = {"rfc2217": self.rfc2217, "socket": self.socket, "viewers": self.viewers}
        return {
            kind: f"{'rfc2217' if kind == 'rfc2217' else 'socket'}://{name}:{number}"
            for kind, number in numbers.items()
            if number is not None
        }


class Bridge:
    """A bridge in front of `front`, on the running loop.

    Call `start`, and `aclose` at the end, or use it as an async context manager.
    """

    def __init__(
        self,
        front: DeviceFront,
        ports: Ports,
        *,
        host: str = "127.0.0.1",
        takeover: bool = False,
        max_viewers: int = MAX_VIEWERS,
    ) -> None:
        """Prepare a bridge on `host`. `start` replaces the attribute `ports` by the numbers of the open ports."""
        self.ports = ports
        # Counts refused connections of browsers, by the protocol that their first bytes show.
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
        # A dict, to keep the order in which viewers connected.
        self._viewers: dict[ViewerClient, None] = {}
        self._linger = LINGER_SECONDS
        self._draining = False
        self._closing = False

    async def start(self) -> None:
        """Listen on the ports. Raises `TransportError` if a port cannot be opened."""
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
        """Refuse new writers from now on. Wait, at most `seconds`, until the connected writer has left or is quiet."""
        self._draining = True
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for writer in list(self._writers):
                    while (left := writer.active_at + QUIET_SECONDS - loop.time()) > 0 and not writer.released.is_set():
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(left):
                                await writer.released.wait()

    async def aclose(self) -> None:
        """Tell all clients, close their connections, and close the ports, within about a second whatever clients do.

        This completes even if it is cancelled, because a half-closed bridge would keep the device.
        """
        await unbroken(self._close())

    async def _close(self) -> None:
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
            listener = await open_listener(self._host, port)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            raise TransportError(
                "cannot listen there",
                where=f"{self._host}:{port}",
                hint="Another program has the port: choose another one, or 0 for a free one" if in_use else str(error),
            ) from error
        acceptor = Acceptor(listener, lambda: Connection(lambda connection: self._accept(connection, serve)))
        self._acceptors.append(acceptor)
        return acceptor.port

    def _accept(self, connection: Connection, serve: Callable[[Connection], Awaitable[None]]) -> None:
        if self._closing:  # it was accepted just before the port was closed
            connection.abort()
        if self._closing or len(self._tasks) >= MAX_CONNECTIONS:
            connection.send(bridge_message("too many connections"))
            task = asyncio.create_task(connection.finish(linger=0))
        else:
            task = asyncio.create_task(self._serve(connection, serve))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection, serve: Callable[[Connection], Awaitable[None]]) -> None:
        try:
            if not self._closing:
                await serve(connection)
            else:  # it connected just before `aclose`, which has already told the other clients
                await connection.finish(bridge_message(CLOSING), self._linger)
        except Exception:
            # An edge: the failure of one client must not end the others.
            log.exception("client failed", device=self._front.name, client=connection.peer)
        finally:
            await connection.finish(linger=0)

    async def _write(self, connection: Connection, dialect: Dialect) -> None:
        writer = WriterClient(connection, dialect)
        connection.send(dialect.greeting())
        connected = False
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(OPENING_SECONDS):
                    await connection.wait_examined()
            if refusal := _refusal(connection):
                raise TransportClosed(refusal)
            if self._takeover:
                await self._replace_writer(writer)
            else:
                await self._wait_for_leaving_writer()
            if self._draining or self._closing:
                raise TransportClosed(CLOSING)
            self._writers.add(writer)
            async with self._front.hold(writer.name, writer) as channel:
                connected = True
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
            self._log("writer left" if connected else "writer refused", writer, reason=reason)
        last = (notice if connected else bridge_message)(reason) if reason else b""
        await connection.finish(dialect.encode(last), self._linger)

    async def _wait_for_leaving_writer(self) -> None:
        """Wait a moment for the present writer, which may be leaving."""
        leaving = [asyncio.ensure_future(writer.released.wait()) for writer in self._writers]
        if leaving:
            _, late = await asyncio.wait(leaving, timeout=LEAVING_SECONDS)
            for wait in late:
                wait.cancel()

    async def _replace_writer(self, newest: WriterClient) -> None:
        """End the present writer, and wait until it has released the device.

        Raises `BusyError` if a newer writer connects meanwhile.
        """
        self._newest = newest
        while self._writers and self._newest is newest:
            writer = next(iter(self._writers))
            writer.end(_taken_over(newest))
            await writer.released.wait()
        if self._newest is not newest:
            raise BusyError(_taken_over(self._newest), holder=self._newest.name)

    async def _view(self, connection: Connection) -> None:
        if len(self._viewers) >= self._max_viewers and not self._evict_viewer():
            text = f"all {self._max_viewers} places for viewers are taken"
            await connection.finish(bridge_message(text), self._linger)
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

    def _evict_viewer(self) -> bool:
        """End one viewer that may have disconnected, and return whether there was one.

        While the device is silent, nothing is sent to viewers, so a broken connection is not noticed.
        """
        viewer = next((viewer for viewer in self._viewers if viewer.may_be_gone), None)
        if viewer is None:
            return False
        del self._viewers[viewer]
        viewer.end("another viewer got this place")
        return True

    def _changed(self, trouble: str) -> None:
        """Report that the device was lost, or with an empty `trouble` that it is open again."""
        if trouble:
            log.warning("device lost", device=self._front.name, reason=trouble)
        else:
            log.info("device open", device=self._front.name)
        for viewer in self._viewers:
            viewer.note(f"the device is lost: {trouble}" if trouble else "the device is open")

    def _log(self, event: str, client: WriterClient | ViewerClient, **more: str) -> None:
        log.info(
            event, device=self._front.name, client=client.name, **{key: text for key, text in more.items() if text}
        )


def _refusal(connection: Connection) -> str:
    """Return the message for a browser; empty for a client that is not one."""
    if not connection.browser:
        return ""
    hint = ". To send a line that begins with the name of an HTTP method, send Enter first"
    text = f"this port is for serial tools, and the connection begins like a browser's, with {connection.browser}"
    return text + (hint if connection.browser == "HTTP" else "")


def _taken_over(by: WriterClient) -> str:
    return f"{by.name} took the device over"
