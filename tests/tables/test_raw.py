from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from fastflight.errors import DataError, RequestError
from fastflight.tables import Layout, open_reader, open_writer


def test_rows_stand_at_multiples_of_their_size(read: Any) -> None:
    data = bytes(range(256)) * 600
    seen = read(data, "raw", [1, 16383, 16385])
    expected = [(start, min(16384, len(data) - start)) for start in range(0, len(data), 16384)]
    assert [(row["offset"], len(row["data"])) for row in seen.rows] == expected
    assert b"".join(row["data"] for row in seen.rows) == data
    assert read(b"", "raw").rows == []
    assert read(b"ab", "raw", columns=("data",)).rows == [{"data": b"ab"}]


def test_rows_of_a_part_say_where_in_the_file_they_belong(read: Any) -> None:
    seen = read(bytes(40_000), "raw", offset=100)
    assert [row["offset"] for row in seen.rows] == [100, 16484, 32868]
    writer = open_writer(Layout("raw", offset=100), pa.schema([("offset", pa.int64()), ("data", pa.binary())]))
    assert writer.encode(pa.record_batch([[100, 101], [b"a", b"b"]], ["offset", "data"])) == b"ab"
    with pytest.raises(DataError, match="a row has offset 0, the rows before it end at 102"):
        writer.encode(pa.record_batch([[0], [b"c"]], ["offset", "data"]))


def test_writing_joins_the_data(write: Any) -> None:
    table = pa.table({"offset": [0, 3, 3, 5], "data": [b"abc", b"", b"de", b"f"]})
    assert write(table, "raw") == b"abcdef"
    assert write(table.select(["data"]), "raw") == b"abcdef"
    with pytest.raises(DataError, match="column offset: a row has offset 3, the rows before it end at 0"):
        write(table.slice(1), "raw")


@pytest.mark.parametrize(
    "schema",
    [pa.schema([("text", pa.string())]), pa.schema([("data", pa.string())]), pa.schema([("offset", pa.int64())])],
)
def test_tables_that_are_not_raw(schema: pa.Schema) -> None:
    with pytest.raises(DataError, match="raw needs a column data of type binary"):
        open_writer(Layout("raw"), schema)


def test_layouts_that_can_not_be() -> None:
    with pytest.raises(RequestError, match="columns: no column is named 'dat'. Did you mean 'data'"):
        open_reader(Layout("raw", columns=("dat",)))
    with pytest.raises(RequestError, match="raw rows have a schema of their own"):
        open_reader(Layout("raw", schema={"data": "binary"}))
    with pytest.raises(DataError, match="a row has no data"):
        open_writer(Layout("raw"), pa.schema([("data", pa.binary())])).encode(
            pa.record_batch([pa.array([None], pa.binary())], ["data"])
        )
