"""A file of a device as an answer: its bytes, whole or in part, or its rows; a folder as its entries.

The board is opened once for it, and says what the file is (`describe`) just before its bytes come. So the size and the
entity tag of an answer are those of what follows. A transfer whose bytes turn out to be others is broken off: the last
byte is sent when all have come and have the digest that was told.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from starlette.responses import JSONResponse, Response

from fastflight.errors import BusyError, DataError
from fastflight.gateway.asgi import Receive, Scope, Send
from fastflight.gateway.backend import Backend, StreamedAnswer
from fastflight.gateway.callers import Caller
from fastflight.gateway.content.conditions import Conditions
from fastflight.gateway.content.formats import ENCODERS, BodyEncoder, Data
from fastflight.gateway.content.streaming import Begun, Streamed, path_of, while_connected
from fastflight.runtime.outgoing import Note
from fastflight.service.requests import FILE_DESCRIPTION, Request

# Files are shown by no browser as pages of the gateway: their content is the board's. These are safe to name.
FILE_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/jsonl",
    "json": "application/json",
    "txt": "text/plain; charset=utf-8",
    "py": "text/x-python; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
}
ANY_TYPE = "application/octet-stream"
# To look at a file without reading it.
LOOK: Mapping[str, Any] = {"format": "raw", "describe": "digest", "limit": 0}
# A look, what it says is wanted, and once more because the file was rewritten meanwhile.
MAX_OPENINGS = 3


def described(answer: StreamedAnswer) -> dict[str, Any]:
    """What the board says of the file: kind, size, modified, and where it was asked for, algorithm and digest."""
    said: dict[str, Any] = json.loads(answer.schema.metadata[FILE_DESCRIPTION])
    return said


def etag_of(said: Mapping[str, Any]) -> str:
    """A strong entity tag; empty where the board can take no digest."""
    algorithm, digest = said.get("algorithm"), said.get("digest")
    if not algorithm:
        return ""
    # A crc32 alone is short: another size is another version for certain.
    return f'"{algorithm}-{digest}"' if algorithm == "sha256" else f'"{algorithm}-{digest}-{said["size"]}"'


class ListingAnswer(Response):
    """The entries of the folder at `place`."""

    def __init__(self, backend: Backend, caller: Caller, place: Mapping[str, str]) -> None:
        super().__init__()
        self.backend = backend
        self.caller = caller
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = self.backend.decode(json.dumps({"type": "device.listing", **self._place}).encode())
        async with while_connected(receive), self.backend.read(asked, caller=self.caller) as answer:
            rows = [row async for batch, _ in answer.batches for row in batch.to_pylist()]
        entries = [{**row, "modified": row["modified"] and row["modified"].isoformat()} for row in rows]
        await JSONResponse({**self._place, "entries": entries})(scope, receive, send)


class FileAnswer(Streamed):
    """The answer about a path, which is the `listing` if the board says that it is a folder."""

    def __init__(self, request: Request, listing: ListingAnswer, choose: Callable[[pa.Schema], BodyEncoder]) -> None:
        super().__init__(listing.backend, request, listing.caller, choose)
        self._listing = listing

    async def begin(self, answer: StreamedAnswer) -> Begun | Request | Response:
        if described(answer)["kind"] == "folder":
            await drain(answer)
            return self._listing
        return await self.begin_file(answer)

    async def begin_file(self, answer: StreamedAnswer) -> Begun | Request | Response:
        """Begin the answer about a file."""
        return await super().begin(answer)


class RowsAnswer(FileAnswer):
    """The rows of a file. `choose` returns their encoder once the path is known to be a file's."""

    def __init__(
        self, asked: Mapping[str, Any], listing: ListingAnswer, choose: Callable[[], Callable[[pa.Schema], BodyEncoder]]
    ) -> None:
        request = _request(listing.backend, asked, describe="size")
        super().__init__(request, listing, lambda schema: choose()(schema))


