"""The functions of one source for the devices of all servers: carried out here, or passed on to the device's owner.

Batches, notes, the trailer and errors of the owner come back as they are. A stream that has begun to answer is never
opened again, except a live session with `reconnect` (`fastflight.app.followed_session`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from fastflight.app.followed_session import FollowedSession
from fastflight.app.routes import Routes
from fastflight.client.connection import ServerConnection
from fastflight.client.interaction import Interaction, leave
from fastflight.client.rows import UploadRows
from fastflight.client.stream import RowStream
from fastflight.client.threads import run_cancellable
from fastflight.concurrency import Channel, failure_of, iterate_in_thread, off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.device import FileEntry
from fastflight.errors import DeviceError, FastFlightError, FileMissing, ProtocolError, Stopped
from fastflight.runtime.outgoing import Message
from fastflight.service import DataSource
from fastflight.service.requests import SERVER_DRAINING, DeviceFile, DeviceSession, Request
from fastflight.service.source import (
    Acknowledge,
    AsyncIncoming,
    Batches,
    Estimate,
    Noted,
    Part,
    PartialUpload,
    Parts,
    Progress,
    Reading,
    Summary,
    Takes,
    all_held_bytes,
    held_bytes,
)
from fastflight.sources.device_file import DeviceFiles
from fastflight.sources.device_session import check_sendable, sendable
from fastflight.sources.file_cache import CacheKey, Content
from fastflight.sources.spool import Spool
from fastflight.tables.vetting import vet_batch

# Rows of one answer, or of one upload, that wait in this server.
AHEAD_BYTES = 1024 * 1024
# Returns the servers that can serve a request.
Locations = Callable[[Request], Sequence[str]]
# Begins to list the flights of these devices, and returns the function that waits for them.
Listed = Callable[[list[str]], Callable[[], Iterator[tuple[Any, Estimate]]]]


class Located(DataSource[Any]):
    """`source`, with the servers that can serve each part of its requests, which `locations` returns."""

    def __init__(self, source: DataSource[Any], locations: Locations) -> None:
        self.request, self.read, self.aread = source.request, source.read, source.aread
        self._source = source
        self._locations = locations

    def describe(self, request: Any) -> Estimate:
        return self._source.describe(request)

    def requests(self, takes: Takes) -> Iterator[tuple[Any, Estimate]]:
        return self._source.requests(takes)

    def parts(self, request: Any, known: Estimate) -> Parts[Any]:
        parts = self._source.parts(request, known)
        return replace(parts, parts=[Part(part.request, self._locations(part.request)) for part in parts.parts])


class Forwarded(Located):
    """`source` for the devices of all servers. `listed` lists the flights of other servers' devices."""

    def __init__(self, routes: Routes, source: DataSource[Any], locations: Locations, listed: Listed) -> None:
        super().__init__(source, locations)
        self._routes = routes
        self._listed = listed
        self.read = source.read and self._read
        self.aread = source.aread and self._aread
        self.awrite = source.awrite and self._awrite
        self.aexchange = source.aexchange and self._aexchange

    def describe(self, request: Any) -> Estimate:
        connection = self._routes.route(request.device)
        if connection is None:
            return self._source.describe(request)
        # Not kept: the device may move, and the owner caches it.
        info = connection.info(request)
        note: Mapping[str, Any] | None = json.loads(info.app_metadata) if info.app_metadata else None
        schema = info.schema if len(info.schema) else None
        return Estimate(schema, info.total_records, info.total_bytes, note=note)

    def requests(self, takes: Takes) -> Iterator[tuple[Any, Estimate]]:
        # The boards of other servers are waited for together with those of this one.
        elsewhere = self._listed([name for name in self._routes.remote_names() if takes(name)])
        yield from self._source.requests(takes)
        for request, known in elsewhere():
            if isinstance(request, self._source.request):
                yield request, known

    def _read(self, request: Any) -> Reading:
        connection = self._routes.route(request.device)
        if connection is None:
            assert self._source.read is not None
            return self._source.read(request)
        stream = self._routes.opened(connection.stream(request), connection.location)
        rest = self._in_thread(stream)
        next(rest)
        return Reading(stream.schema, rest, lambda: stream.summary)

    async def _aread(self, request: Any) -> Reading:
        if isinstance(request, DeviceSession) and request.reconnect:
            return await FollowedSession(request, self._aread_once, self._routes).open()
        return await self._aread_once(request)

    async def _aread_once(self, request: Any) -> Reading:
        connection = await self._routes.aroute(request.device)
        if connection is None:
            assert self._source.aread is not None
            return await self._source.aread(request)
        stream = await off_loop(connection.stream, request, discard=RowStream.cancel)
        drained = threading.Event()

        def drain() -> None:
            drained.set()
            stream.cancel()

        def summary() -> Summary:
            return {"ended": SERVER_DRAINING} if drained.is_set() else stream.summary

        rest = self._on_loop(self._routes.opened(stream, connection.location), drained)
        await anext(rest)
        return Reading(stream.schema, rest, summary, drain if isinstance(request, DeviceSession) else None)

    async def _awrite(
        self, request: Any, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], acknowledge: Acknowledge
    ) -> Summary:
        connection = await self._routes.aroute(request.device)
        if connection is None:
            assert self._source.awrite is not None
            return await self._source.awrite(request, schema, batches, acknowledge)
        return await _upload(connection, request, schema, batches, acknowledge)

    async def _aexchange(self, request: Any, schema: pa.Schema, batches: AsyncIncoming) -> Reading:
        connection = await self._routes.aroute(request.device)
        if connection is None:
            assert self._source.aexchange is not None
            return await self._source.aexchange(request, schema, batches)
        check_sendable(schema)
        interaction = await off_loop(connection.interaction, request, discard=leave)
        rows = self._routes.opened(interaction.rows, connection.location)
        rest = self._exchanged(interaction, batches)
        await anext(rest)
        return Reading(rows.schema, rest, lambda: rows.summary)

    # These begin with an empty list that their callers take: closing a generator that was not begun would end nothing.

    def _in_thread(self, stream: RowStream) -> Generator[Batches, None, None]:
        try:
            yield []
            yield from _batches(stream)
        finally:
            self._routes.ended(stream)

    async def _on_loop(self, stream: RowStream, drained: threading.Event) -> AsyncGenerator[Batches, None]:
        coming = _ahead(stream)
        try:
            yield []
            async for ready in coming:
                yield ready
        except Stopped:
            if not drained.is_set():
                raise
        finally:
            self._routes.ended(stream)
            await coming.aclose()

    async def _exchanged(self, interaction: Interaction, batches: AsyncIncoming) -> AsyncGenerator[Batches, None]:
        sending = asyncio.ensure_future(_send(batches, interaction))
        coming = _ahead(interaction.rows)

        async def end() -> None:
            await off_loop(interaction.cancel)  # also ends a send that waits for the device
            await coming.aclose()
            sending.cancel()
            await asyncio.wait([sending])
            if not sending.cancelled():
                sending.exception()
            await off_loop(interaction.settle)
            await batches.aclose()

        try:
            yield []
            async for ready in coming:
                yield ready
        except Stopped:
            # Perhaps because what is to be sent has failed.
            if sending.done() and not sending.cancelled():
                sending.result()
            raise
        finally:
            self._routes.ended(interaction.rows)
            await unbroken(end())


