from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastflight.errors import RequestError
from fastflight.tables import Layout, open_reader
from fastflight.tables.jsonl import VALUES_PER_BYTE
from fastflight.tables.rows import MAX_ROW_BYTES
from fastflight.tables.schemas import MAX_LIST_VALUES
from fastflight.tables.text import INFERENCE_ROWS
from tests.support.refusals import refused


def test_types_are_inferred(read: Any) -> None:
    seen = read(
        b'{"i":1,"f":1,"s":"x","t":"2024-01-01T00:00:00Z","d":"2024-01-01","l":[1,2],"o":{"x":1,"y":[true]}}\n'
        b'{"i":null,"f":1.5,"n":null,"o":{"z":"q"}}\n',
        "jsonl",
    )
    assert {field.name: str(field.type) for field in seen.schema} == {
        "i": "int64",
        "f": "double",
        "s": "string",
        "t": "timestamp[us, tz=UTC]",
        "d": "date32[day]",
        "l": "list<item: int64>",
        "o": "struct<x: int64, y: list<item: bool>, z: string>",
        "n": "string",
    }
    assert seen.rows[0]["t"] == datetime(2024, 1, 1, tzinfo=UTC)
    assert seen.rows[0]["d"] == date(2024, 1, 1)
    assert seen.rows[1]["o"] == {"x": None, "y": None, "z": "q"}


def test_values_that_do_not_agree_are_kept_as_json_text(read: Any) -> None:
    seen = read(b'{"v":1}\n{"v":"a"}\n{"v":{"x":[1,"\xc3\xa9"]}}\n{"v":[1,"x"]}\n{"v":null}\n', "jsonl")
    assert [row["v"] for row in seen.rows] == ["1", "a", '{"x":[1,"é"]}', '[1,"x"]', None]
    seen = read(b'{"v":[1,"x"]}\n{"v":[{"a":1},{"a":"b"}]}\n', "jsonl")
    assert [row["v"] for row in seen.rows] == ['[1,"x"]', '[{"a":1},{"a":"b"}]']
    assert seen.count == 0


def test_bad_rows_are_set_aside_with_offset_and_reason(read: Any) -> None:
    lines = [
        b'{"a":1}', b"", b"{'a': 2}", b'{"a":1}{"a":2}', b'{"a":', b"3}", b"[4]", b'{"a":"five"}', b'{"a":6.5}',
        b'{"a":"\xff"}', b'{"a":1,"a":2}', b'{"b":"\\ud800"}', b' {"a":9, "zz":[1]} \r', b'{"a":10}',
    ]  # fmt: skip
    data = b"\n".join(lines)
    seen = read(data, "jsonl", schema={"a": "int64", "b": "string"})
    assert [row["a"] for row in seen.rows] == [1, 9, 10]
    assert seen.reasons == [
        "not JSON: Expecting property name enclosed in double quotes at character 1 of \"{'a': 2}\"",
        'not JSON: Extra data at character 7 of \'{"a":1}{"a":2}\'',
        "'{\"a\":' is not a JSON object",
        "'3}' is not a JSON object",
        "'[4]' is not a JSON object",
        "column 'a': 'five' is not int64",
        "column 'a': 6.5 is not int64",
        "byte 6 of the row, 0xff, is not UTF-8",
        "the key 'a' occurs twice",
        "not JSON: The surrogate pair in string is invalid.",
    ]
    starts = [sum(len(line) + 1 for line in lines[:index]) for index in range(len(lines))]
    assert [row.offset for row in seen.rejected] == starts[2:12]
    failed = read(data, "jsonl", schema={"a": "int64"}, on_error="fail")
    assert failed.error[1].startswith(f"byte {data.index(lines[2])}: not JSON")


def test_a_decimal_of_too_many_digits_is_set_aside_wherever_it_is(read: Any) -> None:
    data = b'{"a":"999.99"}\n{"a":"1000"}\n{"b":["1.5"]}\n{"b":["10"]}\n'
    seen = read(data, "jsonl", schema={"a": "decimal128(5, 2)", "b": "list<decimal128(2, 1)>"})
    assert seen.rows == [{"a": Decimal("999.99"), "b": None}, {"a": None, "b": [Decimal("1.5")]}]
    assert seen.reasons[0] == "column 'a': '1000' is not decimal128(5, 2)"
    assert seen.reasons[1].startswith("column 'b': ['10'] is not list<")