class BytesAnswer(FileAnswer):
    """The bytes of a file, under `conditions`."""

    def __init__(self, asked: Mapping[str, Any], listing: ListingAnswer, conditions: Conditions) -> None:
        self._asked = {**asked, "format": "raw", "describe": "digest"}
        self._offset, self._limit = conditions.guess
        super().__init__(self._next(listing.backend), listing, ENCODERS["arrow"])
        self._conditions = conditions
        self._openings = 0
        self._path = str(asked["path"])

    def _next(self, backend: Backend) -> Request:
        return _request(backend, self._asked, offset=self._offset, limit=self._limit)

    async def begin_file(self, answer: StreamedAnswer) -> Begun | Request | Response:
        said = described(answer)
        if self._limit == 0:
            await drain(answer)
        etag, size = etag_of(said), int(said["size"])
        verdict = self._conditions.judge(size, etag)
        length = verdict.stop - verdict.start
        headers = {"cache-control": "private, no-cache" if etag else "no-store", "vary": "accept"}
        if etag:
            headers["etag"] = etag
        if verdict.status == 304:
            return _begun(304, headers, None)
        name = self._path.rpartition("/")[2]
        encoder = BytesEncoder(
            FILE_TYPES.get(name.rpartition(".")[2].lower(), ANY_TYPE), length, said if length == size else {}
        )
        headers |= {
            "content-type": encoder.media_type,
            "content-length": str(length),
            "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
            "accept-ranges": "bytes" if etag else "none",
            "fastflight-path": path_of(answer).decode(),
        }
        if verdict.status == 206:
            headers["content-range"] = f"bytes {verdict.start}-{verdict.stop - 1}/{size}"
        if self._conditions.looks_only:
            return _begun(verdict.status, headers, None)
        ends = self._limit is None or self._offset + self._limit >= size
        if self._offset == verdict.start and (ends if verdict.stop == size else self._limit == length):
            return _begun(verdict.status, headers, encoder)
        self._openings += 1
        if self._openings == MAX_OPENINGS:
            raise BusyError("the file is being rewritten", where=self._path, hint="Ask again")
        self._offset, self._limit = verdict.start, None if verdict.stop == size else length
        return self._next(self._backend)


class BytesEncoder:
    """The bytes of raw rows, which must be `length`, and those of the file that the board `said`, if it is whole."""

    slow = False
    enough = False

    def __init__(self, media_type: str, length: int, said: Mapping[str, Any]) -> None:
        self.media_type = media_type
        self._left = length
        self._said = said
        self._crc32 = 0
        self._last = b""

    def begin(self) -> Data:
        return b""

    def encode(self, batch: pa.RecordBatch, note: Note | None) -> Data:
        data = b"".join(batch.column("data").to_pylist())
        if self._said.get("algorithm") == "crc32":
            self._crc32 = binascii.crc32(data, self._crc32)
        self._left -= len(data)
        if self._left < 0:
            raise _changed(f"the file has become {-self._left} or more bytes longer")
        if data and not self._left:  # whoever has all bytes takes that for the end
            data, self._last = data[:-1], data[-1:]
        return data

    def finish(self, trailer: Note) -> Data:
        if self._left:
            raise _changed(f"the file has become {self._left} bytes shorter")
        found = {"sha256": trailer.get("sha256"), "crc32": f"{self._crc32:08x}"}.get(self._said.get("algorithm", ""))
        if found is not None and found != self._said["digest"]:
            raise _changed("the file has changed while it was read")
        return self._last

    def fail(self, error: Mapping[str, Any]) -> Data:
        return b""


async def drain(answer: StreamedAnswer) -> None:
    """Take what follows an answer that has no rows, so that it counts as complete."""
    async for _ in answer.batches:
        pass


def _request(backend: Backend, asked: Mapping[str, Any], **more: Any) -> Request:
    return backend.decode(json.dumps({**asked, **more}).encode())


def _begun(status: int, headers: Mapping[str, str], encoder: BytesEncoder | None) -> Begun:
    return Begun(status, [(name.encode(), value.encode()) for name, value in headers.items()], encoder)


def _changed(what: str) -> DataError:
    return DataError(what, hint="Ask again")
