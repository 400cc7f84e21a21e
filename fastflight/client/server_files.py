"""The files of a server's device, over Flight with Arrow."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from fastflight.client import answers, call
from fastflight.client.answers import Digest, Entry
from fastflight.client.connection import ServerConnection
from fastflight.client.device_files import FileToSend, RemoteEntry, TreePiece, remote_entries
from fastflight.client.local_files import PIECE_BYTES, LocalEntry, os_errors_of
from fastflight.client.meaning import content, digests_in, text, understood, whole
from fastflight.client.progress import Report
from fastflight.client.rows import RAW_SCHEMA, UploadRows, piece, pieces
from fastflight.client.stream import RowStream
from fastflight.client.upload import Upload
from fastflight.service.requests import DeviceFile, DeviceListing, DeviceTree
from fastflight.service.source import PartialUpload

T = TypeVar("T")

TREE_SCHEMA = pa.schema([("path", pa.string()), ("offset", pa.int64()), ("data", pa.binary())])
# The most pieces of small files in one batch; the server acknowledges each batch.
BATCH_ROWS = 256


class StreamDownload(Generic[T]):
    """A `Download` of the rows of a stream, as `values` takes them from it."""

    def __init__(self, stream: RowStream, values: Callable[[RowStream], Iterator[T]]) -> None:
        self._stream = stream
        self._values = values
        self.cancel: Callable[[], None] = stream.cancel

    def __enter__(self) -> Self:
        self._stream.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stream.__exit__(*raised)

    def __iter__(self) -> Iterator[T]:
        return self._values(self._stream)

    @property
    def sha256(self) -> str:
        return str(self._stream.summary.get("sha256"))


class ServerFiles:
    """The `DeviceFiles` of the device `device`. `keys` are keys of all requests, as in `FileOptions`."""

    def __init__(self, connection: ServerConnection, device: str, keys: Mapping[str, Any]) -> None:
        self._connection = connection
        self.device = device
        self._keys = keys
        self._interrupt = call.build(DeviceFile, device=device, path="/", **keys).interrupt

    def stat(self, path: str) -> Entry:
        return answers.entry_of(self._connection.act_once("file.stat", **self._at(path)))

    def hash(self, path: str, limit: int | None = None) -> Digest:
        return answers.digest_of(self._connection.act_once("file.hash", **self._at(path), limit=limit))

    def hashes(self, folder: str) -> list[tuple[str, RemoteEntry]]:
        return remote_entries(self._connection.act("file.hash", **self._at(folder), recursive=True))

    def list_tree(self, folder: str) -> StreamDownload[Entry]:
        keys = {name: value for name, value in self._keys.items() if name in ("interrupt", "mode")}
        listing = call.build(DeviceListing, device=self.device, path=folder, recursive=True, **keys)
        return StreamDownload(self._connection.stream(listing), lambda stream: iter(answers.entries_of(stream)))

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> StreamDownload[bytes]:
        request = self._file(path, offset=offset, limit=limit)
        return StreamDownload(self._connection.stream(request), _bytes_of)

    def remove(self, path: str) -> None:
        self._connection.act("file.remove", **self._at(path))

    def write(self, path: str, file: FileToSend, report: Report | None) -> Upload:
        request = self._file(path, resume=file.resume_at is not None, sha256=file.sha256, size=file.size)

        def after(kept: PartialUpload) -> Iterator[pa.RecordBatch]:
            assert file.resume_at is not None
            start = file.resume_at(kept.bytes, Digest(kept.algorithm, kept.digest))
            if start and start == file.size:  # nothing is left to send, but a row must give the offset
                return iter([piece(start, b"")])
            return pieces(file.source, start)

        rest = after if request.resume else None
        rows = UploadRows(RAW_SCHEMA, pieces(file.source), file.size, rest, paced=True)
        return self._connection.upload(request, rows, report)

    def read_tree(self, folder: str, paths: Sequence[str]) -> StreamDownload[tuple[Sequence[str], Sequence[TreePiece]]]:
        return StreamDownload(self._connection.stream(self._tree(folder, files=tuple(paths))), _tree_pieces)

    def write_tree(self, folder: str, files: Sequence[LocalEntry], report: Report | None) -> Upload:
        # The first conversion of Python values makes Arrow import pandas, which takes time: do it before the write
        # occupies the device.
        pa.array([0])
        rows = UploadRows(TREE_SCHEMA, tree_rows(files), sum(entry.size for entry in files), paced=True)
        return self._connection.upload(self._tree(folder), rows, report)

    def _at(self, path: str) -> dict[str, Any]:
        return {"device": self.device, "path": path, "interrupt": self._interrupt}

    def _file(self, path: str, **values: Any) -> DeviceFile:
        return call.build(DeviceFile, device=self.device, path=path, format="raw", **self._keys, **values)

    def _tree(self, folder: str, **values: Any) -> DeviceTree:
        return call.build(DeviceTree, device=self.device, path=folder, **self._keys, **values)


def tree_rows(entries: Sequence[LocalEntry]) -> Iterator[pa.RecordBatch]:
    """Read local files into batches of `TREE_SCHEMA`."""
    rows: list[TreePiece] = []
    waiting = 0
    for path, offset, data in _pieces(entries):
        rows.append((path, offset, data))
        waiting += len(data)
        if waiting >= PIECE_BYTES or len(rows) == BATCH_ROWS:
            yield _batch(rows)
            rows, waiting = [], 0
    if rows:
        yield _batch(rows)


def _pieces(entries: Sequence[LocalEntry]) -> Iterator[TreePiece]:
    for entry in entries:
        with os_errors_of(entry.local), entry.local.open("rb") as file:
            data = file.read(PIECE_BYTES)
            yield entry.path, 0, data  # an empty file gets a row as well
            offset = len(data)
            while data := file.read(PIECE_BYTES):
                yield entry.path, offset, data
                offset += len(data)


def _batch(rows: Sequence[TreePiece]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, TREE_SCHEMA, strict=True)], schema=TREE_SCHEMA
    )


def _bytes_of(stream: RowStream) -> Generator[bytes, None, None]:
    for batch in stream:
        with understood("a piece of a file"):
            blocks = [content(each) for each in batch.column("data").to_pylist()]
        yield from blocks


def _tree_pieces(stream: RowStream) -> Generator[tuple[Sequence[str], Sequence[TreePiece]], None, None]:
    for batch, note in stream.pieces():
        with understood("a piece of a file"):
            rows = [(text(row["path"]), whole(row["offset"]), content(row["data"])) for row in batch.to_pylist()]
        yield digests_in(note or {}), rows
