"""Rows of traffic, and where reading may begin again."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.errors import RequestError
from fastflight.gap import Gap
from fastflight.publish import open_output, parse_output
from fastflight.publish.rows import PLACE, Position, RowFormat, RowReader
from fastflight.sources import RowLayout
from fastflight.transport.chunk_buffer import Chunk

NUMBERS = RowFormat(RowLayout("csv", {"n": "int64"}))


def chunk(seq: int, data: bytes, cut: str = "") -> Chunk:
    return Chunk(seq, seq * 1_000_000, "rx", data, cut)


def test_rows_have_a_place_and_their_columns() -> None:
    reader = RowReader(NUMBERS, Position(3, 0, True))
    lines = reader.feed([chunk(3, b"1\n2\nx\n3"), chunk(4, b"4\n")])
    rows = [(row["seq"], row["line"], row["n"]) for row in reader.rows(lines).to_pylist()]
    assert rows == [(3, 0, 1), (3, 1, 2), (3, 3, 34)]
    assert [each.end[:2] for each in lines] == [(3, 1), (3, 2), (3, 3), (4, 1)]
    assert reader.end == (5, 0, True)


def test_half_a_number_is_no_row() -> None:
    reader = RowReader(NUMBERS, Position(0))
    lines = reader.feed([chunk(0, b"1\n2"), Gap(1, 4), chunk(5, b"3\n4\n"), chunk(6, b"5\n", "the line was lost")])
    assert reader.rows(lines).column("n").to_pylist() == [4]


@given(st.lists(st.binary(min_size=1, max_size=6).map(lambda data: data.replace(b"\r", b"\n")), max_size=8), st.data())
def test_reading_again_after_any_line_gives_the_lines_after_it(pieces: list[bytes], data: st.DataObject) -> None:
    chunks = [chunk(seq, piece) for seq, piece in enumerate(pieces)]
    whole = RowReader(RowFormat(), Position(0, 0, True)).feed(chunks)
    if whole:
        at = data.draw(st.integers(0, len(whole) - 1))
        end = whole[at].end
        again = RowReader(RowFormat(), end).feed(chunks[end.seq :])
        assert [each[:2] for each in again] == [each[:2] for each in whole[at + 1 :]]


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ({"layout": RowLayout("jsonl", None)}, "schema"),
        ({"layout": RowLayout("jsonl", {"line": "int64"})}, "schema.line"),
        ({"units": {"celsius": "C"}}, "units.celsius"),
    ],
)
def test_wrong_formats_name_the_key(keys: dict[str, object], where: str) -> None:
    with pytest.raises(RequestError) as raised:
        RowFormat(**keys)  # type: ignore[arg-type]
    assert raised.value.where == where


@pytest.mark.parametrize("nanoseconds", [1_700_000_000_123_456_789, 1_700_000_000_000_000_000])
def test_times_of_nanoseconds_are_text(nanoseconds: int) -> None:
    rows = RowFormat(RowLayout(format="json", schema={"at": "timestamp[ns]"}))
    output = open_output("demo", parse_output("influx://127.0.0.1:1?db=boards"), rows)
    row = {"seq": 1, "line": 0, "time": 1, "at": nanoseconds}
    content = output.encode(pa.RecordBatch.from_pylist([row], pa.schema([*PLACE, *rows.columns]))).content
    assert f'at="2023-11-14T22:13:20.{nanoseconds % 10**9:09}"'.encode() in content
