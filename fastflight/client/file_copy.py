"""A file copied between here and a device, byte for byte, going on where an earlier copy broke off.

What broke off on its way to a device lies there: the server says how much and its digest, and when that is the digest
of the same first bytes here, only the rest is sent. What broke off on its way from a device lies here, as `FILE.part`:
when the device finds its first bytes to have the same digest, only the rest is read. Otherwise, and where a board can
take no digest, the copy begins anew.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from fastflight.client import call, part
from fastflight.client.call import Copied
from fastflight.client.connection import ServerConnection
from fastflight.client.local import RAW_SCHEMA, agrees, local_digest, os_errors_of, piece, pieces, size_of
from fastflight.client.meaning import content, understood
from fastflight.client.progress import Report
from fastflight.client.rows import UploadRows
from fastflight.client.work import Steps
from fastflight.errors import DataError, DeviceError, FileMissing, RequestError
from fastflight.service.requests import DeviceFile
from fastflight.service.source import PartialUpload

# Told once, before the first byte is moved: how many bytes are there already, and how many there are in all.
Resuming = Callable[[int, int], None]

PART_SUFFIX = ".part"


class PutFile(Steps):
    """A local file on its way to a device; the `Work` of `put_file`."""

    def __init__(
        self,
        connection: ServerConnection,
        request: DeviceFile,
        source: str | Path,
        *,
        skip_unchanged: bool,
        progress: Report | None,
        resuming: Resuming | None,
    ) -> None:
        super().__init__()
        self._connection = connection
        self._request = request
        self._source = Path(source)
        self._skip_unchanged = skip_unchanged
        self._progress = progress
        self._resuming = resuming
        self._size = 0
        self._resumed_at = 0

    def run(self) -> Copied:
        """Send what the device does not have."""
        self._size = size_of(self._source)
        with os_errors_of(self._source):
            sha256 = local_digest(self._source, "sha256")
        _begin(self._progress, self._size)
        if self._skip_unchanged and unchanged(self._connection, self._request, self._source):
            return Copied(self._size, sha256, unchanged=True)
        request = self._request.model_copy(update={"sha256": sha256})
        after = self._after if request.resume else None
        rows = UploadRows(RAW_SCHEMA, pieces(self._source), self._size, after, paced=True)
        upload = self._connection.upload(request, rows, self._progress)
        with self.step(upload.give_up):
            written = upload.run()
        return Copied(written.bytes, written.sha256 or sha256, self._resumed_at)

    def _after(self, kept: PartialUpload) -> Iterator[pa.RecordBatch]:
        """The rows that follow those that were kept, if they are this file's."""
        with os_errors_of(self._source):
            if not 0 < kept.bytes <= self._size or not agrees(self._source, kept.algorithm, kept.digest, kept.bytes):
                return pieces(self._source)
        self._resumed_at = kept.bytes
        if self._resuming is not None:
            self._resuming(kept.bytes, self._size)
        if kept.bytes == self._size:  # the rows have to say so, though nothing is left to send
            return iter([piece(kept.bytes, b"")])
        return pieces(self._source, kept.bytes)


