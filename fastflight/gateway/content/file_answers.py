"""Answers with a file of a device: its bytes, whole or in part, or its rows. A folder is answered with its entries.

The board describes the file (`describe`) in the same opening in which it is read. So size and entity tag belong to the
bytes that follow. If these turn out to differ from the description, the answer is broken off: its last byte is sent
only after all bytes have come and, for a whole file, their digest is right.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from starlette.responses import JSONResponse, Response

from fastflight.access.identity import Identity
from fastflight.errors import BusyError, DataError
from fastflight.gateway.asgi import Receive, Scope, Send
from fastflight.gateway.backend import Backend, StreamedAnswer
from fastflight.gateway.content.conditions import Conditions
from fastflight.gateway.content.formats import ENCODERS, BodyEncoder, Data
from fastflight.gateway.content.streaming import AnswerStart, Streamed, path_of, while_connected
from fastflight.service.requests import FILE_DESCRIPTION, Request
from fastflight.service.source import Note
from fastflight.service.versions import etag_of

# Content types that are safe to name. Files come from the board: no browser may show them as pages of the gateway.
FILE_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/jsonl",
    "json": "application/json",
    "txt": "text/plain; charset=utf-8",
    "py": "text/x-python; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
}
ANY_TYPE = "application/octet-stream"
# One to describe the file, one to read the range, and one more if the file was rewritten meanwhile.
MAX_OPENINGS = 3


def described(answer: StreamedAnswer) -> dict[str, Any]:
    """Return the board's description of the file: kind, size, modified and, if requested, algorithm and digest."""
    description: dict[str, Any] = json.loads(answer.schema.metadata[FILE_DESCRIPTION])
    return description


class ListingAnswer(Response):
    """Answers with the entries of the folder at `place`, as JSON."""

    def __init__(self, backend: Backend, caller: Identity, place: Mapping[str, str]) -> None:
        super().__init__()
        self.backend = backend
        self.caller = caller
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = self.backend.make_request({"type": "device.listing", **self._place})
        async with while_connected(receive), self.backend.read(request, caller=self.caller) as answer:
            rows = [row async for batch, _ in answer.batches for row in batch.to_pylist()]
        entries = [{**row, "modified": row["modified"] and row["modified"].isoformat()} for row in rows]
        await JSONResponse({**self._place, "entries": entries})(scope, receive, send)


class FileAnswer(Streamed):
    """Answers with the rows of a file, or with `listing` if the board says that the path is a folder's."""

    def __init__(
        self, keys: Mapping[str, Any], listing: ListingAnswer, choose: Callable[[pa.Schema], BodyEncoder]
    ) -> None:
        request = listing.backend.make_request({"describe": "size", **keys}, strict=False)
        super().__init__(listing.backend, request, listing.caller, choose)
        self._listing = listing

    async def begin(self, answer: StreamedAnswer) -> AnswerStart | Request | Response:
        if described(answer)["kind"] == "folder":
            await drain(answer)
            return self._listing
        return await self.begin_file(answer)

    async def begin_file(self, answer: StreamedAnswer) -> AnswerStart | Request | Response:
        """Begin the answer about a file."""
        return await super().begin(answer)


