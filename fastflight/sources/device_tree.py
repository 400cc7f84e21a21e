"""`device.tree`: reads all files below a folder of a device, and writes files there.

Reading lists the folder and reads its files one after another, under one lease. Writing stores all files beside the old
ones, verifies them in one pass, and then replaces the old ones. Files that are not in the rows stay as they are.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence

import pyarrow as pa

from fastflight.device import FileEntry
from fastflight.device.listing import normal_path
from fastflight.errors import FileMissing, RequestError, nearest
from fastflight.service.choices import LEFT_BEHIND
from fastflight.service.requests import DeviceTree
from fastflight.service.source import Acknowledge, Batches, Estimate, Reading, Summary
from fastflight.sources.device_file import transfer_of
from fastflight.sources.modes import BoardStore, Mode, begin
from fastflight.sources.tree_rows import SCHEMA, TreeContent, TreeRows

# Names of files in which the nearest match for a wrong name is searched.
MAX_HINTS = 20


class DeviceTrees(BoardStore[DeviceTree]):
    """The source of `device.tree` requests."""

    request = DeviceTree

    async def _open(self, request: DeviceTree, mode: Mode) -> Reading:
        rows = TreeRows()
        return await begin(rows, self._batches(request, rows, mode))

    async def _store(
        self,
        request: DeviceTree,
        schema: pa.Schema,
        batches: AsyncIterator[pa.RecordBatch],
        acknowledge: Acknowledge,
        mode: Mode,
    ) -> Summary:
        content = content_of(request, schema, acknowledge)
        async with self._lease(request, mode) as session:
            files = ((path, mode.while_wanted(pieces)) async for path, pieces in content.files(batches))
            written = await session.write_tree(request.path, files, transfer=transfer_of(request))
        return content.summary(written)

    def describe(self, request: DeviceTree) -> Estimate:
        """Return the schema and the total size of the files."""
        device = self._inventory.device(request.device)
        with device.lease(f"describing {request.path}", interrupt=request.interrupt) as session:
            files = dict(selected(request, session.list(request.path, recursive=True)))
            return Estimate(SCHEMA, bytes=sum(entry.size for entry in files.values()))

    async def _batches(self, request: DeviceTree, rows: TreeRows, mode: Mode) -> AsyncGenerator[Batches, None]:
        transfer = transfer_of(request)
        async with self._lease(request, mode) as session:
            entries = await session.list(request.path, recursive=True)
            for path, entry in selected(request, entries):
                async with contextlib.aclosing(session.read(entry.path, transfer=transfer)) as pieces:
                    async for piece in pieces:
                        yield rows.feed(path, piece)
                rows.end(path)
            yield rows.flush()


def selected(request: DeviceTree, entries: Sequence[FileEntry]) -> list[tuple[str, FileEntry]]:
    """Return the requested files of a listing, in the order of the request, each with its path below the folder.

    `FileMissing` if the request names a file that is not there.
    """
    found = dict(files_below(request.path, entries))
    if request.files is None:
        return list(found.items())
    missing = next((path for path in request.files if path not in found), None)
    if missing is not None:
        raise FileMissing(
            "no such file below the folder", where=missing, hint=nearest(missing, list(found)[:MAX_HINTS])
        )
    return [(path, found[path]) for path in request.files]


def files_below(folder: str, entries: Iterable[FileEntry]) -> Iterator[tuple[str, FileEntry]]:
    """Yield the files of a recursive listing of `folder`, each with its path below it, without leftovers of writes.

    `RequestError` if `folder` is a file, whose listing is the file itself.
    """
    prefix = normal_path(folder).rstrip("/") + "/"
    for entry in entries:
        if not entry.path.startswith(prefix):
            raise RequestError("this is a file, not a folder", where=entry.path, hint="Ask for it as device.file")
        path = entry.path.removeprefix(prefix)
        if entry.kind == "file" and not is_leftover(path):
            yield path, entry


def is_leftover(path: str) -> bool:
    """Return whether a file on a board was left there by a write that broke off."""
    return posixpath.basename(path).startswith(LEFT_BEHIND)


def content_of(request: DeviceTree, schema: pa.Schema, acknowledge: Acknowledge) -> TreeContent:
    """Return the decoder of a request that writes. `RequestError` for keys that are only for reading."""
    if request.files is not None:
        raise RequestError("only reading chooses files", where="files", hint="Send the rows of those to be written")
    return TreeContent(schema, acknowledge)