def test_times_follow_the_schema(read: Any) -> None:
    data = b'{"t":"2024-01-01 00:00:00.5"}\n{"t":"2024-01-01T01:00:00+01:00"}\n'
    seen = read(data, "jsonl", schema={"t": "timestamp[us, UTC]"})
    assert [row["t"].isoformat() for row in seen.rows] == [
        "2024-01-01T00:00:00.500000+00:00",
        "2024-01-01T00:00:00+00:00",
    ]


@pytest.mark.parametrize("type_", ["date32", "date64"])
def test_a_time_of_day_is_never_cut_off_a_date(read: Any, type_: str) -> None:
    seen = read(b'{"d":"2024-01-01"}\n{"d":null}\n{"d":"2024-01-02T10:11:12"}\n', "jsonl", schema={"d": type_})
    assert [row["d"] for row in seen.rows] == [date(2024, 1, 1), None]
    assert [row.offset for row in seen.rejected] == [30]


def test_columns_and_unreadable_types(read: Any) -> None:
    assert read(b'{"a":1,"b":2}\n', "jsonl", columns=("b",)).rows == [{"b": 2}]
    assert read(b'{"abc":1}\n', "jsonl", columns=("abd",)).error[0] == "request"
    for name in ("binary", "time32[s]", "duration[s]"):
        with refused(RequestError, where="schema.x"):
            open_reader(Layout("jsonl", schema={"x": name}))


def test_files_without_rows(read: Any) -> None:
    assert read(b"", "jsonl").schema == pa.schema([])
    assert read(b"\n\n", "jsonl", schema={"a": "int64"}).schema == pa.schema([("a", pa.int64())])
    assert read(b'\xef\xbb\xbf{"a":1}', "jsonl").rows == [{"a": 1}]


LATE = b'{"a":1,"o":{"x":1}}\n' * INFERENCE_ROWS


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b'{"a":1,"b":2}\n', "the key 'b' occurs in none of the first rows"),
        (b'{"o":{"x":1,"y":2}}\n', "a key within it occurs in none of the first rows"),
    ],
)
@pytest.mark.parametrize("more", [0, 30])
def test_a_key_that_has_no_column_is_left_out_or_fails(read: Any, row: bytes, reason: str, more: int) -> None:
    data = LATE + row + b'{"a":1}\n' * more
    seen = read(data, "jsonl")
    assert (len(seen.rows), seen.count) == (INFERENCE_ROWS + 1 + more, 0)
    assert read(data, "jsonl", on_error="fail").error[1].startswith(f"byte {len(LATE)}: {reason}. ")
    # Who names the columns has chosen.
    assert read(data, "jsonl", on_error="fail", schema={"a": "int64"}).error is None
    assert read(data, "jsonl", on_error="fail", columns=("a",)).error is None


WIDE = {f"k{number}": {f"f{field}": 1 for field in range(100)} for number in range(10)}


def test_rows_that_hold_next_to_nothing_of_a_wide_table_are_set_aside(read: Any) -> None:
    """A table of a thousand values takes eight kilobytes for each row, also for one of two bytes."""
    full = json.dumps(WIDE).encode()
    least = 1010 // VALUES_PER_BYTE + 1
    short = b'{"k0":{"f0":2}' + b" " * (least - 15)
    seen = read(
        b"\n".join([full, b"{}", short + b" }", short + b"}", short[:-1] + b"}", b" " + short[:-1] + b"}"]), "jsonl"
    )
    assert [row["k0"]["f0"] for row in seen.rows] == [1, 2, 2]
    assert seen.reasons == [
        "the row has 2 bytes, and a row of this table at least 16",
        "the row has 15 bytes, and a row of this table at least 16",
        "the row has 15 bytes, and a row of this table at least 16",
    ]
    assert read(full + b"\n" + short.replace(b" ", b"\r ") + b"}\n", "jsonl").count == 0
    # A narrow one has rows of any size.
    assert read(b'{"a":1}\n{}\n', "jsonl").rows == [{"a": 1}, {"a": None}]


def test_lists_of_wide_objects_are_kept_as_json_text(read: Any) -> None:
    row = json.dumps({"l": [WIDE, {}], "o": WIDE}, separators=(",", ":"))
    seen = read(row.encode() + b"\n", "jsonl")
    assert seen.schema.field("l").type == pa.string()
    assert json.loads(seen.rows[0]["l"]) == [WIDE, {}]
    fields = ", ".join(f"f{number}: bool" for number in range(MAX_LIST_VALUES))
    for inner in (f"struct<{fields}>", f"list<struct<{fields}>>"):
        with refused(RequestError, where="schema.l"):
            open_reader(Layout("jsonl", schema={"l": f"list<{inner}>"}))


