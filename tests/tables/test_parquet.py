"""Parquet files in row groups of a useful size."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastflight.errors import DataError
from fastflight.tables import parquet
from fastflight.tables.parquet import RowGroupWriter

SCHEMA = pa.schema([("n", pa.int64())])


def batch(first: int, rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(first, first + rows), pa.int64())], SCHEMA)


def test_small_batches_share_a_row_group() -> None:
    file = io.BytesIO()
    writer = RowGroupWriter(file, SCHEMA)
    for first in range(0, 1000, 10):
        writer.write(batch(first, 10))
        writer.write(batch(first, 0))
    writer.close()
    file.seek(0)
    read = pq.ParquetFile(file)
    assert read.num_row_groups == 1
    assert read.read().column("n").to_pylist() == list(range(1000))


def test_a_row_group_is_written_when_it_is_large_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 800)
    file = io.BytesIO()
    writer = RowGroupWriter(file, SCHEMA)
    for first in range(0, 250, 50):
        writer.write(batch(first, 50))
    writer.close()
    file.seek(0)
    groups = pq.ParquetFile(file).metadata
    assert [groups.row_group(number).num_rows for number in range(groups.num_row_groups)] == [100, 100, 50]


def test_without_rows_there_is_a_file_with_the_schema() -> None:
    file = io.BytesIO()
    RowGroupWriter(file, SCHEMA).close()
    file.seek(0)
    assert pq.read_table(file).schema.equals(SCHEMA, check_metadata=True)


def test_columns_that_parquet_cannot_hold_are_named() -> None:
    with pytest.raises(DataError, match="parquet cannot hold these columns"):
        RowGroupWriter(io.BytesIO(), pa.schema([("empty", pa.struct([]))]))
