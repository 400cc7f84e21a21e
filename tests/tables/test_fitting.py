"""Rows that do not fit a schema: found with few calls of pyarrow's readers, and no other rows with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pytest

from fastflight.tables import Layout, open_reader

from .conftest import read_whole

TYPES = [
    "bool", "int8", "int64", "uint8", "uint64", "float", "double", "string", "null", "date32", "date64",
    "timestamp[s]", "timestamp[ms]", "timestamp[ns]", "timestamp[us, UTC]", "time32[s]", "time64[us]", "duration[s]",
    "decimal128(3, 1)", "decimal128(5, 0)", "decimal128(3, -2)", "decimal128(9, 2)",
]  # fmt: skip
# A type of each column that does not fit what is in the file.
WRONG = ["timestamp[s]", "bool", "date32", "date64", "duration[s]", "decimal128(3, 2)", "int64", "int8", "time32[s]"]
CELLS = """0 00 1 -1 +1 -0 0x10 127 128 255 256 1.5 20.00 0.10 .5 5. 100 1000 99.9 99.95 100.0 1e1 1e2 1e3 1e-1 1.e1
0.E10 1e400 nan NaN inf -inf Infinity true True TRUE tRue false x 9223372036854775807 9223372036854775808
18446744073709551616 2024-01-01
2024-02-30 2024-1-1 9999-12-31 1600-01-01T00:00:00 2024-01-01T00:00:00 2024-01-01T00:00:00Z
2024-01-01T00:00 2024-01-01T00 2024-01-01T00:00:00.5 2024-01-01T00:00:00.123456789 2024-01-01T00:00:00+01:00
2024-01-01T24:00:00 00:00 10:11:12 10:11:12. 10:11:12.5 10:11:12.123456 24:00:00 23:59:60 20240101 12
1_000 1,5""".split()
VALUES = [
    "null", "true", "0", "-1", "128", "1.0", "1.5", "20.00", "1e2", "1e400", "NaN", "Infinity", "9223372036854775808",
    '"x"', '""', '"1"', '"1.5"', '"true"', '"2024-01-01"', '"2024-01-01T00:00:00"', '"2024-01-01T10:00:00"',
    '"2024-01-01T00:00:00Z"', '"2024-01-01T01:00:00+01:00"', '"2024-01-01 00:00:00.5"', '" 2024-01-01"',
    "[]", "[1]", "[1.5]", '["x"]', "[null]", "{}", '{"a":1}', '{"a":"x"}', '{"b":1}', '{"a":{"b":true}}',
]  # fmt: skip


def accepted(layout: Layout, data: bytes) -> list[str]:
    """The values that are read, as text; times as numbers, which may be beyond Python's."""
    reader = open_reader(layout)
    columns = [batch.column(0) for batch in reader.feed(data) + reader.finish()]
    width = columns[0].type.bit_width if columns and pa.types.is_temporal(columns[0].type) else 0
    columns = [column.cast(f"int{width}") if width else column for column in columns]
    return [repr(value) for column in columns for value in column.to_pylist()]


class Calls:
    """Counts the calls of pyarrow's readers."""

    def __init__(self) -> None:
        self.count = 0

    def counted(self, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            self.count += 1
            return function(*arguments)

        return call


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    calls = Calls()
    monkeypatch.setattr(pyarrow.csv, "read_csv", calls.counted(pyarrow.csv.read_csv))
    monkeypatch.setattr(pyarrow.json, "read_json", calls.counted(pyarrow.json.read_json))
    yield calls


@pytest.mark.parametrize("type_", TYPES)
def test_a_cell_is_read_whatever_stands_beside_it(type_: str) -> None:
    cells = [cell for cell in (*CELLS, *(f" {cell}\t" for cell in CELLS)) if "," not in cell]
    layout = Layout("csv", schema={"c": type_})
    alone = [accepted(layout, f"c\n{cell}\n".encode()) for cell in cells]
    together = accepted(layout, ("c\n" + "".join(f"{cell}\n" for cell in cells)).encode())
    assert together == [value for values in alone for value in values]


@pytest.mark.parametrize(
    "type_", [type_ for type_ in TYPES if "time32" not in type_ and "time64" not in type_ and "duration" not in type_]
    + ["list<int64>", "list<timestamp[s]>", "list<date32>", "struct<a: int64>", "struct<a: struct<b: bool>>"],
)  # fmt: skip
def test_a_value_is_read_whatever_stands_beside_it(type_: str) -> None:
    layout = Layout("jsonl", schema={"c": type_})
    rows = [f'{{"c":{value}}}\n'.encode() for value in VALUES]
    alone = [accepted(layout, row) for row in rows]
    assert accepted(layout, b"".join(rows)) == [value for values in alone for value in values]


@pytest.mark.parametrize("type_", WRONG)
def test_a_csv_file_of_which_nothing_fits_takes_few_reads(calls: Calls, type_: str) -> None:
    lines = "".join(f"2024-01-01T00:00:{row % 60:02d},{20 + row / 100:.2f},{row}\n" for row in range(3000))
    data = f"time,temperature,n\n{lines}".encode()
    reader = open_reader(Layout("csv", schema={"temperature": type_}))
    before = calls.count
    assert reader.feed(data) + reader.finish() == []
    assert reader.summary.rejected == 3000
    assert (
        reader.summary.rejected_rows[0].reason == f"column 'temperature': '20.00' is not {reader.schema.field(0).type}"
    )
    assert calls.count - before < 10


@pytest.mark.parametrize(
    "type_", [*(type_ for type_ in WRONG if type_ not in ("duration[s]", "time32[s]")), "list<bool>"]
)
def test_a_json_file_of_which_nothing_fits_takes_few_reads(calls: Calls, type_: str) -> None:
    data = "".join(f'{{"temperature":{20 + row / 100:.2f},"n":{row}}}\n' for row in range(3000)).encode()
    reader = open_reader(Layout("jsonl", schema={"temperature": type_}))
    before = calls.count
    assert reader.feed(data) + reader.finish() == []
    assert reader.summary.rejected == 3000
    assert reader.summary.rejected_rows[0].reason == f"column 'temperature': 20.0 is not {reader.schema.field(0).type}"
    assert calls.count - before < 10


@pytest.mark.parametrize("row", [b'{"c":["x"]}\n', b'{"c":[],"c":[]}\n'])
def test_what_only_pyarrow_can_refuse_takes_a_read_each(calls: Calls, row: bytes) -> None:
    reader = open_reader(Layout("jsonl", schema={"c": "list<timestamp[s]>"}))
    before = calls.count
    assert reader.feed(row * 1000) + reader.finish() == []
    assert reader.summary.rejected == 1000
    assert calls.count - before < 1200


def test_packed_records_that_do_not_fit_are_found_among_others() -> None:
    values = [300 if row % 3 else row % 200 for row in range(6000)]
    data = b"".join(value.to_bytes(2, "little") for value in values)
    read = read_whole(Layout("packed", schema={"n": "uint8"}, record="<H"), [data])
    assert [row["n"] for row in read.rows] == [value for value in values if value < 256]
    assert read.count == 4000
    assert [row.offset for row in read.rejected[:3]] == [2, 4, 8]
    assert read.reasons[0] == "column 'n': 300 is not uint8"
