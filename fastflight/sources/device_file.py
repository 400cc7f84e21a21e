"""`device.file`: reads a file of a device as rows, and writes rows to a file.

A text file without a schema is read into a spool first, since all of it decides the types of its columns. Then the
board is released, and the rows are sent. Such a file is in the cache under the digest that the board computes, so that
get_schema and the do_get after it take one download. An answer begins with its schema, so nothing in it can tell how
far the download is: with `limit` 0 the file is only read into the cache, and notes tell that.

All other files are decoded as their bytes arrive, with one piece of the file and one batch in memory; if the client
reads slowly, a spool takes the rest, and the board is released, too.

Writing encodes one batch at a time. A batch is acknowledged when its bytes are stored on the device, and the file
appears under its name only when all of its bytes are verified there.

A write with `resume` leaves its stored bytes on the device if it breaks off. The next such write first tells the client
how many there are; the offset of the first row that the client then sends says whether it continues them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator

import pyarrow as pa

from fastflight.concurrency.blocking import Blocking, NonBlocking, finish
from fastflight.device import FileEntry, Inventory, Transfer
from fastflight.device.listing import normal_path
from fastflight.errors import DataError, RequestError
from fastflight.service.requests import DeviceFile, DeviceTree, TextKeys
from fastflight.service.source import (
    Acknowledge,
    Batches,
    Estimate,
    Noted,
    Reading,
    Summary,
    Takes,
)
from fastflight.sources.board_listings import BoardListings
from fastflight.sources.content import FileContent
from fastflight.sources.file_cache import CacheKey, Content, FileCache
from fastflight.sources.file_rows import FileRows, WholeRows, layout_of, rows_of
from fastflight.sources.modes import BoardStore, InThread, Mode, begin, in_thread
from fastflight.sources.release import PATIENCE_SECONDS
from fastflight.sources.spool import Spool
from fastflight.tables.bare import empty
from fastflight.tables.text import SAMPLE_BYTES

# Between two notes: bars that move less often look as if they stood still.
PROGRESS_SECONDS = 0.2

# Takes the name of a device and a path.
KeysOf = Callable[[str, str], TextKeys | None]


def no_keys(device: str, path: str) -> None:
    """Say nothing of any file."""


class DeviceFiles(BoardStore[DeviceFile]):
    """The source of `device.file` requests."""

    request = DeviceFile

    def __init__(
        self,
        inventory: Inventory,
        cache: FileCache | None = None,
        keys_of: KeysOf = no_keys,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`cache` is for files that are read as a whole; without one, none are kept.

        `keys_of` takes the name of a device and a path, and returns how that file is written, for requests that do not
        say it. A client that does not read on for `patience_seconds` no longer keeps the board.
        """
        super().__init__(inventory)
        self.keys_of = keys_of
        self.cache = cache or FileCache(max_bytes=0)
        self._patience = patience_seconds
        self.listings = BoardListings()

    async def _open(self, request: DeviceFile, mode: Mode) -> Reading:
        rows = self._rows(request)
        return await begin(rows, self._batches(request, rows, mode))

    async def _store(
        self,
        request: DeviceFile,
        schema: pa.Schema,
        batches: AsyncIterator[pa.RecordBatch],
        acknowledge: Acknowledge,
        mode: Mode,
    ) -> Summary:
        content = content_of(request, schema, acknowledge)
        transfer = transfer_of(request)
        async with self._lease(request, mode) as session:
            with errors_name_file(request):
                if request.conditional:
                    request.check_version(await session.version(request.path))
                if request.resume:
                    content.announce_part(await session.part(request.path))
                content.start(await anext(batches, None))
                written = await session.write(
                    request.path,
                    mode.while_wanted(content.pieces(batches)),
                    resume=content.resumption,
                    keep=request.resume,
                    transfer=transfer,
                    size=request.size,
                )
        return content.summary(written)

    def describe(self, request: DeviceFile) -> Estimate:
        """Return the size of the file and the schema of its rows: that of the `do_get` which follows.

        A text file without a schema is read for that, and is in the cache for that `do_get`. Of other files, the board
        sends the beginning.
        """
        rows = self._rows(request)
        if request.cached or isinstance(rows, WholeRows):
            content = self.fetch(request)
            with contextlib.closing(content), contextlib.closing(_content_batches(request, rows, content)) as batches:
                while rows.schema is None and next(batches, None) is not None:
                    pass
            return Estimate(rows.schema, bytes=content.spool.size)
        device = self._inventory.device(request.device)
        with (
            device.lease(f"describing {request.path}", interrupt=request.interrupt) as session,
            errors_name_file(request),
        ):
            size = session.stat(request.path).size
            with contextlib.closing(session.read(request.path, limit=SAMPLE_BYTES)) as pieces:
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
        devices = [each for each in self._inventory.devices() if takes(each.name)]
        for device, entries, note in self.listings.list(devices):
            for entry in entries:
                if entry.kind == "file":
                    request = DeviceFile(device=device.name, path=entry.path)
                    yield request, Estimate(None, bytes=entry.size, note=note)

    def fetch(self, request: DeviceFile, check: Callable[[], object] = bool) -> Content:
        """Return the content of the file, from the cache if the board's digest says so. The caller closes it.

        `check` is called while the board sends it, and may raise. The board is released before the content is returned.
        With `limit` 0, a file that cannot be kept in the cache is not read, and the content is empty.
        """
        with contextlib.closing(Blocking(self._fetch(request, InThread()))) as fetching:
            for item in fetching:
                if isinstance(item, Content):
                    return item
                check()
        raise AssertionError("the content is the last item")

    async def _fetch(self, request: DeviceFile, mode: Mode) -> AsyncGenerator[Batches | Content, None]:
        """As `fetch`. Yields empty lists, and notes, and then the content."""
        if (known := key_of(request)) is not None:
            if (found := await mode.run(self.cache.find, known, discard=_close)) is not None:
                yield found
                return
        with contextlib.ExitStack() as on_error:
            async with self._lease(request, mode) as session:
                with errors_name_file(request):
                    entry = await session.stat(request.path)
                    progress = _Progress(request, entry.size)
                    yield progress.batches(0)
                    key = CacheKey(request.device, entry, *await session.hash(request.path))
                    found = await mode.run(self.cache.find, key, discard=_close)
                    on_error.callback(_close, found)
                    if found is None:
                        spool = on_error.enter_context(contextlib.closing(Spool()))
                        if request.limit != 0 or self.cache.can_keep(key):
                            reading = session.read(request.path, transfer=transfer_of(request))
                            async with contextlib.aclosing(reading) as pieces:
                                async for piece in pieces:
                                    await mode.feed(spool, piece)
                                    yield progress.batches(spool.size)
            if found is None:
                found = await mode.run(self.cache.store, key, spool)
            on_error.pop_all()
            yield found

    def rows(self, request: DeviceFile, content: Content) -> Reading:
        """Read a file's content as rows. The caller closes `content` afterwards."""
        rows = self._rows(request)
        return in_thread(finish(begin(rows, NonBlocking(_content_batches(request, rows, content)))))

    def _rows(self, request: DeviceFile) -> FileRows | WholeRows:
        """Return the object that decodes the file, as its request and the settings of its device say."""
        keys = self.keys_of(request.device, request.path)
        if keys is not None:
            # A request with the default says nothing: clients send defaults, too.
            fields = TextKeys.model_fields
            unsaid = [key for key in keys.model_fields_set if getattr(request, key) == fields[key].default]
            request = request.model_copy(update={key: getattr(keys, key) for key in unsaid})
        return rows_of(request)

    async def _batches(
        self, request: DeviceFile, rows: FileRows | WholeRows, mode: Mode
    ) -> AsyncGenerator[Batches, None]:
        if request.cached or isinstance(rows, WholeRows):
            async with contextlib.aclosing(self._fetch(request, mode)) as fetching:
                async for item in fetching:
                    if not isinstance(item, Content):
                        yield item
                        continue
                    with contextlib.closing(item) as content:
                        async with contextlib.aclosing(mode.each(_content_batches(request, rows, content))) as batches:
                            async for ready in batches:
                                yield ready
            return
        shards = self._inventory.shards
        shard = None if shards is None else shards.of(request.device)
        pieces = mode.released(self._pieces(request, rows, mode), shard, self._patience)
        async with contextlib.aclosing(pieces):
            with errors_name_file(request):
                async for piece in pieces:
                    yield rows.feed(piece) if rows.is_quick else await mode.run(rows.feed, piece)
                if not rows.empty:
                    yield rows.finish() if rows.is_quick else await mode.run(rows.finish)

    async def _pieces(self, request: DeviceFile, rows: FileRows, mode: Mode) -> AsyncGenerator[bytes, None]:
        """Yield the bytes that are read, and describe the file to `rows` first. Holds the board until it ends."""
        async with self._lease(request, mode) as session:
            if request.describe is not None:
                entry = await session.stat(request.path)
                hashed = rows.wants_digest and entry.kind == "file"
                rows.describe(entry, *(await session.hash(request.path) if hashed else ()))
            if rows.empty:
                return
            reading = session.read(
                request.path, offset=request.offset, limit=request.limit, transfer=transfer_of(request)
            )
            async with contextlib.aclosing(reading) as pieces:
                async for piece in pieces:
                    yield piece


