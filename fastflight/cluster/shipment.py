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

MAGIC = b"ffs1"
# Of the rest of the message: its checksum, and the length of the description.
_HEADER = struct.Struct("<4sII")
DEVICE, SEQ = pa.field("device", pa.dictionary(pa.int32(), pa.string()), False), pa.field("seq", pa.int64(), False)
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


class Run(NamedTuple):
    """Rows of one device whose numbers follow each other from `first` on.

    The numbers before them, since the device's earlier rows, are missing: those below `paused_until` were not to be
    recorded, and the others were lost.
    """

    device: str
    first: int
    rows: pa.RecordBatch
    paused_until: int = 0

    @property
    def next(self) -> int:
        """The number after its last row."""
        return self.first + int(self.rows.num_rows)


def encode(server: str, runs: Sequence[Run]) -> bytes:
    """Return the message with these runs, which a server has recorded. They have one schema."""
    rows = pa.Table.from_batches([run.rows for run in runs]).unify_dictionaries().combine_chunks()
    counts = [run.rows.num_rows for run in runs]
    codes = pa.array(np.repeat(np.arange(len(runs), dtype=np.int32), counts))
    devices = pa.DictionaryArray.from_arrays(codes, pa.array([run.device for run in runs], pa.string()))
    numbers = pa.array(np.concatenate([np.arange(run.first, run.next, dtype=np.int64) for run in runs]))
    table = rows.add_column(0, SEQ, numbers).add_column(0, DEVICE, devices)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table)
    pauses = {at: run.paused_until for at, run in enumerate(runs) if run.paused_until}
    said = json.dumps({"server": server, "pauses": pauses}).encode()
    content: bytes = said + sink.getvalue().to_pybytes()
    return _HEADER.pack(MAGIC, crc32(content), len(said)) + content


def decode(message: bytes) -> tuple[str, list[Run]] | None:
    """Return the server and the runs of a message; None if it is damaged, or not of this kind."""
    if len(message) < _HEADER.size:
        return None
    magic, checksum, length = _HEADER.unpack_from(message)
    content = message[_HEADER.size :]
    if magic != MAGIC or crc32(content) != checksum or length > len(content):
        return None
    try:
        said = json.loads(content[:length])
        server, pauses = str(said["server"]), {int(at): int(until) for at, until in said["pauses"].items()}
        batch = pa.ipc.open_stream(pa.py_buffer(content)[length:]).read_next_batch()
        return server, _runs(batch, pauses)
    except (pa.ArrowException, ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return None  # its sender has another version, or is not a server


def _runs(batch: pa.RecordBatch, pauses: dict[int, int]) -> list[Run]:
    devices, numbers = batch.column(DEVICE.name), batch.column(SEQ.name).to_numpy()
    codes, names = devices.indices.to_numpy(), devices.dictionary.to_pylist()
    rows = batch.select([name for name in batch.schema.names if name not in (DEVICE.name, SEQ.name)])
    begins = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist()]
    return [
        Run(names[codes[begin]], int(numbers[begin]), rows.slice(begin, end - begin), pauses.get(int(codes[begin]), 0))
        for begin, end in zip(begins, [*begins[1:], len(codes)], strict=True)
        if end > begin
    ]
