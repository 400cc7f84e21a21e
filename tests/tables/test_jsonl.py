from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastflight.errors import RequestError
from fastflight.tables import Layout, WholeFile, open_reader
from fastflight.tables.json_objects import parse_object
from fastflight.tables.jsonl import MAX_BATCH_VALUES
from fastflight.tables.schemas import MAX_LIST_VALUES
from fastflight.tables.text import SAMPLE_BYTES
from tests.support.refusals import refused

from .conftest import read_split


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
        "n": "null",
    }
    assert seen.rows[0]["t"] == datetime(2024, 1, 1, tzinfo=UTC)
    assert seen.rows[0]["d"] == date(2024, 1, 1)
    assert seen.rows[1]["o"] == {"x": None, "y": None, "z": "q"}


def test_bad_rows_are_rejected_with_offset_and_reason(read: Any) -> None:
    lines = [
        b'{"a":1}', b"", b"{a: 2}", b'{"a":1}{"a":2}', b'{"a":', b"3}", b"[4]", b'{"a":"\xff"}', b'{"a":1,"a":2}',
        b'{"b":"\\ud800"}', b' {"a":9, "zz":[1]} \r', b'{"a":10}',
    ]  # fmt: skip
    data = b"\n".join(lines)
    seen = read(data, "jsonl", schema={"a": "int64", "b": "string"})
    assert [row["a"] for row in seen.rows] == [1, 9, 10]
    assert seen.reasons == [
        "not JSON: Expecting property name enclosed in double quotes at character 1 of '{a: 2}'",
        'not JSON: Extra data at character 7 of \'{"a":1}{"a":2}\'',
        "'{\"a\":' is not a JSON object",
        "'3}' is not a JSON object",
        "'[4]' is not a JSON object",
        "byte 6 of the row, 0xff, is not UTF-8",
        "the key 'a' occurs twice",
        "half a surrogate pair in a string",
    ]
    starts = [sum(len(line) + 1 for line in lines[:index]) for index in range(len(lines))]
    assert [row.offset for row in seen.rejected] == starts[2:10]
    failed = read(data, "jsonl", schema={"a": "int64"}, on_error="fail")
    assert failed.error[1].startswith(f"byte {data.index(lines[2])}: not JSON")


def test_a_value_that_does_not_fit_becomes_null_and_is_counted(read: Any) -> None:
    data = b'{"a":"five"}\n{"a":6.5}\n{"a":7}\n{"a":"N/A"}\n{"a":[8]}\n{"a":9999999999999999999}\n'
    seen = read(data, "jsonl", schema={"a": "int64"})
    assert [row["a"] for row in seen.rows] == [None, None, 7, None, None, None]
    assert seen.told["null_cells"] == {"a": 4}
    assert seen.told["null_cell_reasons"] == {"a": "column 'a': 'five' is not int64"}
    failed = read(data[13:], "jsonl", schema={"a": "int64"}, on_error="fail")
    assert failed.error[1].startswith("byte 0: column 'a': 6.5 is not int64. ")


def test_a_decimal_of_too_many_digits_is_null_wherever_it_is(read: Any) -> None:
    data = b'{"a":"999.99"}\n{"a":"1000"}\n{"b":["1.5"]}\n{"b":["10"]}\n'
    seen = read(data, "jsonl", schema={"a": "decimal128(5, 2)", "b": "list<decimal128(2, 1)>"})
    assert [row["a"] for row in seen.rows] == [Decimal("999.99"), None, None, None]
    assert [row["b"] for row in seen.rows] == [None, None, [Decimal("1.5")], [None]]
    assert seen.told["null_cells"] == {"a": 1, "b": 1}
    assert seen.told["null_cell_reasons"]["a"] == "column 'a': '1000' is not decimal128(5, 2)"


