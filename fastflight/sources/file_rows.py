"""Decodes the bytes of a device's file into rows: as they arrive, or from the whole file."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Generator
from typing import Any

import pyarrow as pa

from fastflight.device import FileEntry
from fastflight.errors import RequestError
from fastflight.service.requests import FILE_DESCRIPTION, FILE_KINDS, FILE_SUMMARY, TEXT_KEYS, DeviceFile
from fastflight.service.source import Batches, Noted, Summary
from fastflight.sources.file_cache import Content
from fastflight.sources.misfits import MisfitNotice
from fastflight.tables import (
    Batcher,
    Layout,
    RowReader,
    TextOptions,
    WholeFile,
    format_of,
    needs_whole_file,
    open_reader,
)
from fastflight.tables.bare import empty
from fastflight.tables.shapes import shapes_from_json
from fastflight.tables.summary import combined


class _Rows:
    """What the rows of streamed and of whole files have in common."""

    def __init__(self, request: DeviceFile, layout: Layout) -> None:
        self._layout = layout
        self._batcher = Batcher(request.batch_rows, request.flush_ms / 1000)
        self._reader: RowReader | WholeFile | None = None
        self._sha256: Callable[[], str] = hashlib.sha256().hexdigest
        self._offset = request.offset
        self._bytes = 0
        self._described: dict[str, Any] | None = None
        self.wants_digest = request.describe == "digest"
        self._limit = request.limit
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
        """The schema of the rows; None until it is known."""
        schema = None if self._reader is None else self._reader.schema
        if schema is None and self.empty:
            schema = pa.schema([])
        if schema is None:
            return None
        metadata = dict(schema.metadata or {}) | self._metadata()
        return schema.with_metadata(metadata) if metadata else schema

    def _metadata(self) -> dict[bytes, bytes]:
        """Return what the server adds to the metadata of the schema."""
        return {} if self._described is None else {FILE_DESCRIPTION: json.dumps(self._described).encode()}

    def summary(self) -> Summary:
        """Return counts and the digest of the bytes that were read, from the requested offset on."""
        counts = {"rejected": 0, "rejected_rows": []}
        if self._reader is not None:
            counts |= self._reader.summary.as_dict()
            del counts["rows"]  # of the file; the server counts those of the answer
        return {"offset": self._offset, "bytes": self._bytes, "sha256": self._sha256(), **counts}


class FileRows(_Rows):
    """Decodes the bytes of one file as they come: `feed` gets them in order, then `finish` is called.

    The metadata of the schema of a sample has what is known of the file before its first row. A reader that wants no
    more than the first rows never gets the summary.
    """

    def __init__(self, request: DeviceFile, layout: Layout) -> None:
        super().__init__(request, layout)
        self._stream = self._reader = open_reader(layout)
        # `raw` needs no decoding, so `feed` may run on an event loop. How long other formats take depends on the file.
        self.is_quick = layout.format == "raw"
        self._misfits = MisfitNotice(self._stream.summary, "offset")
        self._fitting = 0
        self._hash = hashlib.sha256()
        self._sha256 = self._hash.hexdigest

    def _metadata(self) -> dict[bytes, bytes]:
        metadata = super()._metadata()
        if self._layout.infer == "sample" and (notes := self._stream.summary.notes):
            metadata[FILE_SUMMARY] = json.dumps({"notes": notes}).encode()
        return metadata

    def feed(self, piece: bytes) -> Batches:
        """Decode the next bytes of the file and return the batches that are ready.

        An empty `piece` says that no bytes have come for a while; batches whose flush time is over are returned.
        """
        batches: list[pa.RecordBatch] = []
        if piece:
            self._hash.update(piece)
            self._bytes += len(piece)
            batches = self._stream.feed(piece)
        self._fitting += sum(batch.num_rows for batch in batches)
        ready: Batches = [*self._batcher.add(batches, time.monotonic())]
        if note := self._misfits.note(self._fitting):
            ready.append(Noted(empty(self.schema), note))
        return ready

    def finish(self) -> Batches:
        """Return the last batches, once the file has ended."""
        ready = self._batcher.add(self._stream.finish(), time.monotonic())
        return [*ready, *self._batcher.flush()]

    def batches(self, content: Content) -> Generator[Batches, None, None]:
        """Yield the rows of a file that is on the server already, from the requested offset on."""
        for piece in content.spool.pieces(self._offset, self._limit):
            yield self.feed(piece)
        yield self.finish()


class WholeRows(_Rows):
    """The rows of a text file without a schema: all of it decides the types of its columns.

    The metadata of their schema has the summary of the file, which is known before the first row.
    """

    _file: WholeFile | None = None

    def _metadata(self) -> dict[bytes, bytes]:
        metadata = super()._metadata()
        if self._file is not None and not self._file.summary.is_empty:
            metadata[FILE_SUMMARY] = json.dumps(self._file.summary.as_dict()).encode()
        if self._file is not None and self._layout.kinds is not None:
            kinds = {name: shape.as_json() for name, shape in self._file.kinds.items()}
            metadata[FILE_KINDS] = json.dumps(kinds).encode()
        return metadata

    def batches(self, content: Content) -> Generator[Batches, None, None]:
        """Yield an empty list once the columns are known, and then the rows. Each step may take long."""
        self._reader = self._file = file = WholeFile(self._layout, content.spool.pieces)
        self._bytes, self._sha256 = content.spool.size, content.spool.sha256.hex
        yield []
        for batch in file.batches():
            if ready := self._batcher.add([batch], time.monotonic()):
                yield [*ready]
        yield [*self._batcher.flush()]


def rows_of(request: DeviceFile) -> FileRows | WholeRows:
    """Return the object that decodes the file of a request. `RequestError` for a request that cannot be answered."""
    layout = read_layout(request)
    return WholeRows(request, layout) if needs_whole_file(layout) else FileRows(request, layout)


def summary_of(schema: pa.Schema) -> dict[str, Any]:
    """Return the summary of a file from the metadata of its schema, as in a trailer; empty if there is none."""
    summary = (schema.metadata or {}).get(FILE_SUMMARY)
    return {} if summary is None else combined([json.loads(summary)])


def layout_of(request: DeviceFile) -> Layout:
    """Return the layout of the file's bytes. The format defaults to that of the path's ending."""
    return Layout(
        format=request.format or format_of(request.path),
        schema=request.schema_,
        columns=request.columns,
        record=request.record,
        on_error=request.on_error,
        offset=request.offset,
        infer=request.infer,
        sample_rows=request.sample_rows,
        kinds=None if request.kinds is None else shapes_from_json(request.kinds),
        text=TextOptions(**{key: getattr(request, key) for key in TEXT_KEYS}),
    )


def read_layout(request: DeviceFile) -> Layout:
    """Return the layout of a request that reads.

    `RequestError` for keys that are only for writing, and for a range in a format other than `raw`.
    """
    layout = layout_of(request)
    if layout.kinds is not None and not needs_whole_file(layout):
        raise RequestError("only for text files that are read as a whole", where="kinds", hint="Leave it out")
    for key in ("resume", "sha256", "size", "if_match", "if_none_match"):
        value = getattr(request, key)
        if value is not None and value is not False:
            hint = "Compare what `describe` tells" if "match" in key else "To continue a read, give the offset"
            raise RequestError("only a write takes this", where=key, hint=hint)
    if (request.offset or request.limit) and layout.format != "raw":
        raise RequestError(
            f"{layout.format} is read from its beginning to its end",
            where="offset" if request.offset else "limit",
            hint='Read it with "format": "raw"',
        )
    return layout
