"""`fleet.file`: reads one file from many devices, as one table with a leading column `device`.

The answer combines `device.file` answers, `MAX_IN_PARALLEL` at a time: sync ones in threads, async ones each on its
device's own event loop. If the columns do not follow from the request, they are found first: from the text files of all
devices, which are then in the cache of files; in other formats from the first device by name, or the next one if that
fails.

A device that cannot be read does not affect the rows of the others: its error is reported at its place in the stream
and in `failed` of the trailer. Only if no device gives the columns does the whole request fail, with the first error.

get_flight_info gives one endpoint per device: the same request for that name alone, with the columns as `kinds` or
`schema`.
"""

from __future__ import annotations

import contextlib
import glob
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import TypeAlias

from fastflight.concurrency import Shard
from fastflight.concurrency.blocking import finish
from fastflight.errors import UnknownName, nearest
from fastflight.service.requests import DeviceFile, FleetFile
from fastflight.service.source import Batches, DataSource, Estimate, Part, Parts, Reading, Takes, all_held_bytes
from fastflight.sources.fleet_rows import FleetRows, requested_columns
from fastflight.sources.modes import InThread, Mode, TwoModeSource, begin

# Devices read at the same time. Each has a piece of its file in memory, and takes a thread if the request is `sync`.
MAX_IN_PARALLEL = 16
# Rows that may wait for the client, of all devices together: two full messages.
AHEAD_BYTES = 4 * 1024 * 1024

ListFiles: TypeAlias = Callable[[Takes], Iterable[tuple[DeviceFile, Estimate]]]


class FleetFiles(TwoModeSource[FleetFile]):
    """The source of `fleet.file` requests. Reads the file of each device through the source of `device.file`."""

    request = FleetFile

    def __init__(
        self,
        files: DataSource[DeviceFile],
        names: Callable[[], Collection[str]],
        shard_of: Callable[[str], Shard],
        list_files: ListFiles,
    ) -> None:
        """`names` returns all devices, `shard_of` the shard of one, and `list_files` the files of accepted devices."""
        self._files = files
        self._names = names
        self._shard_of = shard_of
        self._list_files = list_files

    async def _open(self, request: FleetFile, mode: Mode) -> Reading:
        rows = FleetRows(request, self._matching_devices(request))
        return await begin(rows, self._batches(request, rows, mode))

    async def _batches(self, request: FleetFile, rows: FleetRows, mode: Mode) -> AsyncGenerator[Batches, None]:
        """Yield an empty list once the columns are known, and then the rows of all devices."""
        opened: dict[str, AsyncGenerator[Batches, None]] = {}

        def batches_of(name: str) -> AsyncGenerator[Batches, None]:
            return opened.get(name) or self._across(mode, name, partial(self._of_device, name, rows, mode))

        async def job(name: str) -> AsyncGenerator[Batches, None]:
            if rows.has_failed(name):
                yield [rows.failure_note(name)]
                return
            async with contextlib.aclosing(batches_of(name)) as batches:
                async for ready in batches:
                    yield ready

        async with contextlib.AsyncExitStack() as closing:
            await self._join_kinds(rows, mode)
            for name in rows.until_schema_known():
                batches = await closing.enter_async_context(contextlib.aclosing(batches_of(name)))
                if await anext(batches, None) is not None:
                    opened[name] = batches
            yield []
            jobs = [partial(job, name) for name in rows.names]
            gather = mode.gather(
                jobs, limit=MAX_IN_PARALLEL, max_bytes=AHEAD_BYTES, size_of=all_held_bytes, ordered=request.ordered
            )
            async with contextlib.aclosing(gather):
                async for ready in gather:
                    yield ready

    async def _of_device(self, name: str, rows: FleetRows, mode: Mode) -> AsyncGenerator[Batches, None]:
        """Read the file of one device. The first list is empty, and comes once the columns are known."""
        with rows.recording_failure(name):
            async with contextlib.aclosing(await mode.read(self._files, rows.request_for(name))) as reading:
                if rows.schema_is_known:
                    rows.check(reading.schema)
                else:
                    rows.begin(reading.schema)
                yield []
                async for batches in reading:
                    yield [rows.labelled(name, each) for each in batches]
                rows.end(name, reading.summary())
        if rows.has_failed(name) and rows.schema_is_known:
            yield [rows.failure_note(name)]

    async def _join_kinds(self, rows: FleetRows, mode: Mode) -> None:
        """Let the files of all devices decide the columns, if they have to."""
        if not rows.of_all:
            return

        async def look(name: str) -> AsyncGenerator[Batches, None]:
            with rows.recording_failure(name):
                reading = await mode.read(self._files, rows.request_for_kinds(name))
                await reading.aclose()
                rows.add_kinds(name, reading.schema)
            yield []

        jobs = [partial(self._across, mode, name, partial(look, name)) for name in rows.names]
        gather = mode.gather(jobs, limit=MAX_IN_PARALLEL, max_bytes=AHEAD_BYTES, size_of=all_held_bytes)
        async with contextlib.aclosing(gather):
            async for _ in gather:
                pass
        rows.join()

    def _across(
        self, mode: Mode, name: str, begin: Callable[[], AsyncGenerator[Batches, None]]
    ) -> AsyncGenerator[Batches, None]:
        """Iterate what `begin` returns, on the device's own loop if there are loops."""
        return mode.across(partial(self._shard_of, name), begin, max_bytes=AHEAD_BYTES, size_of=all_held_bytes)

    def describe(self, request: FleetFile) -> Estimate:
        """Return the columns, if they can be known. The number of rows and bytes never is."""
        rows = FleetRows(request, self._matching_devices(request))
        finish(self._join_kinds(rows, InThread()))
        for name in rows.until_schema_known():
            with rows.recording_failure(name):
                known = self._files.describe(rows.request_for(name))
                if known.schema is None:
                    return Estimate(None)
                rows.begin(known.schema)
        return Estimate(rows.described_schema())

    def requests(self, takes: Takes) -> Iterator[tuple[FleetFile, Estimate]]:
        """Yield a request for every path at which more than one device has a file."""
        paths = Counter(request.path for request, _ in self._list_files(takes))
        for path, devices in paths.items():
            if devices > 1:
                yield FleetFile(path=path), Estimate(None)

    def parts(self, request: FleetFile, known: Estimate) -> Parts[FleetFile]:
        """Return one part per device, all with the same columns; one part in all if a request cannot express these."""
        names = self._matching_devices(request)
        columns = requested_columns(request, known.schema)
        if len(names) == 1 or columns is None:
            return Parts([Part(request)], request.ordered)
        parts = [request.model_copy(update={**columns, "devices": glob.escape(name)}) for name in names]
        return Parts([Part(part) for part in parts], request.ordered)

    def _matching_devices(self, request: FleetFile) -> list[str]:
        # Match the glob first: `existing` raises for a device that the caller may read but not interrupt, and such a
        # device must not matter if the glob does not match it.
        matching = request.existing(name for name in self._names() if fnmatchcase(name, request.devices))
        if not matching:
            hint = nearest(request.devices, request.existing(self._names()))
            raise UnknownName("no device has such a name", where=f"devices {request.devices!r}", hint=hint)
        return matching
