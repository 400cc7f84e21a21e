"""`device.file`: the rows of a file on a device, and rows written to it.

Reading runs one download and turns the bytes into rows as they come; no more than one piece of the file and one batch
are held. Writing encodes one batch at a time; a batch is acknowledged when its bytes are stored on the device, and the
file appears under its name only when all of them are verified there. A write that may be resumed leaves what it stored
when it breaks off; the next one says so first, and the offset of its first row says whether it goes on there.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from fastflight.concurrency.offload import off_loop
from fastflight.device import Device, FileEntry, Inventory, Transfer
from fastflight.errors import BusyError, DataError, FastFlightError, RequestError
from fastflight.service.requests import FILE_DESCRIPTION, DeviceFile, DeviceTree
from fastflight.service.source import (
    Acknowledge,
    AsyncReading,
    Estimate,
    Lot,
    Noted,
    Reading,
    Sent,
    Source,
    Summary,
    Takes,
)
from fastflight.sources.content import FileContent, while_wanted
from fastflight.sources.misfits import MisfitNotice
from fastflight.sources.reading import abegin, begin
from fastflight.tables import Batcher, Layout, format_of, open_reader
from fastflight.tables.bare import empty
from fastflight.tables.text import INFERENCE_BYTES

# A listing of all devices waits this long for those that are busy, of all together.
LISTING_SECONDS = 2.0
# And this long in all, opening lines and listing files included: a large tree on a slow line takes a few seconds.
LISTED_SECONDS = 10.0
# Devices that are asked at a time; each takes a thread.
LISTING_THREADS = 32
# Of a device with more files, none is remembered for a time when it is busy.
MAX_REMEMBERED = 4096


class FileRows:
    """The rows of one file as its bytes come in. No I/O."""

    def __init__(self, request: DeviceFile, clock: Callable[[], float] = time.monotonic) -> None:
        understood = readable(request)
        self._reader = open_reader(understood)
        # Bytes as they are take no time worth a thread; how long rows take to read is up to what stands in the file.
        self.is_quick = understood.format == "raw"
        self._batcher = Batcher(request.batch_rows, request.flush_ms / 1000)
        self._clock = clock
        self._misfits = MisfitNotice(self._reader.rejected, "offset", clock)
        self._fitting = 0
        self._sha256 = hashlib.sha256()
        self._offset = request.offset
        self._bytes = 0
        self._described: dict[str, Any] | None = None
        self.wants_digest = request.describe == "digest"
        # There is nothing to read.
        self.empty = request.limit == 0

    def describe(self, entry: FileEntry, algorithm: str = "", digest: str = "") -> None:
        """Have the schema say what is read, as the board said just before."""
        self._described = {"kind": entry.kind, "size": entry.size, "modified": entry.modified}
        if self.wants_digest:
            self._described |= {"algorithm": algorithm, "digest": digest}
        self.empty = self.empty or entry.kind == "folder"

    @property
    def schema(self) -> pa.Schema | None:
        """None until the codec knows it."""
        schema = self._reader.schema
        if self._described is None:
            return schema
        if schema is None:
            if not self.empty:
                return None
            schema = pa.schema([])
        return schema.with_metadata({**(schema.metadata or {}), FILE_DESCRIPTION: json.dumps(self._described).encode()})

    def feed(self, piece: bytes) -> Lot:
        """The batches that are ready after the next bytes of the file, or after a while without any."""
        batches: list[pa.RecordBatch] = []
        if piece:
            self._sha256.update(piece)
            self._bytes += len(piece)
            batches = self._reader.feed(piece)
        self._fitting += sum(batch.num_rows for batch in batches)
        ready: Lot = [*self._batcher.add(batches, self._clock())]
        if note := self._misfits.note(self._fitting):
            ready.append(Noted(empty(self.schema), note))
        return ready

    def finish(self) -> Lot:
        """The last batches."""
        ready = self._batcher.add(self._reader.finish(), self._clock())
        return [*ready, *self._batcher.flush()]

    def summary(self) -> Summary:
        """What was read: all of the file, from the offset that was asked for."""
        rejected = self._reader.rejected
        return {
            "offset": self._offset,
            "bytes": self._bytes,
            "sha256": self._sha256.hexdigest(),
            "rejected": rejected.count,
            "rejected_rows": [asdict(row) for row in rejected.examples],
        }


class DeviceFiles:
    """The source of `device.file` requests."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        # What each device had when it was listed last.
        self._last: dict[str, Sequence[FileEntry]] = {}

    def source(self) -> Source[DeviceFile]:
        """For the catalog."""
        return Source(
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
        with device.lease(holder(request), interrupt=request.interrupt) as session, named(request):
            if request.resume:
                content.keep(session.part(request.path))
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
            with named(request):
                if request.resume:
                    content.keep(await session.part(request.path))
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
        """The size of the file, and the schema from its first part."""
        rows = FileRows(request)
        device = self._inventory.device(request.device)
        with device.lease(f"describing {request.path}", interrupt=request.interrupt) as session, named(request):
            size = session.stat(request.path).size
            with contextlib.closing(session.read(request.path, limit=INFERENCE_BYTES)) as pieces:
                for piece in pieces:
                    rows.feed(piece)
            if rows.schema is None:
                rows.finish()
        return Estimate(rows.schema, bytes=size)

    def requests(self, takes: Takes) -> Iterator[tuple[DeviceFile, Estimate]]:
        """The files of every device: of one that is busy, or does not answer in time, those that it had last.

        These have the note `{"busy": why}`. A device that cannot be reached is left out: its `device.listing` request
        is shown all the same.
        """
        for device, entries, note in self._listed([each for each in self._inventory.devices() if takes(each.name)]):
            for entry in entries:
                if entry.kind == "file":
                    request = DeviceFile(device=device.name, path=entry.path)
                    yield request, Estimate(None, bytes=entry.size, note=note)

    def _listed(
        self, devices: Sequence[Device]
    ) -> Iterator[tuple[Device, Sequence[FileEntry], Mapping[str, Any] | None]]:
        """List all `devices` side by side, within `LISTED_SECONDS`; in their order, with what is to be noted."""
        until = time.monotonic() + LISTING_SECONDS
        pool = concurrent.futures.ThreadPoolExecutor(LISTING_THREADS, "listing")
        try:
            asked = [pool.submit(self._list, device, until) for device in devices]
            concurrent.futures.wait(asked, LISTED_SECONDS)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        for device, listing in zip(devices, asked, strict=True):
            last = self._last.get(device.name, ())
            if listing.cancelled() or not listing.done():
                yield device, last, {"busy": f"it did not answer within {LISTED_SECONDS:g} s"}
                continue
            try:
                entries = listing.result()
            except BusyError as error:
                yield device, last, {"busy": error.what}
            except FastFlightError:
                continue
            else:
                yield device, entries, None

    def _list(self, device: Device, until: float) -> Sequence[FileEntry]:
        with device.lease("listing files", timeout=max(0.0, until - time.monotonic())) as session:
            entries = session.list("/", recursive=True)
        self._last[device.name] = entries if len(entries) <= MAX_REMEMBERED else ()
        return entries

    def _lots(self, request: DeviceFile, rows: FileRows) -> Generator[Lot, None, None]:
        device = self._inventory.device(request.device)
        with (
            device.lease(holder(request), interrupt=request.interrupt) as session,
            named(request),
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
        device = self._inventory.device(request.device)
        async with device.alease(holder(request), interrupt=request.interrupt) as session:
            with named(request):
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


def layout(request: DeviceFile) -> Layout:
    """How the request wants the bytes understood; by the file's ending where it does not say."""
    return Layout(
        format=request.format or format_of(request.path),
        schema=request.schema_,
        columns=request.columns,
        record=request.record,
        on_error=request.on_error,
        offset=request.offset,
    )


def readable(request: DeviceFile) -> Layout:
    """The layout of a request that reads; `RequestError` for keys that only writing has, or only format `raw`."""
    understood = layout(request)
    if request.resume or request.sha256:
        key = "resume" if request.resume else "sha256"
        raise RequestError("only a write takes this", where=key, hint="To go on reading, give the offset")
    if (request.offset or request.limit is not None) and understood.format != "raw":
        raise RequestError(
            f"{understood.format} is read from its beginning to its end",
            where="offset" if request.offset else "limit",
            hint='Read it with "format": "raw"',
        )
    return understood


def content_of(request: DeviceFile, schema: pa.Schema, acknowledge: Acknowledge) -> FileContent:
    """The bytes of a request that writes; `RequestError` for keys that only reading has, or only format `raw`."""
    understood = layout(request)
    if request.offset:
        raise RequestError("only reading begins at an offset", where="offset", hint="Rows say their own offset")
    if request.limit is not None or request.describe is not None:
        raise RequestError("only reading takes this", where="describe" if request.describe else "limit")
    if request.resume and understood.format != "raw":
        raise RequestError(
            f"a write of {understood.format} cannot be resumed", where="resume", hint='Write it with "format": "raw"'
        )
    return FileContent(understood, schema, acknowledge, request.sha256)


def transfer_of(request: DeviceFile | DeviceTree) -> Transfer:
    """How the request wants the bytes to cross the line."""
    return Transfer(method=request.transfer, deflate=request.deflate)


@contextlib.contextmanager
def named(request: DeviceFile) -> Iterator[None]:
    """What does not fit names the file, too, and not only the place in it."""
    try:
        yield
    except DataError as error:
        prefix, path = f"{request.device}: ", f"{request.device}:{request.path}"
        where = error.where.removeprefix(prefix)
        if not where.startswith(path):
            error.where = f"{path}, {where}" if where else path
        raise


def holder(request: DeviceFile) -> str:
    """What others are told while the request has the device."""
    return f"a {request.type} request ({request.mode}) for {request.path}"
