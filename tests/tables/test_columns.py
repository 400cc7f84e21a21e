"""What counts as a number in what a device prints."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.tables.columns import (
    MAX_COLUMNS,
    MAX_LINE_BYTES,
    MAX_LINES,
    MAX_NAME_CHARACTERS,
    MAX_SHOWN_CHARACTERS,
    Columns,
)


def fed(*pieces: bytes) -> tuple[Columns, int, list[list[float | None]]]:
    columns = Columns()
    rows, points = columns.feed([(place * 1_000_000, piece) for place, piece in enumerate(pieces)])
    return columns, rows, points


def test_numbers_of_objects_have_their_keys() -> None:
    columns, rows, points = fed(b'{"t": 1.5, "ok": true, "name": "x", "n": 2}\r\n{"n": 3', b', "new": -1}\n')
    assert columns.names == ["t", "n", "new"]
    assert (rows, points) == (2, [[0, 1.5, 2.0], [1, None, 3.0, -1.0]])
    assert columns.line == '{"n": 3, "new": -1}'


def test_numbers_of_objects_as_python_prints_them_have_their_keys() -> None:
    columns, _, points = fed(b"{'t': 21.5, 'ok': True, 'x': None, 'n': nan}\n")
    assert (columns.names, points) == (["t"], [[0, 21.5]])


def test_numbers_of_csv_have_the_names_of_the_header() -> None:
    columns, _, points = fed(b'time,"humidity"\n1,40.5\n2,x\n')
    assert columns.names == ["time", "humidity"]
    assert points == [[0, 1.0, 40.5], [0, 2.0, None]]


def test_numbers_without_a_header_have_their_place() -> None:
    assert fed(b"1,2\n")[0].names == ["column 1", "column 2"]
    assert fed(b"23.5\n")[0].names == ["value"]


@pytest.mark.parametrize(
    "line",
    [b">>> ", b"nan", b"inf,1", b"1_000", b"Hello, world", b"[1]", b'{"a": 1', b'{"a": NaN}', b'{"a": 1e999}', b""],
)
def test_the_rest_is_counted_and_not_drawn(line: bytes) -> None:
    columns, rows, points = fed(line + b"\n")
    assert (rows, points, columns.names) == (1, [], [])


def test_a_device_that_makes_up_keys_and_never_ends_its_line_is_bounded() -> None:
    columns, rows, points = fed(*(json.dumps({f"key {n}": n}).encode() + b"\n" for n in range(1000)), b"x" * 100_000)
    assert rows == 1000
    assert len(points) == MAX_LINES
    for n in range(100):
        columns.feed([(0, b"\n" + json.dumps({f"more {n}": n}).encode() + b"\n")])
    assert len(columns.names) == MAX_COLUMNS


def test_half_a_line_is_not_put_together_over_a_gap() -> None:
    columns = Columns()
    columns.feed([(0, b"12")])
    columns.cut()
    assert columns.feed([(0, b"34\n5\n")])[1] == [[0, 34.0], [0, 5.0]]


PIECES = st.binary(max_size=300) | st.binary(max_size=9).map(lambda data: b'{"' + data * 60 + b'": 1}\n')


@given(st.lists(PIECES, max_size=3).map(b"".join), st.lists(st.integers(0, 900), max_size=6))
def test_any_split_gives_the_same_count_and_nothing_raises(data: bytes, places: list[int]) -> None:
    whole = Columns()
    rows, points = whole.feed([(0, data)])
    split = Columns()
    edges = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    parts = split.feed([(0, data[start:stop]) for start, stop in zip(edges, edges[1:], strict=False)])
    assert parts == (rows, points)
    assert (split.names, split.line) == (whole.names, whole.line)
    assert all(isinstance(json.dumps(point, allow_nan=False), str) for point in points)
    assert len(points) <= min(rows, MAX_LINES) and len(whole.names) <= MAX_COLUMNS
    assert len(whole.line) <= MAX_SHOWN_CHARACTERS
    assert all(len(name) <= MAX_NAME_CHARACTERS for name in whole.names)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5), lambda inner: st.lists(inner), max_leaves=9
    )
)
def test_any_value_of_a_key_is_a_finite_number_or_left_out(value: object) -> None:
    _, _, points = fed(json.dumps({"a": value}).encode()[:MAX_LINE_BYTES] + b"\n")
    json.dumps(points, allow_nan=False)
