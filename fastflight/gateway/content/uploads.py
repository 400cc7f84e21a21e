"""What a client sends as rows: the content of a request, turned into record batches as it comes.

Nothing is held but the chunk at hand and the batches that it completes. A client that leaves before the end is
`Stopped`, never an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pyarrow as pa

from fastflight.concurrency.offload import off_loop
from fastflight.errors import RequestError, Stopped
from fastflight.gateway.asgi import Receive
from fastflight.gateway.content.formats import MEDIA_TYPES
from fastflight.gateway.errors import HttpRefusal
from fastflight.tables import Layout, RowReader, open_reader
from fastflight.tables.bare import one_content

RAW = pa.schema([pa.field("data", pa.binary(), nullable=False)])
# What carries bytes as they are, or says nothing: curl, and browsers for endings that they do not know.
OPAQUE = ("", "application/octet-stream", "application/x-www-form-urlencoded")
# Batches without a schema cannot begin a write: so much may come before it is known.
READABLE = ("arrow", "jsonl", "csv")

# For a request that is read whole, which is small, however steadily its bytes drip.
WHOLE_SECONDS = 30.0


def format_of_content(media_type: str) -> str:
    """The format that a `Content-Type` means; `raw` for bytes as they are."""
    name = media_type.partition(";")[0].strip().lower()
    if name in OPAQUE:
        return "raw"
    meant = MEDIA_TYPES.get(name)
    if meant in READABLE:
        return meant
    known = ", ".join(media for media, meant in MEDIA_TYPES.items() if meant in READABLE)
    raise HttpRefusal(
        415,
        f"{name[:80]!r} holds no rows",
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
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Stopped("the client has left")
            if not message.get("more_body", False):
                self.ended.set()
            if chunk := message.get("body", b""):
                yield chunk

    async def whole(self, max_bytes: int) -> bytes:
        """All of it, if it is no longer than `max_bytes` and does not take for ever."""
        parts, size = [], 0
        try:
            async with asyncio.timeout(WHOLE_SECONDS):
                async for chunk in self:
                    parts.append(chunk)
                    size += len(chunk)
                    if size > max_bytes:
                        raise HttpRefusal(413, f"more than {max_bytes} bytes", where="content", hint="Send less")
        except TimeoutError:
            what = f"not whole within {WHOLE_SECONDS:.0f} s"
            raise HttpRefusal(408, what, where="content", hint="Ask again") from None
        return b"".join(parts)


class UploadedRows:
    """Rows of `content`: `schema` once `begin` has returned, then the batches."""

    def __init__(self, content: Content, layout: Layout) -> None:
        self._chunks = aiter(content)
        self._reader: RowReader | None = None if layout.format == "raw" else open_reader(layout)
        self._ready: list[pa.RecordBatch] = []
        self._whole = False
        self.schema = RAW

    @property
    def rejected(self) -> Mapping[str, int]:
        """How many rows were set aside so far."""
        return {"rejected": 0 if self._reader is None else self._reader.rejected.count}

    async def begin(self) -> None:
        """Read until the schema is known."""
        if self._reader is None:
            return
        while self._reader.schema is None and not self._whole:
            await self._feed()
        if self._reader.schema is None:
            raise RequestError("there are no rows, so no columns", where="content", hint="Send a header at least")
        self.schema = self._reader.schema

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """All rows."""
        while True:
            ready, self._ready = self._ready, []
            for batch in ready:
                yield batch
            if self._whole:
                return
            await self._feed()

    async def _feed(self) -> None:
        chunk = await anext(self._chunks, None)
        self._whole = chunk is None
        if self._reader is not None:
            # In a thread: how long rows take to read is up to the client.
            self._ready += await (
                off_loop(self._reader.finish) if chunk is None else off_loop(self._reader.feed, chunk)
            )
        elif chunk is not None:
            self._ready.append(pa.record_batch([one_content(chunk)], schema=RAW))
