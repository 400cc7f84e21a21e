from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.errors import DataError, RequestError
from fastflight.tables import Layout, open_reader, open_writer, schema_from_names
from tests.support.refusals import refused


def test_records_become_rows(read: Any) -> None:
    data = struct.pack("<Ih?x4sd", 7, -2, True, b"ab", 2.5) + struct.pack("<Ih?x4sd", 8, 3, False, b"cdef", -0.5)
    seen = read(data, "packed", record="<Ih?x4sd", columns=("time", "level", "ok", "tag", "volts"))
    assert seen.schema == pa.schema(
        [
            ("time", pa.uint32()),
            ("level", pa.int16()),
            ("ok", pa.bool_()),
            ("tag", pa.binary()),
            ("volts", pa.float64()),
        ]
    )
    assert seen.rows[0] == {"time": 7, "level": -2, "ok": True, "tag": b"ab\0\0", "volts": 2.5}
    assert seen.rows[1] == {"time": 8, "level": 3, "ok": False, "tag": b"cdef", "volts": -0.5}


def test_schema_gives_fields_another_type(read: Any) -> None:
    data = struct.pack(">I6sH", 1_700_000_000, b"north", 200) + struct.pack(">I6sH", 0, b"\xff", 3)
    data += struct.pack(">I6sH", 0, b"x", 300)
    seen = read(
        data,
        "packed",
        record=">I6sH",
        columns=("t", "name", "n"),
        schema={"t": "timestamp[s, UTC]", "name": "string", "n": "uint8"},
    )
    assert seen.rows == [{"t": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), "name": "north", "n": 200}]
    assert [(row.offset, row.reason) for row in seen.rejected] == [
        (12, "column 'name': b'\\xff\\x00\\x00\\x00\\x00\\x00' is not string"),
        (24, "column 'n': 300 is not uint8"),
    ]


@pytest.mark.parametrize(
    ("type_", "beyond", "within"),
    [
        ("time32[s]", 24 * 60 * 60, 5),
        ("time64[us]", 24 * 60 * 60 * 1_000_000, 5),
        ("time64[ns]", -1, 5),
        ("date64", 86_400_001, 86_400_000),
    ],
)
def test_a_number_that_is_no_time_is_rejected(read: Any, type_: str, beyond: int, within: int) -> None:
    seen = read(struct.pack("<qq", beyond, within), "packed", record="<q", schema={"t": type_})
    assert len(seen.rows) == 1
    assert seen.reasons == [f"column 't': {beyond} is not {schema_from_names({'t': type_}).field('t').type}"]


def test_part_of_a_record_at_the_end_is_rejected(read: Any) -> None:
    seen = read(b"\1\0\0\0\2\0\0", "packed", record="<I", columns=("a",))
    assert seen.rows == [{"a": 1}]
    assert [(row.offset, row.reason) for row in seen.rejected] == [
        (4, "the file ends after 3 of the 4 bytes of a record")
    ]
    failed = read(b"\1\0\0\0\2\0\0", "packed", record="<I", columns=("a",), on_error="fail")
    assert failed.error[1].startswith("byte 4: the file ends after 3 of the 4 bytes of a record. ")


