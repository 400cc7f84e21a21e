"""Decodes the content of a request into record batches.

All of a text decides the types of its columns, as that of a file on a board: it is kept in a spool until its end. Other
content, and text with `infer` `sample`, is decoded chunk by chunk, and memory holds only the current chunk and the
batches that it completes. If the client leaves before the end, the batches end with `Stopped`, never as if complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Self

import pyarrow as pa

from fastflight.concurrency.offload import off_loop
from fastflight.errors import RequestError, Stopped
from fastflight.gateway.asgi import Receive
from fastflight.gateway.backend import RAW
from fastflight.gateway.content.formats import MEDIA_TYPES
from fastflight.gateway.errors import HttpRefusal
from fastflight.sources.spool import Spool
from fastflight.tables import Layout, RowReader, WholeFile, needs_whole_file, open_reader
from fastflight.tables.bare import one_content

# Content types of unchanged bytes: none, and those that curl, and browsers for unknown file endings, send by default.
OPAQUE = ("", "application/octet-stream", "application/x-www-form-urlencoded")
# Formats that an upload may have, besides bytes as they are.
READABLE = ("arrow", "jsonl", "csv")

# How long a client may pause between two chunks. Time in which the gateway does not receive is not counted: while a
# board writes, the gateway pauses its client.
STALL_SECONDS = 30.0
# How long a small request that is read whole may take to arrive, even if its bytes keep coming one by one.
WHOLE_SECONDS = 30.0
# A text that is kept on the server's disk until its end: more than the flash of nearly any board holds.
MAX_SPOOLED_BYTES = 64 * 1024 * 1024


def format_of_content(media_type: str) -> str:
    """Return the format that a `Content-Type` names; `raw` for bytes as they are.

    Raise `HttpRefusal` (415) for any other type.
    """
    name = media_type.partition(";")[0].strip().lower()
    if name in OPAQUE:
        return "raw"
    format_ = MEDIA_TYPES.get(name)
    if format_ in READABLE:
        return format_
    known = ", ".join(media for media, format_ in MEDIA_TYPES.items() if format_ in READABLE)
    raise HttpRefusal(
        415,
        f"{name[:80]!r} is not a format for uploads",
        where="Content-Type",
        hint=f"Known: {known}; application/octet-stream for bytes as they are",
    )


class Content:
    """The chunks of a request's content. `ended` is set when the client has sent all of it."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.ended = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while not self.ended.is_set():
            try:
                async with asyncio.timeout(STALL_SECONDS):
                    message = await self._receive()
            except TimeoutError:
                what = f"nothing came for {STALL_SECONDS:.0f} s"
                raise HttpRefusal(408, what, where="content", hint="Ask again") from None
            if message["type"] == "http.disconnect":
                raise Stopped("the client has left")
            if not message.get("more_body", False):
                self.ended.set()
            if chunk := message.get("body", b""):
                yield chunk

    async def whole(self, max_bytes: int) -> bytes:
        """Return all of the content.

        Raise `HttpRefusal` if it has more than `max_bytes`, or is not complete within `WHOLE_SECONDS`.
        """
        parts, size = [], 0
        try:
            async with asyncio.timeout(WHOLE_SECONDS):
                async for chunk in self:
                    parts.append(chunk)
                    size += len(chunk)
                    if size > max_bytes:
                        raise HttpRefusal(413, f"more than {max_bytes} bytes", where="content", hint="Send less")
        except TimeoutError:
            what = f"not complete within {WHOLE_SECONDS:.0f} s"
            raise HttpRefusal(408, what, where="content", hint="Ask again") from None
        return b"".join(parts)


class UploadedRows:
    """The rows of `content`. Enter it, call `begin`, then read `schema`, then iterate `batches`."""

    def __init__(self, content: Content, layout: Layout) -> None:
        self._chunks = aiter(content)
        self._layout = layout
        self._spool = Spool() if needs_whole_file(layout) else None
        self._file: WholeFile | None = None
        self._reader: RowReader | None = None if layout.format == "raw" or self._spool else open_reader(layout)
        self._ready: list[pa.RecordBatch] = []
        self._complete = False
        self.schema = RAW

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._spool is not None:
            self._spool.close()

    @property
    def rejected(self) -> Mapping[str, int]:
        """How many rows were rejected so far."""
        decoder = self._file or self._reader
        return {"rejected": 0 if decoder is None else decoder.summary.rejected}

    async def begin(self) -> None:
        """Read until the schema is known. Raise `RequestError` if the content ends before that."""
        if self._spool is not None:
            async for chunk in self._chunks:
                if self._spool.size + len(chunk) > MAX_SPOOLED_BYTES:
                    what = f"more than {MAX_SPOOLED_BYTES} bytes, all of which would decide the types of the columns"
                    raise HttpRefusal(413, what, where="content", hint="Let the beginning decide them: infer=sample")
                await self._spool.afeed(chunk)
            self._file = await off_loop(WholeFile, self._layout, self._spool.pieces)
            self.schema = self._file.schema
        if self._reader is None:
            return
        while self._reader.schema is None and not self._complete:
            await self._feed()
        if self._reader.schema is None:
            raise RequestError("without rows the columns are unknown", where="content", hint="Send at least a header")
        self.schema = self._reader.schema

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Yield all rows, in batches. Raise `Stopped` if the client leaves before it has sent all of them."""
        if self._file is not None:
            rows = self._file.batches()
            while (batch := await off_loop(next, rows, None)) is not None:
                yield batch
            return
        while True:
            ready, self._ready = self._ready, []
            for batch in ready:
                yield batch
            if self._complete:
                return
            await self._feed()

    async def _feed(self) -> None:
        chunk = await anext(self._chunks, None)
        self._complete = chunk is None
        if self._reader is not None:
            # In a thread: the client determines how long parsing takes.
            self._ready += await (
                off_loop(self._reader.finish) if chunk is None else off_loop(self._reader.feed, chunk)
            )
        elif chunk is not None:
            self._ready.append(pa.record_batch([one_content(chunk)], schema=RAW))