@pytest.mark.parametrize(("type_", "zone"), [("timestamp[us, UTC]", "+00:00"), ("timestamp[us]", "")])
def test_times_follow_the_schema(read: Any, type_: str, zone: str) -> None:
    data = b'{"t":"2024-01-01 00:00:00.5"}\n{"t":"2024-01-01T01:00:00+01:00"}\n'
    seen = read(data, "jsonl", schema={"t": type_})
    assert [row["t"].isoformat() for row in seen.rows] == [
        f"2024-01-01T00:00:00.500000{zone}",
        f"2024-01-01T00:00:00{zone}",
    ]


@pytest.mark.parametrize("type_", ["date32", "date64"])
def test_a_time_of_day_is_never_cut_off_a_date(read: Any, type_: str) -> None:
    seen = read(b'{"d":"2024-01-01"}\n{"d":null}\n{"d":"2024-01-02T10:11:12"}\n', "jsonl", schema={"d": type_})
    assert [row["d"] for row in seen.rows] == [date(2024, 1, 1), None, None]
    assert seen.told["null_cells"] == {"d": 1}


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


def test_late_keys_are_columns_of_the_whole_file_and_told_by_a_sample(read: Any) -> None:
    early = b'{"a":1,"o":{"x":1}}\n'
    data = early * (SAMPLE_BYTES // len(early) + 1) + b'{"b":2,"o":{"x":1,"y":2}}\n'
    rows = data.count(b"\n")
    whole = read(data, "jsonl")
    assert whole.schema.names == ["a", "o", "b"]
    assert (whole.rows[0], whole.rows[-1]) == (
        {"a": 1, "o": {"x": 1, "y": None}, "b": None},
        {"a": None, "o": {"x": 1, "y": 2}, "b": 2},
    )
    sample = read(data, "jsonl", infer="sample")
    assert sample.told == {"rows": rows, "ignored": {"b": 1, "o.y": 1}}
    failed = read(data, "jsonl", infer="sample", on_error="fail")
    assert failed.error[1].startswith(f"byte {len(data) - 26}: the key 'b' has no column. ")
    # Requests that name the columns have chosen.
    assert read(data, "jsonl", on_error="fail", schema={"a": "int64"}).error is None
    assert read(data, "jsonl", infer="sample", on_error="fail", columns=("a",)).error is None


WIDE = {f"k{number}": {f"f{field}": 1 for field in range(100)} for number in range(10)}


def test_rows_that_hold_next_to_nothing_of_a_wide_table_come_in_small_batches() -> None:
    """A table of a thousand values takes eight kilobytes for each row, also for one of two bytes."""
    data = json.dumps(WIDE).encode() + b"\n" + b"{}\n" * 5_000
    file = WholeFile(Layout("jsonl"), lambda: iter([data]))
    sizes = [batch.num_rows for batch in file.batches()]
    assert sum(sizes) == 5_001
    assert max(sizes) <= MAX_BATCH_VALUES // 1000


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
    data = b"{}\n" * SAMPLE_BYTES + b'{"a":1}\n'
    assert read(data, "jsonl").rows[-2:] == [{"a": None}, {"a": 1}]
    assert read(data, "jsonl", infer="sample").error == (
        "data",
        f"byte 0: none of the first rows {UNKNOWN}",
    )


# In a process of its own: what this guards against is a crash.
DEEP = """
from fastflight.tables import Layout, open_reader, WholeFile
for depth in (1_000, 20_000, 200_000):
    objects = min(depth, 100_000)
    shapes = [b"[" * depth + b"]" * depth, b"[" * depth, b'{"x":' * objects + b"1" + b"}" * objects]
    for deep in shapes:
        for key in (b"i", b"s", b"l", b"o", b"unknown") if depth < 200_000 else (b"l",):
            types = {"i": "int64", "s": "string", "l": "list<int64>", "o": "struct<x: int64>", "a": "int64"}
            for schema in (None, types):
                reader = open_reader(Layout("jsonl", schema=schema, infer="sample"))
                data = b'{"a":1}\\n{"a":2,"' + key + b'":' + deep + b'}\\n{"a":3}\\n'
                rows = reader.feed(data) + reader.finish()
                values = [row["a"] for batch in rows for row in batch.to_pylist()]
                assert values in ([1, 3], [1, 2, 3]), values
                assert len(values) + reader.summary.rejected == 3
            file = WholeFile(Layout("jsonl"), lambda: iter([data]))
            rows = list(file.batches())
            assert sum(batch.num_rows for batch in rows) + file.summary.rejected == 3
print("alive")
"""


def test_deep_nesting_does_not_crash_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-2000:]