@pytest.mark.parametrize(
    ("record", "columns", "error"),
    [
        (None, ("a",), 'record: a packed file needs a record format. For example record="<IhH"'),
        ("Ih", ("a", "b"), "record: the record format 'Ih' does not name its byte order. Start it with <"),
        ("@I", ("a",), "record: the record format '@I' does not name its byte order. Start it with <"),
        ("<I2h", ("a", "b"), "columns: the record has 3 fields and columns names 2. "),
        ("<I", None, "columns: the record has 1 fields without names. "),
        ("<II", ("a", "a"), "columns: two fields are named 'a'. "),
        ("<Iw", ("a", "b"), "record: 'w' in the record format is not known. "),
        ("<P", ("a",), "record: 'P' in the record format is not known. "),
        ("<999999d", ("a",), "record: a record of 7999992 bytes. 1 to 65536 bytes"),
        ("<", (), "record: a record of 0 bytes. "),
        ("<4x", (), "record: the record has 0 fields. "),
        ("<3", ("a",), "record: '3' in the record format is not known. "),
        ("<h\x85", ("a",), r"record: '\x85' in the record format is not known. "),
        ("<é", ("a",), "record: 'é' in the record format is not known. "),
        ("<0sI", ("a", "b"), "record: 0s in the record format holds nothing. "),
    ],
)
def test_formats_that_can_not_be(record: Any, columns: Any, error: str) -> None:
    with pytest.raises(RequestError) as raised:
        open_reader(Layout("packed", record=record, columns=columns))
    assert error in str(raised.value)


def test_types_that_a_field_can_not_be() -> None:
    with refused(RequestError, where="schema.b"):
        open_reader(Layout("packed", record="<I", columns=("a",), schema={"b": "int8"}))
    with refused(RequestError, where="schema.a"):
        open_reader(Layout("packed", record="<f", columns=("a",), schema={"a": "timestamp[s]"}))


@pytest.mark.parametrize(
    ("record", "column", "error"),
    [
        ("<B", pa.array([1, 256]), "column v: int64 does not fit 'B' of the record"),
        ("<B", pa.array([1, None]), "column v: a packed record can not hold null"),
        ("<h", pa.array([1.5]), "column v: double does not fit 'h' of the record"),
        ("<f", pa.array([1e300]), "column v: a value is too large for 'f'"),
        ("<e", pa.array([1e6]), "column v: a value is too large for 'e'"),
        ("<2s", pa.array(["abc"]), "column v: b'abc' is longer than 2 bytes"),
        ("<2s", pa.array([1]), "column v: int64 does not fit 's' of the record"),
    ],
)
def test_values_that_do_not_fit(record: str, column: pa.Array, error: str) -> None:
    with pytest.raises(DataError) as raised:
        table = pa.record_batch([column], ["v"])
        open_writer(Layout("packed", record=record, columns=("v",)), table.schema).encode(table)
    assert error in str(raised.value)


def test_a_missing_column_is_named() -> None:
    with pytest.raises(DataError, match="the table has no column 'volts'. Did you mean 'volt'"):
        open_writer(Layout("packed", record="<d", columns=("volts",)), pa.schema([("volt", pa.float64())]))


CODES = {code: struct.calcsize("<" + code) for code in "bBhHiIlLqQefd?c"} | {"3s": 3, "2H": 4, "x": 1}


@given(
    st.sampled_from("<>!="),
    st.lists(st.sampled_from(sorted(CODES)), max_size=5),
    st.binary(max_size=80),
    st.lists(st.integers(0, 80), max_size=4),
)
def test_reading_agrees_with_struct(read: Any, order: str, codes: list[str], data: bytes, cuts: list[int]) -> None:
    format_ = order + "b" + "".join(codes)
    size = struct.calcsize(format_)
    expected = [struct.unpack_from(format_, data, start) for start in range(0, len(data) - size + 1, size)]
    names = tuple(f"n{index}" for index in range(len(struct.unpack(format_, bytes(size)))))
    seen = read(data, "packed", cuts, record=format_, columns=names)
    assert repr([tuple(row.values()) for row in seen.rows]) == repr(expected)
    assert seen.count == bool(len(data) % size)


@given(st.sampled_from("<>"), st.binary(max_size=120))
def test_writing_is_the_inverse(read: Any, write: Any, order: str, data: bytes) -> None:
    layout = {"record": order + "bIxq4sd", "columns": ("a", "b", "c", "d", "e")}
    seen = read(data, "packed", **layout)
    table = pa.Table.from_pylist(seen.rows, seen.schema)
    assert repr(read(write(table, "packed", **layout), "packed", **layout).rows) == repr(seen.rows)