UNKNOWN = "can be read, so the columns are not known. Name the columns in a schema, or try format raw"


def test_objects_without_keys_at_the_start_hide_no_later_ones(read: Any) -> None:
    seen = read(b"{}\n" * INFERENCE_ROWS + b'{"a":1}\n', "jsonl")
    assert seen.error == (
        "data",
        f"byte 0: none of the first rows {UNKNOWN}",
    )


@pytest.mark.parametrize("layout", [Layout("jsonl"), Layout("csv")])
def test_blank_lines_are_not_kept_for_the_schema(layout: Layout) -> None:
    reader = open_reader(layout)
    assert reader.feed(b"a,b\n" if layout.format == "csv" else b"\n") == []
    blank = b"\r\n" * (8 * 1024)
    assert reader.feed(blank) == []  # what is made once, such as caches
    tracemalloc.start()
    try:
        for _ in range(256):
            assert reader.feed(blank) == []
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Some of it is for others: threads that an earlier test has left to end.
    assert kept < 256 * len(blank) / 8
    assert reader.schema is None


def test_an_endless_line_is_set_aside(read: Any) -> None:
    seen = read(b'{"a":1}\n{"a":"' + b"x" * MAX_ROW_BYTES + b'"}\n{"a":2}\n', "jsonl")
    assert [row["a"] for row in seen.rows] == [1, 2]
    assert seen.reasons == ["the row is longer than 1048576 bytes"]


# In a process of its own: what this guards against is a crash.
DEEP = """
from fastflight.tables import Layout, open_reader
for depth in (1_000, 20_000, 200_000):
    objects = min(depth, 100_000)
    shapes = [b"[" * depth + b"]" * depth, b"[" * depth, b'{"x":' * objects + b"1" + b"}" * objects]
    for deep in shapes:
        for key in (b"i", b"s", b"l", b"o", b"unknown"):
            types = {"i": "int64", "s": "string", "l": "list<int64>", "o": "struct<x: int64>", "a": "int64"}
            for schema in (None, types):
                reader = open_reader(Layout("jsonl", schema=schema))
                rows = reader.feed(b'{"a":1}\\n{"a":2,"' + key + b'":' + deep + b'}\\n{"a":3}\\n') + reader.finish()
                values = [row["a"] for batch in rows for row in batch.to_pylist()]
                assert values in ([1, 3], [1, 2, 3]), values
                assert len(values) + reader.summary.rejected == 3
print("alive")
"""


def test_deep_nesting_does_not_crash_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-2000:]


VALUE = st.recursive(
    st.sampled_from(["1", "-7", "2.5", "true", "null", '"x"', '"2024-01-01"', '"2024-01-01T00:00:00Z"', "1e5", "1e400"])
    | st.sampled_from(
        ["NaN", "Inf", "-Infinity", '"\\udc00"', '"é"', "99999999999999999999", "01", "1" * 5000, "}", "{"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]")
        | st.lists(inner, max_size=3).map(
            lambda items: "{" + ",".join(f'"k{i}":{v}' for i, v in enumerate(items)) + "}"
        )
    ),
    max_leaves=4,
)
ROW = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "q"]), VALUE), max_size=4).map(
    lambda items: "{" + ",".join(f'"{key}":{value}' for key, value in items) + "}"
)
LINES = st.lists(
    ROW | st.sampled_from(["", " ", "{}", "}{", '{"a":{}', "}", '{"a":1}\r', '{"a":1}{"a":2}']), max_size=6
)
TYPES = st.sampled_from(
    ["int64", "double", "string", "bool", "timestamp[us]", "date32", "list<int64>", "struct<k0: string>"]
)


@settings(max_examples=100, deadline=None)
@given(
    LINES,
    st.lists(st.integers(0, 80), max_size=5),
    st.tuples(TYPES, TYPES) | st.none(),
    st.sampled_from(["skip", "fail"]),
)
def test_any_split_gives_the_same(read: Any, lines: list[str], cuts: list[int], types: Any, on_error: str) -> None:
    read(
        "\n".join(lines).encode(),
        "jsonl",
        cuts,
        schema=types and dict(zip("ab", types, strict=True)),
        on_error=on_error,
    )


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=5))
def test_garbage_raises_only_documented_errors(read: Any, data: bytes, cuts: list[int]) -> None:
    read(data, "jsonl", cuts)
    read(b'{"a":1}\n{' + data + b"}", "jsonl", cuts, schema={"a": "string"})
