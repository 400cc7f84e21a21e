from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastflight.errors import RequestError
from fastflight.tables import Layout, open_reader
from fastflight.tables.rows import MAX_ROW_BYTES
from fastflight.tables.text import SAMPLE_BYTES
from tests.support.refusals import refused

from .conftest import read_split

SCHEMA = {"id": "int64", "name": "string"}


def test_types_are_inferred(read: Any) -> None:
    seen = read(
        b"id,volts,ok,day,at,seen,name\n"
        b"1,3.5,true,2024-02-29,2024-01-01T12:00:00,2024-01-01 12:00:00Z,north\n"
        b"2,,false,,2024-01-01 12:00:01.25,2024-01-01T12:00:00+02:00,\n",
        "csv",
    )
    assert [str(field.type) for field in seen.schema] == [
        "int64", "double", "bool", "date32[day]", "timestamp[us]", "timestamp[us, tz=UTC]", "string",
    ]  # fmt: skip
    assert seen.rows[1] == {
        "id": 2,
        "volts": None,
        "ok": False,
        "day": None,
        "at": datetime(2024, 1, 1, 12, 0, 1, 250000),
        "seen": datetime(2024, 1, 1, 10, tzinfo=UTC),
        "name": None,
    }
    assert seen.rows[0]["day"] == date(2024, 2, 29)
    assert seen.count == 0


def test_bad_rows_are_rejected_with_offset_and_reason(read: Any) -> None:
    data = b"id,name\n1,a\n3\n4,d,e\n5,\xff\n6,f\rg\n7,\0\0\n8,i\n"
    seen = read(data, "csv", schema=SCHEMA)
    assert seen.rows == [{"id": 1, "name": "a"}, {"id": 8, "name": "i"}]
    assert [(row.offset, row.reason) for row in seen.rejected] == [
        (data.index(b"3\n"), "the row has 1 cells, the header has 2"),
        (data.index(b"4,"), "the row has 3 cells, the header has 2"),
        (data.index(b"5,"), "byte 2 of the row, 0xff, is not UTF-8"),
        (data.index(b"6,"), "a carriage return outside of quotes"),
        (data.index(b"7,"), "2 NUL bytes in the row"),
    ]
    assert seen.count == 5


def test_a_cell_that_does_not_fit_becomes_null_and_is_counted(read: Any) -> None:
    seen = read(b"id,name\n1,a\nx2,b\n99999999999999999999,h\nN/A,i\n 8 ,j\n", "csv", schema=SCHEMA)
    assert [row["id"] for row in seen.rows] == [1, None, None, None, 8]
    assert seen.told == {
        "rows": 5,
        "null_cells": {"id": 2},
        "null_cell_reasons": {"id": "column 'id': 'x2' is not int64"},
    }


@pytest.mark.parametrize(
    ("type_", "cell"), [("date32", "2024-01-01"), ("date64", "2024-01-01"), ("time32[s]", "10:11:12")]
)
def test_a_row_is_read_whatever_stands_beside_it(read: Any, type_: str, cell: str) -> None:
    good = f"x, {cell}\t\n".encode()
    alone = read(b"a,t\n" + good, "csv", schema={"a": "string", "t": type_})
    beside = read(b"a,t\n" + good + b"x,y,z\n", "csv", schema={"a": "string", "t": type_})
    assert beside.rows == alone.rows != []


def test_a_decimal_of_too_many_digits_is_null(read: Any) -> None:
    seen = read(b"a\n999.99\n1000\n-2154.3\n1e3\n0.01\n", "csv", schema={"a": "decimal128(5, 2)"})
    assert [row["a"] for row in seen.rows] == [Decimal("999.99"), None, None, None, Decimal("0.01")]
    assert seen.told["null_cell_reasons"] == {"a": "column 'a': '1000' is not decimal128(5, 2)"}


def test_fail_raises_what_skip_sets_aside(read: Any) -> None:
    seen = read(b"id,name\n1,a\nx2,b\n", "csv", schema=SCHEMA, on_error="fail")
    assert seen.error[0] == "data"
    assert seen.error[1].startswith("byte 12: column 'id': 'x2' is not int64. ")


