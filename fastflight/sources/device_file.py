"""`device.file`: reads a file of a device as rows, and writes rows to a file.

Reading runs one download and decodes the bytes as they arrive; at most one piece of the file and one batch are in
memory. Writing encodes one batch at a time. A batch is acknowledged when its bytes are stored on the device, and the
file appears under its name only when all of its bytes are verified there.

A write with `resume` leaves its stored bytes on the device if it breaks off. The next such write first tells the client
how many there are; the offset of the first row that the client then sends says whether it continues them.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from fastflight.concurrency.offload import off_loop
from fastflight.device import Device, FileEntry, Inventory, Transfer
from fastflight.errors import BusyError, DataError, FastFlightError, RequestError
from fastflight.service.requests import DeviceFile, DeviceTree
from fastflight.service.source import (
    Acknowledge,
    AsyncReading,
    Estimate,
    Lot,
    Reading,
    Sent,
    SourceFunctions,
    Summary,
    Takes,
)
from fastflight.sources.content import FileContent, while_wanted
from fastflight.sources.file_cache import CachedContent, CacheKey, FileCache, NewContent
from fastflight.sources.file_rows import FileRows, layout_of
from fastflight.sources.reading import abegin, begin
from fastflight.tables.text import INFERENCE_BYTES

# Time limit for waiting for busy devices, when the files of all devices are listed. One limit for all devices together.
LISTING_LEASE_SECONDS = 2.0
# Time limit for the whole listing, including opening lines: a large tree on a slow line takes a few seconds.
LISTING_TOTAL_SECONDS = 10.0
# Devices that are listed at the same time; each takes a thread.
LISTING_THREADS = 32
# Listings of more entries are not cached.
MAX_CACHED_ENTRIES = 4096


class DeviceFiles:
    """The source of `device.file` requests."""

    def __init__(self, inventory: Inventory, cache: FileCache | None = None) -> None:
        """`cache` is for requests with `cached`; without one, each of them reads the board."""
        self._inventory = inventory
        self.cache = cache or FileCache()
        # The last listing of each device, shown while the device is busy.
        self._last_listings: WeakKeyDictionary[Device, Sequence[FileEntry]] = WeakKeyDictionary()

    def source(self) -> SourceFunctions[DeviceFile]:
        """Return the request type and the functions that serve it, for the catalog."""
        return SourceFunctions(
            DeviceFile,
            read=self.read,
            aread=self.aread,
            write=self.write,
            awrite=self.awrite,
            describe=self.describe,
            requests=self.requests,
        )

    def read(self, request: DeviceFile) -> Reading:
        rows = FileRows(request)
        return begin(rows, self._lots(request, rows))

    async def aread(self, request: DeviceFile) -> AsyncReading:
        rows = FileRows(request)
        return await abegin(rows, self._alots(request, rows))

    def write(self, request: DeviceFile, schema: pa.Schema, batches: Sent, acknowledge: Acknowledge) -> Summary:
        content = content_of(request, schema, acknowledge)
        transfer = transfer_of(request)
        device = self._inventory.device(request.device)
        with device.lease(holder(request), interrupt=request.interrupt) as session, errors_name_file(request):
            if request.resume:
                content.announce_part(session.part(request.path))
            content.start(next(batches, None))
            written = session.write(
                request.path,
                while_wanted(content.pieces(batches), batches.check),
                resume=content.resumption,
                keep=request.resume,
                transfer=transfer,
            )
        return content.summary(written)

    async def awrite(
        self, request: DeviceFile, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], acknowledge: Acknowledge
    ) -> Summary:
        content = content_of(request, schema, acknowledge)
        transfer = transfer_of(request)
        device = self._inventory.device(request.device)
        async with device.alease(holder(request), interrupt=request.interrupt) as session:
            with errors_name_file(request):
                if request.resume:
                    content.announce_part(await session.part(request.path))
                content.start(await anext(batches, None))
                written = await session.write(
                    request.path,
                    content.apieces(batches),
                    resume=content.resumption,
                    keep=request.resume,
                    transfer=transfer,
                )
        return content.summary(written)

    def describe(self, request: DeviceFile) -> Estimate:
        """Return the size of the file, and the schema inferred from its first `INFERENCE_BYTES`."""
        rows = FileRows(request)
        device = self._inventory.device(request.device)
        with (
            device.lease(f"describing {request.path}", interrupt=request.interrupt) as session,
            errors_name_file(request),
        ):
            size = session.stat(request.path).size
            with contextlib.closing(session.read(request.path, limit=INFERENCE_BYTES)) as pieces:
                for piece in pieces:
                    rows.feed(piece)
            if rows.schema is None:
                rows.finish()
        return Estimate(rows.schema, bytes=size)

    def requests(self, takes: Takes) -> Iterator[tuple[DeviceFile, Estimate]]:
        """Yield a request for each file of the devices that `takes` accepts.

        For a device that is busy, or does not answer in time, these are the files of its last listing, with the note
        `{"busy": why}`. A device that cannot be reached is left out: its `device.listing` request is listed anyway.
        """
        for device, entries, note in self._list_all([each for each in self._inventory.devices() if takes(each.name)]):
            for entry in entries:
                if entry.kind == "file":
                    request = DeviceFile(device=device.name, path=entry.path)
                    yield request, Estimate(None, bytes=entry.size, note=note)

    def _list_all(
        self, devices: Sequence[Device]
    ) -> Iterator[tuple[Device, Sequence[FileEntry], Mapping[str, Any] | None]]:
        """List `devices` in parallel, within `LISTING_TOTAL_SECONDS`. Yield entries and note of each, in order."""
        lease_deadline = time.monotonic() + LISTING_LEASE_SECONDS
        pool = concurrent.futures.ThreadPoolExecutor(LISTING_THREADS, "listing")
        try:
            listings = [pool.submit(self._list, device, lease_deadline) for device in devices]
            concurrent.futures.wait(listings, LISTING_TOTAL_SECONDS)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        for device, listing in zip(devices, listings, strict=True):
            last = self._last_listings.get(device, ())
            if listing.cancelled() or not listing.done():
                yield device, last, {"busy": f"it did not answer within {LISTING_TOTAL_SECONDS:g} s"}
                continue
            try:
                entries = listing.result()
            except BusyError as error:
                yield device, last, {"busy": error.what}
            except FastFlightError:
                continue
            else:
                yield device, entries, None

    def _list(self, device: Device, lease_deadline: float) -> Sequence[FileEntry]:
        with device.lease("listing files", timeout=max(0.0, lease_deadline - time.monotonic())) as session:
            entries = session.list("/", recursive=True)
        self._last_listings[device] = entries if len(entries) <= MAX_CACHED_ENTRIES else ()
        return entries

    def fetch(self, request: DeviceFile) -> Generator[Lot, None, CachedContent]:
        """Return the content of the file, from the cache if the board's digest says so. The caller closes it.

        Yields empty lots while the board sends it.
        """
        device = self._inventory.device(request.device)
        with device.lease(holder(request), interrupt=request.interrupt) as session, errors_name_file(request):
            entry = session.stat(request.path)
            key = CacheKey(request.device, entry, *session.hash(request.path))
            if (found := self.cache.find(key)) is not None:
                return found
            with (
                contextlib.closing(NewContent(self.cache, key)) as new,
                contextlib.closing(session.read(request.path, transfer=transfer_of(request))) as pieces,
            ):
                for piece in pieces:
                    new.feed(piece)
                    yield []
                return new.finish()

    def rows(self, request: DeviceFile, content: CachedContent) -> Reading:
        """Read a file's content as rows. The caller closes `content` afterwards."""
        rows = FileRows(request)
        return begin(rows, _content_lots(request, rows, content))

    async def _afetch(self, request: DeviceFile) -> CachedContent:
        """As `fetch`, on an event loop."""
        device = self._inventory.device(request.device)
        async with device.alease(holder(request), interrupt=request.interrupt) as session:
            with errors_name_file(request):
                entry = await session.stat(request.path)
                key = CacheKey(request.device, entry, *await session.hash(request.path))
                if (found := await off_loop(self.cache.find, key, discard=_close)) is not None:
                    return found
                with contextlib.closing(NewContent(self.cache, key)) as new:
                    async with contextlib.aclosing(session.read(request.path, transfer=transfer_of(request))) as pieces:
                        async for piece in pieces:
                            new.feed(piece)
                        return new.finish()

    def _lots(self, request: DeviceFile, rows: FileRows) -> Generator[Lot, None, None]:
        if request.cached:
            with contextlib.closing((yield from self.fetch(request))) as content:
                yield from _content_lots(request, rows, content)
            return
        device = self._inventory.device(request.device)
        with (
            device.lease(holder(request), interrupt=request.interrupt) as session,
            errors_name_file(request),
        ):
            if request.describe is not None:
                entry = session.stat(request.path)
                hashed = rows.wants_digest and entry.kind == "file"
                rows.describe(entry, *(session.hash(request.path) if hashed else ()))
            if rows.empty:
                return
            with contextlib.closing(
                session.read(request.path, offset=request.offset, limit=request.limit, transfer=transfer_of(request))
            ) as pieces:
                for piece in pieces:
                    yield rows.feed(piece)
                yield rows.finish()

    async def _alots(self, request: DeviceFile, rows: FileRows) -> AsyncGenerator[Lot, None]:
        if request.cached:
            with contextlib.closing(await self._afetch(request)) as content:
                lots = _content_lots(request, rows, content)
                while (lot := await off_loop(next, lots, None)) is not None:
                    yield lot
            return
        device = self._inventory.device(request.device)
        async with device.alease(holder(request), interrupt=request.interrupt) as session:
            with errors_name_file(request):
                if request.describe is not None:
                    entry = await session.stat(request.path)
                    hashed = rows.wants_digest and entry.kind == "file"
                    rows.describe(entry, *(await session.hash(request.path) if hashed else ()))
                if rows.empty:
                    return
                async with contextlib.aclosing(
                    session.read(
                        request.path, offset=request.offset, limit=request.limit, transfer=transfer_of(request)
                    )
                ) as pieces:
                    async for piece in pieces:
                        yield rows.feed(piece) if rows.is_quick else await off_loop(rows.feed, piece)
                    yield rows.finish() if rows.is_quick else await off_loop(rows.finish)


