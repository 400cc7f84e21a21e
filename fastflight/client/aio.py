"""`AsyncFastFlightClient`: `FastFlightClient` for an event loop; and `AsyncInteraction`, its sessions.

Flight's Python client blocks, so each verb is that of `FastFlightClient`, run in a thread of this client's own. Each
stream has its own reader thread (`stream_aio`), and so has each write and copy: however many there are, other calls do
not wait for them. A call that is cancelled before it gets a thread is never sent. Flight cannot cancel a call that has
no answer yet: if a call is cancelled while the server waits for the device, the server learns of it when it begins to
answer; for an `exec`, when the code runs.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import pyarrow as pa

from fastflight.client import answers
from fastflight.client.argument_types import checks_arguments
from fastflight.client.cancel_scope import CancelScope
from fastflight.client.client import FastFlightClient
from fastflight.client.connection import ServerConnection
from fastflight.client.credentials import NONE, Credentials
from fastflight.client.interaction import Interaction, Seeking, leave
from fastflight.client.parallel import ParallelRowStream
from fastflight.client.progress import Report
from fastflight.client.stream import RowStream
from fastflight.client.stream_aio import AsyncRowStream
from fastflight.client.threads import run_cancellable, run_in_thread
from fastflight.concurrency.offload import off_loop, unbroken
from fastflight.errors import TransportClosed
from fastflight.service.requests import Request

if TYPE_CHECKING:
    import polars as pl

    from fastflight.client.live import LivePlot

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])

# Calls that wait for their answers at the same time; more of them wait for a thread. A board that does not answer holds
# its call for the timeout of the client, and a server has at most few dozen boards that a program asks at once.
MAX_CALLS = 64


def _call(
    verb: Callable[Concatenate[FastFlightClient, P], T],
) -> Callable[Concatenate[AsyncFastFlightClient, P], Coroutine[Any, Any, T]]:
    """Return the coroutine function of a verb with one answer."""

    async def call(self: AsyncFastFlightClient, /, *args: P.args, **keys: P.kwargs) -> T:
        return await self._in_thread(lambda: verb(self._blocking(), *args, **keys))

    return _described_as(verb, call)


def _stream(
    verb: Callable[Concatenate[FastFlightClient, P], RowStream | ParallelRowStream],
) -> Callable[Concatenate[AsyncFastFlightClient, P], Coroutine[Any, Any, AsyncRowStream]]:
    """Return the coroutine function of a verb that answers with rows. They are reported as they are taken."""

    async def call(self: AsyncFastFlightClient, /, *args: P.args, **keys: P.kwargs) -> AsyncRowStream:
        stream = await self._in_thread(
            lambda: verb(self._blocking(), *args, **keys), discard=lambda stream: stream.cancel()
        )
        report: Any = keys.get("progress")
        return AsyncRowStream(stream, report)

    return _described_as(verb, call, "AsyncRowStream")


def _cancellable(
    verb: Callable[Concatenate[FastFlightClient, P], T],
) -> Callable[Concatenate[AsyncFastFlightClient, P], Coroutine[Any, Any, T]]:
    """Return the coroutine function of a verb that writes or copies. If the task is cancelled, the verb stops."""

    async def call(self: AsyncFastFlightClient, /, *args: P.args, **keys: P.kwargs) -> T:
        client = self._blocking()
        return await run_cancellable(lambda: verb(client, *args, **keys), client.scope.cancel)

    return _described_as(verb, call)


def _interaction(
    verb: Callable[Concatenate[FastFlightClient, P], Interaction],
) -> Callable[Concatenate[AsyncFastFlightClient, P], Coroutine[Any, Any, AsyncInteraction]]:
    """Return the coroutine function of a verb that opens a session."""

    async def call(self: AsyncFastFlightClient, /, *args: P.args, **keys: P.kwargs) -> AsyncInteraction:
        interaction = await self._in_thread(lambda: verb(self._blocking(), *args, **keys), discard=leave)
        return AsyncInteraction(interaction, AsyncRowStream(interaction.rows, None))

    return _described_as(verb, call, "AsyncInteraction")


def _described_as(verb: Callable[..., Any], call: C, returns: str | None = None) -> C:
    """Return `call` with the name, the arguments and the first line of the docstring of `verb`."""
    functools.update_wrapper(call, verb)
    signature = inspect.signature(verb)
    call.__signature__ = signature.replace(  # type: ignore[attr-defined]
        return_annotation=returns or signature.return_annotation
    )
    first = (inspect.getdoc(verb) or "").partition("\n")[0]
    call.__doc__ = f"{first} See `FastFlightClient.{verb.__name__}`."
    return call


class _Blocking(FastFlightClient):
    """The verbs for one call of an `AsyncFastFlightClient`. Streams are reported, and shown, by `AsyncRowStream`."""

    def __init__(self, connection: ServerConnection) -> None:
        self.location = connection.location
        self._connection = connection
        self.scope = CancelScope()

    def read_request(self, request: Request, *, progress: Report | None = None) -> RowStream:
        return self._connection.stream(request, progress)

    def read_parallel(
        self,
        request: Request,
        *,
        parallel: int = answers.PARALLEL,
        ordered: bool = True,
        progress: Report | None = None,
    ) -> ParallelRowStream:
        return self._connection.parallel_stream(request, parallel, ordered)

    def _new_scope(self) -> CancelScope:
        return self.scope


@checks_arguments
class AsyncFastFlightClient:
    """`FastFlightClient` for an event loop. Close it with `aclose`, or use it in an `async with` block.

    It has the verbs of `FastFlightClient` as coroutines. Verbs that return a `RowStream` there return an
    `AsyncRowStream`, and `interact` an `AsyncInteraction`. Another thread iterates over the rows of a write, and calls
    its `progress`. If its task is cancelled, a write or a copy stops at the next batch.
    """

    def __init__(
        self,
        location: str | None = None,
        *,
        timeout: float = answers.DEFAULT_TIMEOUT,
        credentials: Credentials = NONE,
    ) -> None:
        self.location: str = answers.location_of(location, encrypted=credentials.ca is not None)
        self._connection = ServerConnection(self.location, timeout, credentials)
        self._threads = ThreadPoolExecutor(MAX_CALLS, "fastflight-call")
        self._is_closed = False

    devices = _call(FastFlightClient.devices)
    ls = _call(FastFlightClient.ls)
    read = _stream(FastFlightClient.read)
    read_fleet = _stream(FastFlightClient.read_fleet)
    read_request = _stream(FastFlightClient.read_request)
    read_parallel = _stream(FastFlightClient.read_parallel)
    endpoints = _call(FastFlightClient.endpoints)
    write = _cancellable(FastFlightClient.write)
    write_request = _cancellable(FastFlightClient.write_request)
    put_file = _cancellable(FastFlightClient.put_file)
    get_file = _cancellable(FastFlightClient.get_file)
    put_tree = _cancellable(FastFlightClient.put_tree)
    get_tree = _cancellable(FastFlightClient.get_tree)
    exec = _stream(FastFlightClient.exec)
    session = _stream(FastFlightClient.session)
    live_table = _call(FastFlightClient.live_table)
    recording = _stream(FastFlightClient.recording)
    sql = _stream(FastFlightClient.sql)
    recordings = _call(FastFlightClient.recordings)
    add_device = _call(FastFlightClient.add_device)
    remove_device = _call(FastFlightClient.remove_device)
    start_recording = _call(FastFlightClient.start_recording)
    stop_recording = _call(FastFlightClient.stop_recording)
    interact = _interaction(FastFlightClient.interact)
    stat = _call(FastFlightClient.stat)
    hash = _call(FastFlightClient.hash)
    mkdir = _call(FastFlightClient.mkdir)
    remove = _call(FastFlightClient.remove)
    rename = _call(FastFlightClient.rename)
    info = _call(FastFlightClient.info)
    reset = _call(FastFlightClient.reset)
    health = _call(FastFlightClient.health)
    stats = _call(FastFlightClient.stats)
    cluster = _call(FastFlightClient.cluster)
    cluster_storage = _call(FastFlightClient.cluster_storage)

    def scan(self, request: Request) -> pl.LazyFrame:
        """Return a lazy frame of Polars. See `FastFlightClient.scan`.

        The server is asked when the frame is collected: `await frame.collect_async()` leaves the loop free.
        """
        from fastflight.client.scan import scan

        return scan(self._connection, request, ask_now=False)

    def live(
        self,
        device: str,
        columns: Sequence[str] | None = None,
        *,
        seconds: float | None = answers.LIVE_SECONDS,
        window: float = answers.LIVE_SECONDS,
    ) -> LivePlot:
        """Return a moving plot, for a notebook: `await client.live("demo")`. See `FastFlightClient.live`."""
        from fastflight.client.live import live_plot

        return live_plot(self._connection, device, columns, seconds, window)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the devices, and what to type next."""
        from fastflight.client.notebook import NEXT_ASYNC, client_html

        return client_html(self._connection, NEXT_ASYNC)

    async def aclose(self) -> None:
        """Close the connection. Make no calls after this; streams that are open continue until they are left."""
        self._is_closed = True
        # Its threads may still wait for answers to calls that were cancelled.
        self._threads.shutdown(wait=False)
        self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _blocking(self) -> _Blocking:
        return _Blocking(self._connection)

    async def _in_thread(self, call: Callable[[], T], discard: Callable[[T], object] | None = None) -> T:
        if self._is_closed:
            raise TransportClosed("this client was closed", where=self.location, hint="Connect again")
        return await run_in_thread(self._threads, call, discard)


