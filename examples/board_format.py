"""A board's own binary format: records of different lengths in a file of the board.

A record has a kind (one byte), a length (one byte) and the content: `T` a float, `E` the text of an event. The source
reads the file through the server that serves it, which owns the board.

    fastflight serve --device logger=/dev/ttyACM0 --source board_format:BOARD_LOG
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

from fastflight import FastFlightClient, Source, SourceRequest
from fastflight.errors import DataError

SCHEMA = pa.schema([("offset", pa.int64()), ("celsius", pa.float32()), ("event", pa.string())])


class BoardLogRequest(SourceRequest):
    """The records of a file on a device."""

    type = "board.log"
    device: str
    path: str = "/log.rec"


def records(data: bytes, start: int) -> tuple[list[dict[str, object]], int]:
    """Return the whole records in `data`, which begins at the offset `start` of the file, and the bytes they take."""
    rows: list[dict[str, object]] = []
    at = 0
    while len(data) >= at + 2 and len(data) >= at + 2 + data[at + 1]:
        kind, content = data[at : at + 1], data[at + 2 : at + 2 + data[at + 1]]
        if kind == b"T" and len(content) == 4:
            rows.append({"offset": start + at, "celsius": struct.unpack("<f", content)[0]})
        elif kind == b"E":
            rows.append({"offset": start + at, "event": content.decode(errors="replace")})
        else:
            raise DataError(f"no record begins with {kind!r}", where=f"offset {start + at}")
        at += 2 + len(content)
    return rows, at


def read(request: BoardLogRequest) -> Iterator[pa.RecordBatch]:
    rest, offset = b"", 0
    with FastFlightClient() as client:
        for batch in client.read(request.device, request.path, format="raw"):
            rest += b"".join(batch.column("data").to_pylist())
            rows, used = records(rest, offset)
            rest, offset = rest[used:], offset + used
            yield pa.RecordBatch.from_pylist(rows, SCHEMA)
    if rest:
        raise DataError("the last record is cut off", where=f"offset {offset}")


BOARD_LOG = Source(BoardLogRequest, read=read, describe=lambda request: SCHEMA)
