"""Rows as PlotJuggler takes them: a JSON object with a time and the columns of a device, for each row. No I/O."""

from __future__ import annotations

import json

import pyarrow as pa

from fastflight.tables import Layout, open_writer


def plot_messages(device: str, rows: pa.RecordBatch) -> list[str]:
    """Return `{"timestamp": seconds since 1970, device: {column: value, ...}}` for each row whose time is known.

    PlotJuggler names the columns `DEVICE/COLUMN`. `rows` have the column `time`, which is not among the values.
    """
    columns = [name for name in rows.schema.names if name not in ("seq", "line", "time")]
    values = rows.select(columns)
    writer = open_writer(Layout("jsonl", bytes_as="base64"), values.schema)
    texts = writer.encode(values).decode().splitlines()
    times = rows.column("time").cast(pa.int64()).to_pylist()
    name = json.dumps(device)
    return [
        f'{{"timestamp": {microseconds / 1e6:.6f}, {name}: {text}}}'
        for microseconds, text in zip(times, texts, strict=True)
        if microseconds is not None
    ]
