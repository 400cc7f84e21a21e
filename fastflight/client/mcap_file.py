"""Writes rows as an MCAP file, which Foxglove, Lichtblick, PlotJuggler and Rerun open.

Each row is a JSON message, with the values of a JSON lines file. Its time is that of the column `time`, or else of the
first column of times. MCAP has no messages without a time: a row whose time is null gets that of the row before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import BinaryIO

import pyarrow as pa

from fastflight.errors import DataError
from fastflight.extras import needs
from fastflight.tables import Layout, open_writer
from fastflight.tables.endings import MCAP

# The column that becomes the number of a message, of 32 bits.
NUMBER, NUMBERS = "seq", 2**32


class McapWriter:
    """Writes batches to `sink`, which it does not close, as messages of one topic. `close` completes the file."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema, topic: str) -> None:
        """`DataError` if `schema` has no column of times, `RequestError` if the package mcap is missing."""
        self._time = _time_column(schema)
        self._rows = open_writer(Layout("jsonl"), schema)
        with needs("mcap", f"a file that ends in {MCAP}"):
            from mcap.writer import Writer
        self._writer = Writer(sink)
        self._writer.start(library="fastflight")
        described = json.dumps({"type": "object", "properties": {each.name: _described(each.type) for each in schema}})
        kind = self._writer.register_schema("row", "jsonschema", described.encode())
        self._channel = self._writer.register_channel(topic, "json", kind)
        self._newest = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a message for each row."""
        times = batch.column(self._time).cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_pylist()
        numbers = batch.column(NUMBER).to_pylist() if NUMBER in batch.schema.names else [0] * batch.num_rows
        messages = self._rows.encode(batch).splitlines()
        for message, time_ns, number in zip(messages, times, numbers, strict=True):
            self._newest = self._newest if time_ns is None else time_ns
            self._writer.add_message(self._channel, self._newest, message, self._newest, (number or 0) % NUMBERS)

    def add_metadata(self, metadata: Mapping[str, str]) -> None:
        """Add a record of metadata for each key."""
        for name, value in metadata.items():
            self._writer.add_metadata(name, {name: value})

    def close(self) -> None:
        """Write the index at the end of the file."""
        self._writer.finish()  # type: ignore[no-untyped-call]


def _time_column(schema: pa.Schema) -> str:
    times = [each.name for each in schema if pa.types.is_timestamp(each.type)]
    if not times:
        raise DataError(
            f"a {MCAP} file needs a column of times, and there is none",
            hint="Use .parquet, or give a schema in which a column is a timestamp",
        )
    return "time" if "time" in times else times[0]


def _described(type_: pa.DataType) -> dict[str, str]:
    """Return the JSON schema of the values of a column."""
    if pa.types.is_boolean(type_):
        return {"type": "boolean"}
    if pa.types.is_integer(type_):
        return {"type": "integer"}
    if pa.types.is_floating(type_):
        return {"type": "number"}
    if pa.types.is_list(type_):
        return {"type": "array"}
    return {"type": "object" if pa.types.is_struct(type_) or pa.types.is_map(type_) else "string"}
