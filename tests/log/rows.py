"""Rows that say which they are, so that any row that is served can be told right from wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import pyarrow as pa

from fastflight.log import Gap, NumberedRows

SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", "UTC")),
        ("direction", pa.dictionary(pa.int8(), pa.string())),
        ("data", pa.binary()),
    ],
    {"of": "a session"},
)
PLAIN = pa.schema([("time", pa.timestamp("us", "UTC")), ("data", pa.binary())])


def time_of(seq: int) -> int:
    return seq * 1000


@lru_cache(maxsize=1024)
def batch_of(name: str, first: int, rows: int, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    numbers = range(first, first + rows)
    columns = {
        "time": pa.array([time_of(seq) for seq in numbers], pa.timestamp("us", "UTC")),
        "direction": pa.array([0 if seq % 2 else 1 for seq in numbers], pa.int8()),
        "data": pa.array([f"{name}:{seq}".encode() for seq in numbers]),
    }
    columns["direction"] = pa.DictionaryArray.from_arrays(columns["direction"], pa.array(["rx", "tx"]))
    return pa.record_batch([columns[field.name] for field in schema], schema=schema)


def checked(name: str, items: Iterable[NumberedRows | Gap], schema: pa.Schema = SCHEMA) -> Iterator[NumberedRows | Gap]:
    """`items`, every row of which is the one that its number says, and every number of which comes once, in order."""
    following = -1
    for item in items:
        assert item.first >= following and item.last >= item.first, item
        following = item.last + 1
        if isinstance(item, NumberedRows):
            assert item.batch.schema.equals(schema, check_metadata=True)
            item.batch.validate(full=True)
            same = batch_of(name, item.first, item.batch.num_rows, schema)
            assert item.batch.equals(same) or item.batch.to_pylist() == same.to_pylist()
        yield item


def numbers(items: Iterable[NumberedRows | Gap]) -> set[int]:
    """The numbers of the rows that are there."""
    return {seq for item in items if isinstance(item, NumberedRows) for seq in range(item.first, item.last + 1)}


def missing(items: Iterable[NumberedRows | Gap]) -> list[tuple[int, int, str]]:
    return [(item.first, item.last, item.why) for item in items if isinstance(item, Gap)]