def _content_lots(request: DeviceFile, rows: FileRows, content: CachedContent) -> Generator[Lot, None, None]:
    if request.describe is not None:
        rows.describe(content.key.entry, content.key.algorithm, content.key.digest)
    if rows.empty:
        return
    with errors_name_file(request):
        for piece in content.pieces(request.offset, request.limit):
            yield rows.feed(piece)
        yield rows.finish()


def _close(content: CachedContent | None) -> None:
    if content is not None:
        content.close()


def content_of(request: DeviceFile, schema: pa.Schema, acknowledge: Acknowledge) -> FileContent:
    """Return the encoder of a request that writes.

    `RequestError` for keys that are only for reading, and for `resume` in a format other than `raw`.
    """
    layout = layout_of(request)
    if request.offset:
        raise RequestError("only reading begins at an offset", where="offset", hint="Each row has its own offset")
    if request.limit is not None or request.describe is not None or request.cached:
        key = "cached" if request.cached else "describe" if request.describe else "limit"
        raise RequestError("only reading takes this", where=key)
    if request.resume and layout.format != "raw":
        raise RequestError(
            f"a write of {layout.format} cannot be resumed", where="resume", hint='Write it with "format": "raw"'
        )
    return FileContent(layout, schema, acknowledge, request.sha256)


def transfer_of(request: DeviceFile | DeviceTree) -> Transfer:
    """Return the transfer method and compression that the request asks for."""
    return Transfer(method=request.transfer, deflate=request.deflate)


@contextlib.contextmanager
def errors_name_file(request: DeviceFile) -> Iterator[None]:
    """Put `device:path` before the place that a `DataError` names."""
    try:
        yield
    except DataError as error:
        prefix, path = f"{request.device}: ", f"{request.device}:{request.path}"
        where = error.where.removeprefix(prefix)
        if not where.startswith(path):
            error.where = f"{path}, {where}" if where else path
        raise


def holder(request: DeviceFile) -> str:
    """Return the name by which the request appears as the device's holder."""
    return f"a {request.type} request ({request.mode}) for {request.path}"
