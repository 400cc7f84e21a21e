"""`ServerBoard`: a board of a server, over Flight with Arrow."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from fastflight.client import answers, call
from fastflight.client.answers import Digest, Entry, RemoteEntry, Written
from fastflight.client.board import Board, TreeBlock
from fastflight.client.cancel_scope import CancelScope
from fastflight.client.connection import ServerConnection
from fastflight.client.file_copy import FileToSend
from fastflight.client.interaction import Interaction
from fastflight.client.local_files import PIECE_BYTES, LocalEntry, os_errors_of
from fastflight.client.progress import Report
from fastflight.client.rows import RAW_SCHEMA, UploadRows, piece, pieces
from fastflight.client.stream import RowStream
from fastflight.client.validation import content, digests_in, text, validating, whole
from fastflight.errors import DataError, TransportClosed
from fastflight.service.requests import (
    DEVICE_GONE,
    SERVER_DRAINING,
    DeviceExec,
    DeviceFile,
    DeviceListing,
    DeviceSession,
    DeviceTree,
    Request,
)
from fastflight.service.source import PartialUpload

TREE_SCHEMA = pa.schema([("path", pa.string()), ("offset", pa.int64()), ("data", pa.binary())])
# The most blocks of small files in one batch; the server acknowledges each batch.
BATCH_ROWS = 256


class ServerBoard(Board):
    """The device `device` of a server. `keys` are keys of all requests, as in `FileOptions`.

    `scope`: cancelling it stops what the board does, and its further calls raise `Stopped`.
    """

    def __init__(
        self, connection: ServerConnection, device: str, keys: Mapping[str, Any], scope: CancelScope | None = None
    ) -> None:
        self.name = device
        self._connection = connection
        self._keys = keys
        self._scope = scope or CancelScope()
        # Checked now: an action has no other keys.
        self._interrupt = call.build(DeviceFile, device=device, path="/", **keys).interrupt

    def ls(self, path: str = "/", *, recursive: bool = False) -> list[Entry]:
        keys = {name: value for name, value in self._keys.items() if name in ("interrupt", "mode")}
        with self._opened(call.build(DeviceListing, device=self.name, path=path, recursive=recursive, **keys)) as rows:
            return answers.entries_of(rows)

    def stat(self, path: str) -> Entry:
        return answers.entry_of(self._act_once("file.stat", path=path))

    def hash(self, path: str, limit: int | None = None) -> Digest:
        return answers.digest_of(self._act_once("file.hash", path=path, limit=limit))

    def hashes(self, folder: str) -> list[tuple[str, RemoteEntry]]:
        return answers.remote_entries_of(self._act("file.hash", path=folder, recursive=True))

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> Generator[bytes, None, None]:
        sha256 = hashlib.sha256()
        with self._opened(self._file(path, offset=offset, limit=limit)) as stream:
            for batch in stream:
                with validating("a block of a file"):
                    blocks = [content(each) for each in batch.column("data").to_pylist()]
                for data in blocks:
                    sha256.update(data)
                    yield data
        self._verify(stream, sha256.hexdigest(), path)

    def read_tree(
        self, folder: str, paths: Sequence[str]
    ) -> Generator[tuple[Sequence[str], Sequence[TreeBlock]], None, None]:
        sha256 = hashlib.sha256()
        with self._opened(self._tree(folder, files=tuple(paths))) as stream:
            for batch, note in stream.pieces():
                with validating("a block of a file"):
                    blocks = [
                        (text(row["path"]), whole(row["offset"]), content(row["data"])) for row in batch.to_pylist()
                    ]
                for _, _, data in blocks:
                    sha256.update(data)
                yield digests_in(note or {}), blocks
            self._verify(stream, sha256.hexdigest(), folder)

    def write(self, path: str, file: FileToSend, report: Report | None) -> Written:
        request = self._file(path, resume=file.resume_at is not None, sha256=file.sha256, size=file.size)

        def after(stored: PartialUpload) -> Iterator[pa.RecordBatch]:
            assert file.resume_at is not None
            start = file.resume_at(stored.bytes, Digest(stored.algorithm, stored.digest))
            if start and start == file.size:  # nothing is left to send, but a row must give the offset
                return iter([piece(start, b"")])
            return pieces(file.source, start)

        rest = after if request.resume else None
        return self._upload(request, UploadRows(RAW_SCHEMA, pieces(file.source), file.size, rest, paced=True), report)

    def write_tree(self, folder: str, files: Sequence[LocalEntry], report: Report | None) -> Written:
        # The first conversion of Python values makes Arrow import pandas, which takes time: do it before the write
        # occupies the device.
        pa.array([0])
        rows = UploadRows(TREE_SCHEMA, tree_rows(files), sum(entry.size for entry in files), paced=True)
        return self._upload(self._tree(folder), rows, report)

    def remove(self, path: str) -> None:
        self._act("file.remove", path=path)

    def mkdir(self, path: str) -> None:
        self._act("file.mkdir", path=path)

    def rename(self, path: str, to: str) -> None:
        self._act("file.rename", path=path, to=to)

    def info(self) -> dict[str, Any]:
        return self._act_once("device.info")

    def reset(self, *, hard: bool = False, main: bool = True) -> None:
        self._act("device.reset", **({"kind": "hard"} if hard else {"kind": "soft", "main": main}))

    def exec(self, code: str, timeout: float | None = None) -> Generator[dict[str, Any], None, None]:
        request = call.build(DeviceExec, device=self.name, code=code, timeout=timeout, interrupt=self._interrupt)
        with self._opened(request) as stream:
            for batch in stream:
                yield from batch.to_pylist()

    def terminal(self) -> ServerTerminal:
        return ServerTerminal(self._connection.interaction(call.build(DeviceSession, device=self.name, flush_ms=0)))

    @contextmanager
    def _opened(self, request: Request) -> Iterator[RowStream]:
        self._scope.check()
        with self._connection.stream(request) as stream, self._scope.stopping(stream.cancel):
            yield stream

    def _upload(self, request: Request, rows: UploadRows, report: Report | None) -> Written:
        upload = self._connection.upload(request, rows, report)
        with self._scope.stopping(upload.give_up):
            return upload.run()

    def _act(self, action: str, **body: Any) -> list[Any]:
        self._scope.check()
        return self._connection.act(action, device=self.name, interrupt=self._interrupt, **body)

    def _act_once(self, action: str, **body: Any) -> dict[str, Any]:
        self._scope.check()
        return self._connection.act_once(action, device=self.name, interrupt=self._interrupt, **body)

    def _verify(self, stream: RowStream, sha256: str, path: str) -> None:
        if stream.summary.get("sha256") != sha256:
            where = f"{self.name}:{path}"
            raise DataError("what arrived is not what the device sent", where=where, hint="Try again")

    def _file(self, path: str, **values: Any) -> DeviceFile:
        return call.build(DeviceFile, device=self.name, path=path, format="raw", **self._keys, **values)

    def _tree(self, folder: str, **values: Any) -> DeviceTree:
        return call.build(DeviceTree, device=self.name, path=folder, **self._keys, **values)


class ServerTerminal:
    """A `Terminal` over a session that holds the device's line."""

    def __init__(self, session: Interaction) -> None:
        self._session = session
        self.send = session.send
        self.done = session.done
        self.cancel = session.cancel
        self.settle = session.settle

    def receive(self) -> list[tuple[bool, bytes]] | None:
        """As `Terminal.receive`. Raises `TransportClosed` if the session was ended by the board or the server."""
        batch = self._session.receive()
        if batch is None:
            self._check_end()
            return None
        with validating("a row of the session"):
            # Without the column of times, for which Arrow would import pandas.
            rows = batch.select(["direction", "data"]).to_pylist()
            return [(row["direction"] == "rx", content(row["data"])) for row in rows]

    def _check_end(self) -> None:
        summary = self._session.rows.summary
        if summary.get("ended") == DEVICE_GONE:
            with validating("the end of a session"):
                why = text(summary.get("why", ""))
            raise TransportClosed(why or "the board is gone")
        if summary.get("ended") == SERVER_DRAINING:
            raise TransportClosed("the server shuts down")


def tree_rows(entries: Sequence[LocalEntry]) -> Iterator[pa.RecordBatch]:
    """Read local files into batches of `TREE_SCHEMA`."""
    rows: list[TreeBlock] = []
    waiting = 0
    for path, offset, data in _blocks(entries):
        rows.append((path, offset, data))
        waiting += len(data)
        if waiting >= PIECE_BYTES or len(rows) == BATCH_ROWS:
            yield _batch(rows)
            rows, waiting = [], 0
    if rows:
        yield _batch(rows)


def _blocks(entries: Sequence[LocalEntry]) -> Iterator[TreeBlock]:
    for entry in entries:
        with os_errors_of(entry.local), entry.local.open("rb") as file:
            data = file.read(PIECE_BYTES)
            yield entry.path, 0, data  # an empty file gets a row as well
            offset = len(data)
            while data := file.read(PIECE_BYTES):
                yield entry.path, offset, data
                offset += len(data)


def _batch(rows: Sequence[TreeBlock]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, TREE_SCHEMA, strict=True)], schema=TREE_SCHEMA
    )