class GetFile(Steps):
    """A file of a device on its way here; the `Work` of `get_file`."""

    def __init__(
        self,
        connection: ServerConnection,
        request: DeviceFile,
        target: str | Path,
        *,
        resume: bool,
        skip_unchanged: bool,
        progress: Report | None,
        resuming: Resuming | None,
    ) -> None:
        super().__init__()
        self._connection = connection
        self._request = request
        self._shown = Path(target)
        # Unlike `resolve`, this takes a link that leads to itself as it stands.
        self._target = Path(os.path.realpath(target))
        self._part = self._target.with_name(self._target.name + PART_SUFFIX)
        self._resume = resume
        self._skip_unchanged = skip_unchanged
        self._progress = progress
        self._resuming = resuming

    def run(self) -> Copied:
        """Read what is not here, and put it in the place of the old file once it is whole."""
        with os_errors_of(self._shown):
            if self._target.exists() and not self._target.is_file():
                raise RequestError("is not a file", where=str(self._shown), hint="Give the name of a file to write")
            with part.held(self._part, keep=self._resume) as file:
                return self._copied(file)

    def _copied(self, file: BinaryIO) -> Copied:
        entry = call.entry_of(self._act("file.stat"))
        if entry.kind != "file":
            where = f"{self._request.device}:{self._request.path}"
            raise RequestError(
                "this is a folder", where=where, hint="Copy it with get_tree; on the command line, get -r"
            )
        size = entry.size
        _begin(self._progress, size)
        if self._skip_unchanged and unchanged(self._connection, self._request, self._target):
            return Copied(size, local_digest(self._target, "sha256"), unchanged=True)
        offset = self._agreed(size) if self._resume else 0
        if offset and self._resuming is not None:
            self._resuming(offset, size)
        sha256 = self._read(file, offset, size)
        return Copied(part.replace(file, self._part, self._target), sha256, offset)

    def _agreed(self, size: int) -> int:
        """How much of an earlier read is here, and is still the beginning of the device's file."""
        here = self._part.stat().st_size
        if not 0 < here <= size:
            return 0
        try:
            told = call.digest_of(self._act("file.hash", limit=here))
        except DeviceError:  # a board that can take none, or not of a part
            return 0
        return here if agrees(self._part, told.algorithm, told.digest) else 0

    def _read(self, file: BinaryIO, offset: int, size: int) -> str:
        """Write the file from `offset` on to the part; the sha256 of the whole."""
        if not offset:
            file.truncate(0)
        came, sent = self._take(file, offset, size)
        file.flush()
        right, whole = came == sent, came
        if right and offset:
            # What was here before the rows, and what came with them, together.
            told = call.digest_of(self._act("file.hash"))
            right = agrees(self._part, told.algorithm, told.digest)
            whole = local_digest(self._part, "sha256")
        if not right:
            file.truncate(0)
            hint = "It may have changed meanwhile: try again"
            raise DataError("what arrived is not what the device has", where=str(self._shown), hint=hint)
        return whole

    def _take(self, file: BinaryIO, offset: int, size: int) -> tuple[str, str]:
        """Write the rows of an answer to `file`; the sha256 of what came, and of what the device sent."""
        sha256 = hashlib.sha256()
        rows, done = 0, offset
        stream = self._connection.stream(self._request.model_copy(update={"offset": offset}))
        with stream, self.step(stream.cancel):
            for batch in stream:
                with understood("a piece of a file"):
                    came = [content(each) for each in batch.column("data").to_pylist()]
                for data in came:
                    file.write(data)
                    sha256.update(data)
                    done += len(data)
                rows += batch.num_rows
                if self._progress is not None:
                    self._progress(rows, done, size)
        return sha256.hexdigest(), str(stream.summary.get("sha256"))

    def _act(self, name: str, **body: Any) -> dict[str, Any]:
        request = self._request
        given = {"device": request.device, "path": request.path, "interrupt": request.interrupt}
        return self._connection.act_once(name, **given, **body)


def _begin(progress: Report | None, size: int) -> None:
    """Tell how much there is to move, before the first of it is."""
    if progress is not None:
        progress(0, 0, size)


def unchanged(connection: ServerConnection, request: DeviceFile, local: Path) -> bool:
    """Whether a local file and that on the device are the same. False where the board can take no digest."""
    body = {"device": request.device, "path": request.path, "interrupt": request.interrupt}
    try:
        if not local.is_file():
            return False
        if local.stat().st_size != call.entry_of(connection.act_once("file.stat", **body)).size:
            return False
        told = call.digest_of(connection.act_once("file.hash", **body))
    except DeviceError as error:
        if type(error) in (FileMissing, DeviceError):
            return False
        raise
    return agrees(local, told.algorithm, told.digest)