def vetted(stream: RowStream) -> Generator[Message, None, None]:
    """Yield what `stream.pieces` does. `ProtocolError` for a batch whose values must not be used.

    This server also has the rows of other clients in its memory. A wrong offset in a batch would reveal them.
    """
    for batch, note in stream.pieces():
        try:
            vet_batch(batch)
        except pa.ArrowException as error:
            raise ProtocolError(f"another server sends a batch that is corrupt: {error}", where="rows") from None
        yield batch, note


def _batches(stream: RowStream) -> Generator[Batches, None, None]:
    for batch, note in vetted(stream):
        yield [batch if note is None else Noted(batch, note)]


def _ahead(stream: RowStream) -> AsyncGenerator[Batches, None]:
    return iterate_in_thread(
        partial(_batches, stream), max_bytes=AHEAD_BYTES, size_of=all_held_bytes, cancel=stream.cancel
    )


async def _send(batches: AsyncIncoming, interaction: Interaction) -> None:
    """Send the bytes of `batches`, and end the exchange when they end. An error of theirs breaks it off."""
    try:
        async for batch in batches:
            for data in sendable(batch):
                try:
                    await off_loop(interaction.send, data)
                except FastFlightError:  # the exchange has ended; reading its rows raises the reason
                    return
        interaction.done()
    except Exception:
        interaction.cancel()
        raise


