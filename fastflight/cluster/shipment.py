"""A message with recorded rows of many devices: what a server hands over at a time. No I/O.

A message is a header, and after it a description in JSON and the rows as an Arrow stream, compressed together: the
columns `device` and `seq`, and those of the recordings. The header has a checksum of all that follows, so a reader
finds out if a message has changed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa

from fastflight.gap import Gap
from fastflight.log import LOG_SCHEMA
from fastflight.log.bodies import MAX_BODY_BYTES, numbers_of

MAGIC = b"ffs2"
# The checksum of what follows: the lengths of the description and of all of the content, and the compressed content.
_HEADER, _LENGTHS = struct.Struct("<4sI"), struct.Struct("<II")
# Earlier messages, which may still be in NATS, had each column of the rows compressed, and no second length. For the
# few rows of a second that takes three times as long, and a half more room.
EARLIER = b"ffs1"
_EARLIER_LENGTH = struct.Struct("<I")
# Rows of one body of the log, with their devices and numbers.
MAX_CONTENT_BYTES = 4 * MAX_BODY_BYTES
# What reading a damaged message raises.
DAMAGES = (pa.ArrowException, OSError, struct.error, ValueError, LookupError, TypeError, AttributeError, StopIteration)
DEVICE, SEQ = pa.field("device", pa.dictionary(pa.int32(), pa.string()), False), pa.field("seq", pa.int64(), False)
SCHEMA = pa.schema([DEVICE, SEQ, *LOG_SCHEMA])


class Run(NamedTuple):
    """`length` rows of one device, whose numbers follow each other from `first` on.

    The numbers before them, since the device's earlier rows, are missing: those below `paused_until` are unused, and
    the others were lost. `gap` says what is missing before them.
    """

    device: str
    first: int
    length: int
    paused_until: int = 0
    gap: Gap | None = None

    @property
    def next(self) -> int:
        """The number after its last row."""
        return self.first + self.length

    def part(self, start: int, count: int) -> Run:
        """Return `count` of its rows, from its row `start` on."""
        before = () if start else (self.paused_until, self.gap)
        return Run(self.device, self.first + start, count, *before)


class Shipment(NamedTuple):
    """What a server hands over at a time: the runs of `rows`, in order."""

    server: str
    rows: pa.RecordBatch
    runs: Sequence[Run]


def encode(server: str, rows: pa.RecordBatch, runs: Sequence[Run]) -> bytes:
    """Return a message of a server with `rows` of the recordings, which are those of `runs`."""
    lengths = [run.length for run in runs]
    codes = np.repeat(np.arange(len(runs), dtype=np.int32), lengths)
    devices = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([run.device for run in runs], pa.string()))
    numbers = pa.array(numbers_of([run.first for run in runs], lengths))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([devices, numbers, *rows.columns], schema=SCHEMA))
    pauses = {at: run.paused_until for at, run in enumerate(runs) if run.paused_until}
    gaps = {at: run.gap.details() for at, run in enumerate(runs) if run.gap is not None}
    said = json.dumps({"server": server, "pauses": pauses, "gaps": gaps}).encode()
    content = said + sink.getvalue().to_pybytes()
    rest: bytes = _LENGTHS.pack(len(said), len(content)) + pa.compress(content, "zstd", asbytes=True)
    return _HEADER.pack(MAGIC, crc32(rest)) + rest


def decode(message: bytes) -> Shipment | None:
    """Return the shipment in a message; None if it is damaged, or not of this kind."""
    try:
        content, length = _content(message)
        said = json.loads(content[:length].to_pybytes())
        server, pauses = str(said["server"]), {int(at): int(until) for at, until in said["pauses"].items()}
        gaps = {int(at): Gap.of(each) for at, each in said["gaps"].items()}
        batch = pa.ipc.open_stream(content[length:]).read_next_batch()
        if not batch.schema.equals(SCHEMA):
            return None
        runs = _runs(batch, pauses, gaps)
        return Shipment(server, pa.RecordBatch.from_arrays(batch.columns[2:], schema=LOG_SCHEMA), runs)
    except DAMAGES:
        return None  # its sender has another version, or is not a server


def _content(message: bytes) -> tuple[pa.Buffer, int]:
    """Return the content of a message, and the length of its description.

    `ValueError`, `OSError` or `struct.error` if it is damaged.
    """
    magic, checksum = _HEADER.unpack_from(message)
    rest = message[_HEADER.size :]
    # That of the earlier ones did not include the length.
    checked = rest[_EARLIER_LENGTH.size :] if magic == EARLIER else rest
    if magic not in (MAGIC, EARLIER) or crc32(checked) != checksum:
        raise ValueError("it has changed, or is none")
    if magic == EARLIER:
        (length,) = _EARLIER_LENGTH.unpack_from(rest)
        return pa.py_buffer(checked), length
    length, size = _LENGTHS.unpack_from(rest)
    if size > MAX_CONTENT_BYTES:
        raise ValueError("it is too large")
    return pa.decompress(rest[_LENGTHS.size :], size, codec="zstd"), length


def _runs(batch: pa.RecordBatch, pauses: dict[int, int], gaps: dict[int, Gap]) -> list[Run]:
    devices, numbers = batch.column(0), batch.column(1).to_numpy()
    codes, names = devices.indices.to_numpy(), devices.dictionary.to_pylist()
    ends = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    return [
        Run(names[at], int(numbers[begin]), end - begin, pauses.get(at, 0), gaps.get(at))
        for begin, end in zip(ends, ends[1:], strict=False)
        for at in (int(codes[begin]),)
    ]