class BytesAnswer(FileAnswer):
    """Answers with the bytes of a file, as `conditions` allow.

    The board is opened once for a whole file, HEAD, a range, 304 and 412. It is opened twice if what to read depends on
    the file's description: for its last bytes (`bytes=-N`), for If-None-Match if the client has another version, and
    for the whole file where a range does not apply (If-Range names another version, or there is no entity tag).
    """

    def __init__(self, keys: Mapping[str, Any], listing: ListingAnswer, conditions: Conditions) -> None:
        self._keys = {**keys, "format": "raw", "describe": "digest" if conditions.wants_tag else "size"}
        self._offset, self._limit = conditions.guess
        super().__init__(self._next_keys, listing, ENCODERS["arrow"])
        self._conditions = conditions
        self._openings = 0
        self._path = str(keys["path"])

    @property
    def _next_keys(self) -> dict[str, Any]:
        return {**self._keys, "offset": self._offset, "limit": self._limit}

    async def begin_file(self, answer: StreamedAnswer) -> AnswerStart | Request | Response:
        description = described(answer)
        if self._limit == 0:
            await drain(answer)
        size = int(description["size"])
        etag = etag_of(description.get("algorithm", ""), description.get("digest", ""), size)
        verdict = self._conditions.judge(size, etag)
        length = verdict.stop - verdict.start
        headers = {"cache-control": "private, no-cache" if etag else "no-store", "vary": "accept"}
        if etag:
            headers["etag"] = etag
        if verdict.status == 304:
            return _start(304, headers, None)
        name = self._path.rpartition("/")[2]
        encoder = BytesEncoder(
            FILE_TYPES.get(name.rpartition(".")[2].lower(), ANY_TYPE), length, description if length == size else {}
        )
        headers |= {
            "content-type": encoder.media_type,
            "content-length": str(length),
            "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
            "accept-ranges": "bytes" if etag or verdict.status == 206 else "none",
            "fastflight-path": path_of(answer).decode(),
        }
        if verdict.status == 206:
            headers["content-range"] = f"bytes {verdict.start}-{verdict.stop - 1}/{size}"
        if self._conditions.looks_only:
            return _start(verdict.status, headers, None)
        reads_to_end = self._limit is None or self._offset + self._limit >= size
        if self._offset == verdict.start and (reads_to_end if verdict.stop == size else self._limit == length):
            return _start(verdict.status, headers, encoder)
        self._openings += 1
        if self._openings == MAX_OPENINGS:
            raise BusyError("the file is being rewritten", where=self._path, hint="Ask again")
        self._offset, self._limit = verdict.start, None if verdict.stop == size else length
        return self._backend.make_request(self._next_keys, strict=False)


class BytesEncoder:
    """Encodes raw rows as the bytes of a file. Raise `DataError` unless they match the description of the file.

    There must be exactly `length` bytes. If `description` has a digest, their digest must be the same. The last byte is
    held back until both are checked.
    """

    slow = False

    def __init__(self, media_type: str, length: int, description: Mapping[str, Any]) -> None:
        self.media_type = media_type
        self._left = length
        self._description = description
        self._crc32 = 0
        self._last = b""

    def begin(self) -> Data:
        return b""

    def encode(self, batch: pa.RecordBatch, note: Note | None) -> Data:
        data = b"".join(batch.column("data").to_pylist())
        if self._description.get("algorithm") == "crc32":
            self._crc32 = binascii.crc32(data, self._crc32)
        self._left -= len(data)
        if self._left < 0:
            raise _changed(f"the file is at least {-self._left} bytes longer than described")
        if data and not self._left:  # a client that has all bytes takes the answer as complete
            data, self._last = data[:-1], data[-1:]
        return data

    def finish(self, trailer: Note) -> Data:
        if self._left:
            raise _changed(f"the file is {self._left} bytes shorter than described")
        digests = {"sha256": trailer.get("sha256"), "crc32": f"{self._crc32:08x}"}
        digest = digests.get(self._description.get("algorithm", ""))
        if digest is not None and digest != self._description["digest"]:
            raise _changed("the file has changed while it was read")
        return self._last

    def fail(self, error: Mapping[str, Any]) -> Data:
        return b""


async def drain(answer: StreamedAnswer) -> None:
    """Read an answer without rows to its end, so that it counts as complete."""
    async for _ in answer.batches:
        pass


def _start(status: int, headers: Mapping[str, str], encoder: BytesEncoder | None) -> AnswerStart:
    return AnswerStart(status, [(name.encode(), value.encode()) for name, value in headers.items()], encoder)


def _changed(what: str) -> DataError:
    return DataError(what, hint="Ask again")
