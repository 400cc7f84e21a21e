"""Rows as the bytes of an answer: what a format must not lose."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet

from fastflight.gateway.content.formats import LinesEncoder, ParquetEncoder
from fastflight.tables.bare import empty


def test_rows_without_any_value_are_rows_in_parquet_too() -> None:
    schema = pa.schema([("nothing", pa.null())])
    encoder = ParquetEncoder(schema)
    rows = pa.record_batch([pa.nulls(3)], schema=schema)
    assert rows.nbytes == 0
    written = [encoder.begin(), encoder.encode(empty(schema), None), encoder.encode(rows, None), encoder.finish({})]
    assert pyarrow.parquet.read_table(io.BytesIO(b"".join(written))).num_rows == 3


def test_a_parquet_file_has_no_metadata_of_the_stream() -> None:
    encoder = ParquetEncoder(pa.schema([("n", pa.int64())], {"fastflight.path": "sync"}))
    written = [encoder.begin(), encoder.finish({})]
    assert pyarrow.parquet.read_schema(io.BytesIO(b"".join(written))).metadata is None


def test_a_text_that_is_null_is_an_empty_line() -> None:
    schema = pa.schema([("text", pa.string())])
    lines = LinesEncoder(schema).encode(pa.record_batch([pa.array(["None", None, "", "a"])], schema=schema), None)
    assert lines == b"None\n\n\na\n"
