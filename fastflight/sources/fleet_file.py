"""`fleet.file`: one file over many devices, as one table with a leading column `device`.

It is made of `device.file` answers, `MAX_SIDE_BY_SIDE` of them at a time: sync ones in threads, async ones each on its
device's own event loop. Where the request does not say the columns, the first device by name is opened first, and the
next one if that cannot be read; the others begin when the columns are known. A device that cannot be read takes no
other's rows away: it is named, with its error, at its place in the stream and in the trailer's `failed`. Only if there
are no columns to be had from any is the first one's error that of the whole.

get_flight_info gives an endpoint per device: the same request for that name alone, with the columns spelled out.
"""

from __future__ import annotations

import contextlib
import glob
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import TypeAlias

from fastflight.concurrency import Shard, across
from fastflight.concurrency.gather import AsyncGather, Gather
from fastflight.errors import UnknownName, nearest
from fastflight.runtime.outgoing import aclose, close
from fastflight.service import dispatch
from fastflight.service.requests import DeviceFile, FleetFile
from fastflight.service.source import AsyncReading, Estimate, Lot, Part, Parts, Reading, Source, Takes, lot_bytes
from fastflight.sources.fleet_rows import FleetRows, columns_asked

# Devices read at a time: each takes a thread where the request is `sync`, and each has a piece of its file in memory.
MAX_SIDE_BY_SIDE = 16
# What waits for the client, of all devices together: two full messages.
AHEAD_BYTES = 4 * 1024 * 1024

Listed: TypeAlias = Callable[[Takes], Iterable[tuple[DeviceFile, Estimate]]]