def test_the_tail_without_a_line_feed_waits_for_the_end() -> None:
    reader = open_reader(Layout("csv", schema={"a": "int64", "b": "double"}))
    assert reader.feed(b"a,b\n1,2.5\n3,4.")[0].to_pylist() == [{"a": 1, "b": 2.5}]
    assert reader.feed(b"75")[:] == []
    assert reader.finish()[0].to_pylist() == [{"a": 3, "b": 4.75}]


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"", []),
        (b"\n\r\n", []),
        (b"id,name", []),
        (b"id,name\n", []),
        (b"\xef\xbb\xbfid,name\r\n1,a\r\n", [(1, "a")]),
        (b'\n"id","name"\n1,"a\nb,""c"""\n', [(1, 'a\nb,"c"')]),
        (b'id,name\n1,\n2,""\n', [(1, None), (2, "")]),
        (b'id,name\n1,5" pipe\n2,7"\n', [(1, '5" pipe'), (2, '7"')]),
        (b"id,name\n\n1,a\n\n\n2,b\n\n", [(1, "a"), (2, "b")]),
        (b'id,name\n1,"a\rb"\n2,5" x\n', [(1, "a\rb"), (2, '5" x')]),
        (b'id,name\n1,"a\x00b"\n', [(1, "a\x00b")]),
        (b"id,name\n1,\xef\xbb\xbfa\n\xef\xbb\xbf2,b\n", [(1, "\ufeffa"), (None, "b")]),
        (b"name,other,id\na,zz,1\n", [(1, "a")]),
        (b"id\tname\n1\ta,b\n", [(1, "a,b")]),
        (b"id;name\n1;a,b\n", [(1, "a,b")]),
    ],
)
def test_dialects(read: Any, data: bytes, rows: list[tuple[Any, ...]]) -> None:
    seen = read(data, "csv", schema=SCHEMA)
    assert [tuple(row.values()) for row in seen.rows] == rows
    assert seen.schema.names == ["id", "name"]


def test_an_unclosed_quote_costs_its_line_only(read: Any) -> None:
    data = b'id,name\n1,a\n2,"b\n3,c\n4,d\n'
    seen = read(data, "csv", schema=SCHEMA)
    assert [row["id"] for row in seen.rows] == [1, 3, 4]
    assert [(row.offset, row.reason) for row in seen.rejected] == [(12, "a quote is not closed before the file ends")]


def test_an_endless_line_is_skipped_and_not_kept(read: Any) -> None:
    reader = open_reader(Layout("csv", schema=SCHEMA))
    assert reader.feed(b"id,name\n1,a\n2,")[0].num_rows == 1
    for _ in range(64):
        assert reader.feed(b"x" * MAX_ROW_BYTES) == []
    assert len(reader._stream._splitter._pending) == 0
    assert reader.feed(b"\n3,c\n")[0].to_pylist() == [{"id": 3, "name": "c"}]
    assert [row.reason for row in reader.summary.rejected_rows] == ["the row is longer than 1048576 bytes"]
    longest = b"4," + b"y" * (MAX_ROW_BYTES - 2)
    assert read(b"id,name\n" + longest + b"\n", "csv", schema=SCHEMA).count == 0
    assert read(b"id,name\n" + longest + b"y\n5,e\n", "csv", schema=SCHEMA).count == 1


def test_columns_are_kept_in_the_order_asked_for(read: Any) -> None:
    seen = read(b"a,b,c\n1,2,3\n", "csv", columns=("c", "a"))
    assert seen.rows == [{"c": 3, "a": 1}]
    seen = read(b"alpha,beta\n1,2\n", "csv", columns=("alpa",))
    assert seen.error == ("request", "columns: no column is named 'alpa'. Did you mean 'alpha'? Known: alpha, beta")


def test_an_explicit_schema_is_matched_by_name(read: Any) -> None:
    seen = read(b"id,nam\n1,a\n", "csv", schema=SCHEMA)
    assert seen.error == ("data", "header: the file has no column 'name'. Did you mean 'nam'? Known: id, nam")
    with refused(RequestError, where="schema.x"):
        open_reader(Layout("csv", schema={"x": "list<int64>"}))


def test_files_without_rows(read: Any) -> None:
    assert read(b"", "csv").schema == pa.schema([])
    assert read(b"a,b\r\n", "csv").schema == pa.schema([("a", pa.null()), ("b", pa.null())])
    assert read(b"a,b\r\n", "csv", infer="sample").schema == pa.schema([("a", pa.string()), ("b", pa.string())])