class _Progress:
    """Tells how much of a file the server has, if the request asks for nothing else."""

    def __init__(self, request: DeviceFile, size: int) -> None:
        self._is_wanted = request.limit == 0
        self._size = size
        self._due = 0.0

    def batches(self, done: int) -> Batches:
        """Return a note when it is due, without rows."""
        now = time.monotonic()
        if not self._is_wanted or now < self._due:
            return []
        self._due = now + PROGRESS_SECONDS
        return [Noted(empty(pa.schema([])), {"progress": {"bytes": done, "size": self._size}})]


def _content_batches(
    request: DeviceFile, rows: FileRows | WholeRows, content: Content
) -> Generator[Batches, None, None]:
    if request.describe is not None:
        rows.describe(content.key.entry, content.key.algorithm, content.key.digest)
    if rows.empty:
        return
    with errors_name_file(request):
        yield from rows.batches(content)


def key_of(request: DeviceFile) -> CacheKey | None:
    """Return the key of the content that the request is for, if it says so."""
    if not (known := request._description):
        return None
    entry = FileEntry(normal_path(request.path), known["kind"], known["size"], known["modified"])
    return CacheKey(request.device, entry, known["algorithm"], known["digest"])


def _close(content: Content | None) -> None:
    if content is not None:
        content.close()


def content_of(request: DeviceFile, schema: pa.Schema, acknowledge: Acknowledge) -> FileContent:
    """Return the encoder of a request that writes.

    `RequestError` for keys that are only for reading, and for `resume` in a format other than `raw`.
    """
    layout = layout_of(request)
    if request.offset:
        raise RequestError("only reading begins at an offset", where="offset", hint="Each row has its own offset")
    for key in ("cached", "describe", "limit", "kinds"):
        if getattr(request, key) not in (None, False):
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