class FleetFiles:
    """The source of `fleet.file` requests, over that of `device.file` requests."""

    def __init__(
        self,
        files: Source[DeviceFile],
        names: Callable[[], Sequence[str]],
        shard_of: Callable[[str], Shard],
        listed: Listed,
    ) -> None:
        """`names`: the devices. `shard_of`: where one is read. `listed`: the files that some were found to have."""
        self._files = files
        self._names = names
        self._shard_of = shard_of
        self._listed = listed

    def source(self) -> Source[FleetFile]:
        """For the catalog."""
        return Source(
            FleetFile,
            read=self.read,
            aread=self.aread,
            describe=self.describe,
            requests=self.requests,
            parts=self.parts,
        )

    def read(self, request: FleetFile) -> Reading:
        rows = FleetRows(request, self._chosen(request))
        open_file = dispatch.reader(self._files)
        opened: dict[str, Reading] = {}
        undo = contextlib.ExitStack()
        try:
            for name in rows.until_known():
                with rows.failing(name), contextlib.ExitStack() as unfit:
                    reading = open_file(rows.asked(name))
                    unfit.callback(close, reading.lots)
                    rows.begin(reading.schema)
                    opened[name] = reading
                    undo.push(unfit.pop_all())

            def device(name: str) -> Iterator[Lot]:
                if rows.has_failed(name):
                    yield [rows.told(name)]
                    return
                with rows.failing(name):
                    reading = opened.get(name) or open_file(rows.asked(name))
                    try:
                        rows.check(reading.schema)
                        for lot in reading.all_lots():
                            yield [rows.labelled(name, item) for item in lot]
                        rows.was_read(name, reading.summary())
                    finally:
                        close(reading.lots)
                if rows.has_failed(name):
                    yield [rows.told(name)]

            gather = Gather(
                [partial(device, name) for name in rows.names],
                limit=MAX_SIDE_BY_SIDE,
                max_bytes=AHEAD_BYTES,
                size_of=lot_bytes,
                ordered=request.ordered,
                idle=list,
                name="fleet",
            )
            return Reading(rows.schema, _Lots(gather, undo), rows.summary)
        except BaseException:
            undo.close()
            raise

    async def aread(self, request: FleetFile) -> AsyncReading:
        rows = FleetRows(request, self._chosen(request))
        open_file = dispatch.async_reader(self._files)
        opened: dict[str, AsyncGenerator[Lot, None]] = {}

        async def device(name: str) -> AsyncGenerator[Lot, None]:
            """On the device's own loop. The first lot is empty, and comes as soon as the columns are known."""
            with rows.failing(name):
                reading = await open_file(rows.asked(name))
                try:
                    if rows.is_known:
                        rows.check(reading.schema)
                    else:
                        rows.begin(reading.schema)
                    yield []
                    async for lot in reading.all_lots():
                        yield [rows.labelled(name, item) for item in lot]
                    rows.was_read(name, reading.summary())
                finally:
                    await aclose(reading.lots)
            if rows.has_failed(name) and rows.is_known:
                yield [rows.told(name)]

        def there(name: str) -> AsyncGenerator[Lot, None]:
            if name in opened:
                return opened[name]
            return across(self._shard_of(name), partial(device, name), max_bytes=AHEAD_BYTES, size_of=lot_bytes)

        async def job(name: str) -> AsyncGenerator[Lot, None]:
            if rows.has_failed(name):
                yield [rows.told(name)]
                return
            async with contextlib.aclosing(there(name)) as lots:
                async for lot in lots:
                    yield lot

        undo = contextlib.AsyncExitStack()
        try:
            for name in rows.until_known():
                items = there(name)
                undo.push_async_callback(items.aclose)
                if await anext(items, None) is not None:
                    opened[name] = items
            gather = AsyncGather(
                [partial(job, name) for name in rows.names],
                limit=MAX_SIDE_BY_SIDE,
                max_bytes=AHEAD_BYTES,
                size_of=lot_bytes,
                ordered=request.ordered,
            )
            return AsyncReading(rows.schema, _AsyncLots(gather, undo), rows.summary)
        except BaseException:
            await undo.aclose()
            raise

    def describe(self, request: FleetFile) -> Estimate:
        """The columns; how many rows and bytes there are only reading tells."""
        rows = FleetRows(request, self._chosen(request))
        for name in rows.until_known():
            with rows.failing(name):
                known = Estimate(None) if self._files.describe is None else self._files.describe(rows.asked(name))
                if known.schema is None:
                    return Estimate(None)
                rows.begin(known.schema)
        return Estimate(rows.schema)

    def requests(self, takes: Takes) -> Iterator[tuple[FleetFile, Estimate]]:
        """Every path at which more than one device has a file."""
        paths = Counter(request.path for request, _ in self._listed(takes))
        for path, devices in paths.items():
            if devices > 1:
                yield FleetFile(path=path), Estimate(None)

    def parts(self, request: FleetFile, known: Estimate) -> Parts[FleetFile]:
        """A part per device, all with the same columns; one part where a request cannot say these."""
        names = self._chosen(request)
        columns = columns_asked(request, known.schema)
        if len(names) == 1 or columns is None:
            return Parts([Part(request)], request.ordered)
        same = {"schema_": columns or None}
        parts = [request.model_copy(update={**same, "devices": glob.escape(name)}) for name in names]
        return Parts([Part(part) for part in parts], request.ordered)

    def _chosen(self, request: FleetFile) -> list[str]:
        # Who may not interrupt a device that does not fit is not refused for it: so the name comes first.
        chosen = request.existing(name for name in self._names() if fnmatchcase(name, request.devices))
        if not chosen:
            hint = nearest(request.devices, request.existing(self._names()))
            raise UnknownName("no device has such a name", where=f"devices {request.devices!r}", hint=hint)
        return chosen


class _Lots(Iterator[Lot]):
    """What is gathered; closing it closes the devices' answers."""

    def __init__(self, gather: Gather[Lot], opened: contextlib.ExitStack) -> None:
        self._gather = gather
        self._opened = opened

    def __next__(self) -> Lot:
        return next(self._gather)

    def close(self) -> None:
        self._gather.close()
        self._opened.close()


class _AsyncLots(AsyncIterator[Lot]):
    """As `_Lots`, on an event loop."""

    def __init__(self, gather: AsyncGather[Lot], opened: contextlib.AsyncExitStack) -> None:
        self._gather = gather
        self._opened = opened

    async def __anext__(self) -> Lot:
        return await anext(self._gather)

    async def aclose(self) -> None:
        await self._gather.aclose()
        await self._opened.aclose()