PRINTED = {
    "single quotes": ("{'a': 'x', 'b': 21.5}", {"a": "x", "b": 21.5}),
    "words": ("{'a': True, 'b': None, 'c': False, 'd': [True]}", {"a": True, "b": None, "c": False, "d": [True]}),
    "words that are text": ("{'a': 'True', 'b': '(None, 1)'}", {"a": "True", "b": "(None, 1)"}),
    "tuples": ("{'a': (1, 2), 'b': (3,), 'c': ()}", {"a": [1, 2], "b": [3], "c": []}),
    "a quote within": (
        """{'a': "it's", 'b': 'say "x"', 'c': 'it\\'s "x"'}""", {"a": "it's", "b": 'say "x"', "c": 'it\'s "x"'},
    ),
    "escapes": (
        r"{'a': 'x\n\\y', 'b': '\xe9\u20ac\U0001f600', 'c': '\\x41'}", {"a": "x\n\\y", "b": "é€😀", "c": "\\x41"},
    ),
    "brackets in a text": (str({"a": "[" * 300}), {"a": "[" * 300}),
}  # fmt: skip


@pytest.mark.parametrize("name", PRINTED)
def test_objects_as_python_prints_them_are_rows(read: Any, name: str) -> None:
    line, row = PRINTED[name]
    for rows in (1, 40):  # few lines are parsed in Python, many by Arrow
        seen = read(f"{line}\n".encode() * rows, "jsonl")
        assert (seen.rows, seen.told) == ([row] * rows, {"rows": rows})


@pytest.mark.parametrize(
    "line", ["{'a': b'x'}", "{'a': {1, 2}}", "{1: 2}", "{'a': 'x}", "{'a': x}", "{'a': 1_0}", "{'a': (}"]
)
def test_other_literals_of_python_are_rejected(read: Any, line: str) -> None:
    seen = read(f'{{"a": "x"}}\n{line}\n'.encode(), "jsonl")
    assert (seen.rows, seen.count) == ([{"a": "x"}], 1)


def test_deep_tuples_are_rejected(read: Any) -> None:
    seen = read(b'{"a": 1}\n' + b"{'a': " + b"(" * 100_000 + b")" * 100_000 + b"}\n", "jsonl", schema={"a": "int64"})
    assert (seen.rows, seen.reasons) == ([{"a": 1}], ["nested deeper than 200 levels"])


LITERAL = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(), LITERAL, min_size=1, max_size=3))
def test_what_python_prints_is_read_as_its_json(row: dict[str, Any]) -> None:
    printed, written = (parse_object(line.encode()) for line in (repr(row), json.dumps(row, ensure_ascii=False)))
    assert repr(printed[0]) == repr(written[0])


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


@given(
    LINES,
    st.lists(st.integers(0, 80), max_size=5),
    st.tuples(TYPES, TYPES) | st.none(),
    st.sampled_from(["skip", "fail"]),
)
def test_any_split_gives_the_same(lines: list[str], cuts: list[int], types: Any, on_error: str) -> None:
    read_split(
        "\n".join(lines).encode(),
        "jsonl",
        cuts,
        schema=types and dict(zip("ab", types, strict=True)),
        on_error=on_error,
    )


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=5))
def test_garbage_raises_only_documented_errors(read: Any, data: bytes, cuts: list[int]) -> None:
    read(data, "jsonl", cuts)
    read(b'{"a":1}\n{' + data + b"}", "jsonl", cuts, schema={"a": "string"})