@pytest.mark.parametrize(
    ("rows", "sampled", "type_"),
    [
        (10, 5000, pa.int64()),  # the fraction is beyond 4 KiB and ten rows
        (10, 1000, pa.float64()),  # it is within 4 KiB, which is read anyway
        (4000, 5000, pa.float64()),  # it is within the rows that are wanted
        (10**6, SAMPLE_BYTES // 2, pa.int64()),  # the sample never grows beyond its size
    ],
)
def test_a_sample_is_as_small_as_the_rows_that_are_wanted(read: Any, rows: int, sampled: int, type_: Any) -> None:
    data = b"a\n" + b"1\n" * (sampled // 2 if rows < 10**6 else SAMPLE_BYTES) + b"2.5\n" + b"3\n" * SAMPLE_BYTES
    seen = read(data, "csv", infer="sample", sample_rows=rows)
    assert seen.schema == pa.schema([("a", type_)])
    assert len(seen.rows) == data.count(b"\n") - 1


@pytest.mark.parametrize("format_", ["csv", "jsonl"])
def test_wanted_rows_come_when_their_bytes_have(format_: str) -> None:
    lines = [b"a,b\n", *(b"%d,text\n" % n for n in range(9000))]
    if format_ == "jsonl":
        lines = [b'{"a": %d, "b": "text"}\n' % n for n in range(9000)]
    reader = open_reader(Layout(format_, infer="sample", sample_rows=10))
    taken, rows = 0, 0
    while not rows:
        rows += sum(batch.num_rows for batch in reader.feed(lines[taken]))
        taken += 1
    assert rows >= 10 and sum(map(len, lines[:taken])) < 4200


def test_a_sample_decides_the_types_if_asked(read: Any) -> None:
    data = b"a,b\n" + b"1,\n" * (SAMPLE_BYTES // 3) + b"2.5,x\n"
    seen = read(data, "csv", infer="sample")
    assert seen.schema == pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert seen.rows[-1] == {"a": None, "b": "x"}
    assert seen.told["null_cells"] == {"a": 1}
    assert read(data, "csv").schema == pa.schema([("a", pa.float64()), ("b", pa.string())])


CELL = st.sampled_from(
    ["", "1", "-7", "2.5", "nan", "0x1F", "true", "2024-01-01", "2024-01-01T00:00:00Z", '"', '""', '"a,b"', '"x\ny"']
    + ["a", "é", " 1 ", "\r", "1e5", "99999999999999999999", "nan(1)", "\ufeff", "\x00", "+5", "007", "Infinity", "1_0"]
)
TEXT = st.lists(st.lists(CELL, min_size=1, max_size=4).map(",".join), max_size=8).map(
    lambda rows: "\n".join(["a,b,c", *rows]).encode()
)
TYPES = st.sampled_from(["int64", "double", "string", "bool", "timestamp[us]", "timestamp[us, UTC]", "date32", "uint8"])


@settings(max_examples=75, deadline=None)
@given(
    TEXT,
    st.lists(st.integers(0, 60), max_size=5),
    st.tuples(TYPES, TYPES) | st.none(),
    st.sampled_from(["skip", "fail"]),
)
@example(b'a,b,c\n"1"\r\n,,"', [], None, "skip")
def test_any_split_gives_the_same(data: bytes, cuts: list[int], types: Any, on_error: str) -> None:
    read_split(data, "csv", cuts, schema=types and dict(zip("ab", types, strict=True)), on_error=on_error)


@settings(max_examples=75, deadline=None)
@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=5))
def test_garbage_raises_only_documented_errors(read: Any, data: bytes, cuts: list[int]) -> None:
    read(data, "csv", cuts)
    read(b"a,b\n" + data, "csv", cuts, schema={"b": "int64", "a": "string"})


def test_quotes_everywhere_are_scanned_as_one_by_one(read: Any) -> None:
    rows = b"".join(b'"%d","say ""%d"" and\n""go"""\n' % (number, number) for number in range(60))
    seen = read(b'"id","name"\n' + rows + b'61,5"\n' + rows, "csv", schema={"id": "string", "name": "string"})
    assert len(seen.rows) == 121
    assert seen.rows[7] == {"id": "7", "name": 'say "7" and\n"go"'}