async def _upload(
    connection: ServerConnection,
    request: Request,
    schema: pa.Schema,
    batches: AsyncIterator[pa.RecordBatch],
    acknowledge: Acknowledge,
) -> Summary:
    """Write `batches` at the server, and return its last acknowledgement.

    Raises the error of the server or of `batches`, whichever is first. The server then leaves the old content as it is,
    as it does if this is cancelled.
    """
    waiting = Channel[pa.RecordBatch](AHEAD_BYTES)

    def stored(kept: PartialUpload) -> Iterator[pa.RecordBatch]:
        acknowledge(kept)
        return iter(waiting)

    def report(rows: int, size: int, _: int | None) -> None:
        if not upload.last.get("done"):  # the last acknowledgement is the result
            acknowledge(Progress(rows, size))

    def give_up() -> None:
        waiting.fail(Stopped("the upload broke off"))
        upload.give_up()

    resumes = getattr(request, "resume", False)
    # A client that waits for an acknowledgement sends nothing that would end a write which the server has refused.
    rows = UploadRows(schema, iter(waiting), after=stored if resumes else None, stop=waiting.finish)
    upload = connection.upload(request, rows, report)
    feeding = asyncio.ensure_future(_feed(batches, waiting))
    try:
        await run_cancellable(upload.run, give_up)
        return {key: value for key, value in upload.last.items() if key != "done"}
    finally:
        waiting.close()
        feeding.cancel()
        await asyncio.wait([feeding])


async def _feed(batches: AsyncIterator[pa.RecordBatch], waiting: Channel[pa.RecordBatch]) -> None:
    """Hand `batches` to an upload. If they fail, or the upload has ended, so does `waiting`."""
    try:
        async for batch in batches:
            await waiting.aput(batch, held_bytes(batch))
    except BaseException as error:  # of whatever kind: the upload must not look complete
        waiting.fail(failure_of(error))
        if isinstance(error, asyncio.CancelledError):
            raise
    else:
        waiting.finish()


class ForwardedFiles(DeviceFiles):
    """Whole files for SQL: as `local`, whose cache it shares, for the devices of all servers."""

    def __init__(self, routes: Routes, local: DeviceFiles) -> None:
        super().__init__(routes.inventory, local.cache, local.keys_of)
        self._routes = routes

    def fetch(self, request: DeviceFile, check: Callable[[], object] = bool) -> Content:
        """As `DeviceFiles.fetch`, from the owner of the device. What is in the cache is not sent again."""
        connection = self._routes.route(request.device)
        if connection is None:
            return super().fetch(request, check)
        place: dict[str, Any] = {"device": request.device, "path": request.path, "interrupt": request.interrupt}
        entry = FileEntry(**connection.act_once("file.stat", **place))
        try:
            hashed = connection.act_once("file.hash", **place)
        except FileMissing:
            raise
        except DeviceError:  # this board computes none
            hashed = {"algorithm": "", "digest": ""}
        key = CacheKey(request.device, entry, hashed["algorithm"], hashed["digest"])
        if (found := self.cache.find(key)) is not None:
            return found
        raw = DeviceFile(**place, format="raw")
        with contextlib.ExitStack() as on_error:
            spool = on_error.enter_context(contextlib.closing(Spool()))
            with connection.stream(raw) as stream:
                for batch, _ in vetted(stream):
                    for data in batch.column("data"):
                        spool.feed(data.as_py())
                    check()
            content = self.cache.store(key, spool)
            on_error.pop_all()
            return content