@checks_arguments
class AsyncInteraction:
    """Like `Interaction`, for one task."""

    def __init__(self, interaction: Interaction, rows: AsyncRowStream) -> None:
        self.rows = rows
        self._interaction = interaction
        self._unread = b""

    async def send(self, data: bytes | str) -> None:
        """Send bytes to the device, or text as UTF-8."""
        await off_loop(self._interaction.send, data)

    async def receive(self) -> pa.RecordBatch | None:
        """Return the next rows of the session, or None when it has ended."""
        return await anext(self.rows, None)

    async def read_until(self, mark: bytes, *, timeout: float | None = None) -> bytes:
        """See `Interaction.read_until`."""
        seeking = Seeking(mark, self._unread, timeout)
        try:
            async with asyncio.timeout(timeout):
                while not seeking.found:
                    seeking.feed(await self.receive())
        except TimeoutError as error:
            self._unread = seeking.data
            raise seeking.timed_out() from error
        self._unread = b""
        return seeking.data

    async def aclose(self) -> None:
        """End the session and release the line. Skips the remaining rows; then `rows.summary` is available."""
        await off_loop(self._interaction.done)  # in a thread: a cancelled send may still be waiting for the device
        async for _ in self.rows:
            pass
        await off_loop(self._interaction.close)

    def cancel(self) -> None:
        """End the session at once. A task that is reading gets `Stopped`."""
        self.rows.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.aclose()
        finally:
            await unbroken(self._leave())

    async def _leave(self) -> None:
        async with self.rows:
            await off_loop(self._interaction.cancel)
        await off_loop(self._interaction.settle)
