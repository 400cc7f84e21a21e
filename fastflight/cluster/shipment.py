"""A message with recorded rows of many devices: what a server hands over at a time. No I/O.

A message is a header, and after it a description in JSON and the rows as an Arrow stream, compressed together: the
columns `device` and `seq`, and those of the recordings. The header has a checksum of all that follows, so a reader
finds out if a message has changed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa

from fastflight.gap import Gap
from fastflight.log import LOG_SCHEMA
from fastflight.log.bodies import MAX_BODY_BYTES, joined, numbers_of

MAGIC = b"ffs2"
# The checksum of what follows: the lengths of the description and of all of the content, and the compressed content.
_HEADER, _LENGTHS = struct.Struct("<4sI"), struct.Struct("<II")
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
    """What a server hands over at a time: `rows` of `SCHEMA`, and what is missing before some of them.

    `missing` has `paused_until` and `gap` of a run, by the place of its first row.
    """

    server: str
    rows: pa.RecordBatch
    missing: Mapping[int, tuple[int, Gap | None]]


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
        if not batch.schema.equals(SCHEMA) or not batch.num_rows:
            return None
        # The number of a run is that of its device in the dictionary.
        places = np.searchsorted(batch.column(0).indices.to_numpy(), sorted({*pauses, *gaps})).tolist()
        missing = dict(zip(places, [(pauses.get(at, 0), gaps.get(at)) for at in sorted({*pauses, *gaps})], strict=True))
        return Shipment(server, batch, missing)
    except DAMAGES:
        return None  # its sender has another version, or is not a server


def _content(message: bytes) -> tuple[pa.Buffer, int]:
    """Return the content of a message, and the length of its description.

    `ValueError`, `OSError` or `struct.error` if it is damaged.
    """
    magic, checksum = _HEADER.unpack_from(message)
    rest = message[_HEADER.size :]
    if magic != MAGIC or crc32(rest) != checksum:
        raise ValueError("it has changed, or is none")
    length, size = _LENGTHS.unpack_from(rest)
    if size > MAX_CONTENT_BYTES:
        raise ValueError("it is too large")
    return pa.decompress(rest[_LENGTHS.size :], size, codec="zstd"), length


def by_device(shipments: Sequence[Shipment]) -> tuple[pa.RecordBatch, list[Run]]:
    """Return the rows of shipments of one server, sorted by their devices, and the runs in them.

    Rows of one device stay in their order. Rows that follow each other are one run, also if they came in several
    messages: the rows of many seconds cost little more than those of one.
    """
    rows = joined([each.rows for each in shipments])
    devices = rows.column(0)
    # A device with several runs in a message is in the dictionary several times.
    ids: dict[str, int] = {}
    unique = np.array([ids.setdefault(name, len(ids)) for name in devices.dictionary.to_pylist()])
    names = [*ids]
    codes, numbers = unique[devices.indices.to_numpy()], rows.column(1).to_numpy()
    order = np.argsort(codes, kind="stable")
    codes, numbers = codes[order], numbers[order]
    missing: dict[int, tuple[int, Gap | None]] = {}
    offset = 0
    for each in shipments:
        missing |= {offset + place: what for place, what in each.missing.items()}
        offset += each.rows.num_rows
    begins = (np.diff(codes, prepend=-1) != 0) | (np.diff(numbers, prepend=-1) != 1)
    begins |= np.isin(order, [*missing])
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=len(order))
    found = zip(*(each.tolist() for each in (codes[starts], numbers[starts], lengths, order[starts])), strict=True)
    runs = [Run(names[code], first, count, *missing.get(at, ())) for code, first, count, at in found]
    return pa.RecordBatch.from_arrays(rows.columns[2:], schema=LOG_SCHEMA).take(pa.array(order)), runs
