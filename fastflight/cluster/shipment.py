"""A message with recorded rows of many devices: what a server hands over at a time. No I/O.

A message is a header, a description in JSON, and the rows as an Arrow stream: the columns `device` and `seq`, and those
of the recordings. The header has a checksum of all that follows, so a reader finds out if a message has changed.
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
from fastflight.log.bodies import numbers_of

MAGIC = b"ffs1"
# Of the rest of the message: its checksum, and the length of the description.
_HEADER = struct.Struct("<4sII")
DEVICE, SEQ = pa.field("device", pa.dictionary(pa.int32(), pa.string()), False), pa.field("seq", pa.int64(), False)
SCHEMA = pa.schema([DEVICE, SEQ, *LOG_SCHEMA])
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


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
    with pa.ipc.new_stream(sink, SCHEMA, options=_COMPRESSED) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([devices, numbers, *rows.columns], schema=SCHEMA))
    pauses = {at: run.paused_until for at, run in enumerate(runs) if run.paused_until}
    gaps = {at: run.gap.details() for at, run in enumerate(runs) if run.gap is not None}
    said = json.dumps({"server": server, "pauses": pauses, "gaps": gaps}).encode()
    content: bytes = said + sink.getvalue().to_pybytes()
    return _HEADER.pack(MAGIC, crc32(content), len(said)) + content


def decode(message: bytes) -> Shipment | None:
    """Return the shipment in a message; None if it is damaged, or not of this kind."""
    if len(message) < _HEADER.size:
        return None
    magic, checksum, length = _HEADER.unpack_from(message)
    content = message[_HEADER.size :]
    if magic != MAGIC or crc32(content) != checksum or length > len(content):
        return None
    try:
        said = json.loads(content[:length])
        server, pauses = str(said["server"]), {int(at): int(until) for at, until in said["pauses"].items()}
        gaps = {int(at): Gap.of(each) for at, each in said["gaps"].items()}
        batch = pa.ipc.open_stream(pa.py_buffer(content)[length:]).read_next_batch()
        if not batch.schema.equals(SCHEMA):
            return None
        runs = _runs(batch, pauses, gaps)
        return Shipment(server, pa.RecordBatch.from_arrays(batch.columns[2:], schema=LOG_SCHEMA), runs)
    except (pa.ArrowException, ValueError, KeyError, TypeError, AttributeError, IndexError, StopIteration):
        return None  # its sender has another version, or is not a server


def _runs(batch: pa.RecordBatch, pauses: dict[int, int], gaps: dict[int, Gap]) -> list[Run]:
    devices, numbers = batch.column(0), batch.column(1).to_numpy()
    codes, names = devices.indices.to_numpy(), devices.dictionary.to_pylist()
    ends = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    return [
        Run(names[at], int(numbers[begin]), end - begin, pauses.get(at, 0), gaps.get(at))
        for begin, end in zip(ends, ends[1:], strict=False)
        for at in (int(codes[begin]),)
    ]
