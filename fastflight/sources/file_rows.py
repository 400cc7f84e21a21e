"""Decodes the bytes of a device's file into rows, as they arrive. No I/O."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from fastflight.device import FileEntry
from fastflight.errors import RequestError
from fastflight.service.requests import FILE_DESCRIPTION, DeviceFile
from fastflight.service.source import Lot, Noted, Summary
from fastflight.sources.content import TEXT
from fastflight.sources.misfits import MisfitNotice
from fastflight.tables import Batcher, Layout, format_of, open_reader
from fastflight.tables.bare import empty


class FileRows:
    """Decodes the bytes of one file into batches. No I/O."""

    def __init__(self, request: DeviceFile) -> None:
        layout = read_layout(request)
        self._reader = open_reader(layout)
        # `raw` needs no decoding, so `feed` may run on an event loop. How long other formats take depends on the file.
        self.is_quick = layout.format == "raw"
        # Without a schema, all of a text file decides the types of its columns.
        self.needs_whole_file = request.cached or (
            layout.format in TEXT and layout.schema is None and request.infer == "file"
        )
        self._batcher = Batcher(request.batch_rows, request.flush_ms / 1000)
        self._misfits = MisfitNotice(self._reader.summary, "offset")
        self._fitting = 0
        self._sha256 = hashlib.sha256()
        self._offset = request.offset
        self._bytes = 0
        self._described: dict[str, Any] | None = None
        self.wants_digest = request.describe == "digest"
        # Whether no bytes of the file have to be read.
        self.empty = request.limit == 0

    def describe(self, entry: FileEntry, algorithm: str = "", digest: str = "") -> None:
        """Add the file's kind, size, time and digest, as the board reports them, to the metadata of the schema."""
        self._described = {"kind": entry.kind, "size": entry.size, "modified": entry.modified}
        if self.wants_digest:
            self._described |= {"algorithm": algorithm, "digest": digest}
        self.empty = self.empty or entry.kind == "folder"

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the rows; None until the codec knows it."""
        schema = self._reader.schema
        if self._described is None:
            return schema
        if schema is None:
            if not self.empty:
                return None
            schema = pa.schema([])
        return schema.with_metadata({**(schema.metadata or {}), FILE_DESCRIPTION: json.dumps(self._described).encode()})

    def feed(self, piece: bytes) -> Lot:
        """Decode the next bytes of the file and return the batches that are ready.

        An empty `piece` says that no bytes have come for a while; batches whose flush time is over are returned.
        """
        batches: list[pa.RecordBatch] = []
        if piece:
            self._sha256.update(piece)
            self._bytes += len(piece)
            batches = self._reader.feed(piece)
        self._fitting += sum(batch.num_rows for batch in batches)
        ready: Lot = [*self._batcher.add(batches, time.monotonic())]
        if note := self._misfits.note(self._fitting):
            ready.append(Noted(empty(self.schema), note))
        return ready

    def finish(self) -> Lot:
        """Return the last batches, once the file has ended."""
        ready = self._batcher.add(self._reader.finish(), time.monotonic())
        return [*ready, *self._batcher.flush()]

    def summary(self) -> Summary:
        """Return counts and the digest of the bytes that were read, from the requested offset on."""
        summary = self._reader.summary
        return {
            "offset": self._offset,
            "bytes": self._bytes,
            "sha256": self._sha256.hexdigest(),
            "rejected": summary.rejected,
            "rejected_rows": [asdict(row) for row in summary.rejected_rows],
        }


def layout_of(request: DeviceFile) -> Layout:
    """Return the layout of the file's bytes. The format defaults to that of the path's ending."""
    return Layout(
        format=request.format or format_of(request.path),
        schema=request.schema_,
        columns=request.columns,
        record=request.record,
        on_error=request.on_error,
        offset=request.offset,
    )


def read_layout(request: DeviceFile) -> Layout:
    """Return the layout of a request that reads.

    `RequestError` for keys that are only for writing, and for a range in a format other than `raw`.
    """
    layout = layout_of(request)
    if request.resume or request.sha256:
        key = "resume" if request.resume else "sha256"
        raise RequestError("only a write takes this", where=key, hint="To continue a read, give the offset")
    if (request.offset or request.limit is not None) and layout.format != "raw":
        raise RequestError(
            f"{layout.format} is read from its beginning to its end",
            where="offset" if request.offset else "limit",
            hint='Read it with "format": "raw"',
        )
    return layout
