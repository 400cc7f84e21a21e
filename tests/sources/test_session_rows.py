"""Chunks of traffic as rows, without a device: lines and their places, what is rejected, gaps, limits, flushing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.errors import RequestError
from fastflight.gap import Gap
from fastflight.service.requests import DeviceSession
from fastflight.service.source import Noted
from fastflight.sources.session_lines import MAX_LINE_BYTES
from fastflight.sources.session_rows import SessionRows
from fastflight.transport.chunk_buffer import Chunk

READINGS = {"ms": "int64", "celsius": "double"}


def session(
    format: str = "lines", *, begins_line: bool = True, now: list[float] | None = None, **keys: Any
) -> SessionRows:
    clock = now or [0.0]
    request = DeviceSession.model_validate({"device": "demo", "format": format, "flush_ms": 0, **keys})
    rows = SessionRows(request, lambda: clock[0])
    rows.begin(begins_line)
    return rows


def chunks(*data: bytes, first: int = 0) -> list[Chunk]:
    return [Chunk(first + i, 1_000_000 * (first + i), "rx", piece) for i, piece in enumerate(data)]


def told(batches: list[Any]) -> list[Any]:
    """Rows as dicts, and notes where they stand."""
    seen: list[Any] = []
    for item in batches:
        if isinstance(item, Noted):
            gap = item.note.get("gap")
            seen.append((gap["why"], gap["first"], gap["last"]) if gap else item.note)
        seen += (item.batch if isinstance(item, Noted) else item).to_pylist()
    return seen


def text(item: Any) -> Any:
    """The text of a row, or what stands between rows."""
    return item.get("text", item) if isinstance(item, dict) else item


def texts(batches: list[Any]) -> list[tuple[int, str]]:
    return [(row["seq"], row["text"]) for row in told(batches)]


def test_bytes_are_a_row_for_each_chunk() -> None:
    rows = session("bytes")
    (batch,) = rows.feed([Chunk(7, 1_500_000, "tx", b"1+1\r"), Chunk(8, 2_500_000, "rx", b"1+1\r\n2\r\n")])
    assert [str(field.type) for field in batch.schema] == ["uint64", "timestamp[us, tz=UTC]", "string", "binary"]
    assert batch.column("time").cast(pa.int64()).to_pylist() == [1500, 2500]
    assert [(row["seq"], row["direction"], row["data"]) for row in batch.to_pylist()] == [
        (7, "tx", b"1+1\r"),
        (8, "rx", b"1+1\r\n2\r\n"),
    ]
    assert {"rx_bytes": 8, "tx_bytes": 4, "next_seq": 9}.items() <= rows.summary().items()


@given(data=st.binary(max_size=60).map(lambda raw: raw.replace(b"\x07", b"\n")), cuts=st.lists(st.integers(1, 59)))
def test_any_split_gives_the_same_lines(data: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in zip(edges, edges[1:], strict=False)]
    rows = session()
    seen = rows.feed(chunks(*pieces)) + rows.finish()
    lines = data.split(b"\n")
    lines = lines if lines[-1] else lines[:-1]
    assert [text for _, text in texts(seen)] == [line.removesuffix(b"\r").decode("utf-8", "replace") for line in lines]
    starts = [sum(len(line) + 1 for line in lines[:index]) for index in range(len(lines))]
    assert [seq for seq, _ in texts(seen)] == [sum(edge <= start for edge in edges[1:-1]) for start in starts]


@given(
    lines=st.lists(
        st.one_of(
            st.tuples(st.integers(-(2**40), 2**40), st.floats(-1e6, 1e6)).map(
                lambda row: f"{row[0]},{row[1]!r}".encode()
            ),
            st.sampled_from([b"", b"Traceback", b'1,"2', b'"1","2"', b"1,2,3", b"\xff,1", b"ms,celsius", b'a"b,1']),
        ),
        max_size=12,
    ),
    cuts=st.lists(st.integers(1, 200)),
    flush_at_once=st.booleans(),
)
def test_any_split_gives_the_same_csv_rows(lines: list[bytes], cuts: list[int], flush_at_once: bool) -> None:
    data = b"".join(line + b"\r\n" for line in lines)
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in zip(edges, edges[1:], strict=False)]
    rows = session("csv", schema=READINGS, flush_ms=0 if flush_at_once else 1000)
    seen = told(rows.feed(chunks(*pieces)) + rows.finish())
    good = [line for line in lines if line.count(b",") == 1 and line[:1] in b'-0123456789"a' and line != b'1,"2']
    expected = [line.replace(b'"', b"").split(b",") for line in good]
    assert [(row["ms"], row["celsius"]) for row in seen] == [
        (None if ms == b"ab" else int(ms), float(value)) for ms, value in expected
    ]
    assert rows.summary().get("null_cells", {}).get("ms", 0) == good.count(b'a"b,1')
    bad = [line for line in lines if line and line not in good and line != b"ms,celsius"]
    assert rows.summary()["rejected"] == len(bad)


def test_json_lines_are_parsed_and_the_others_rejected_with_a_reason() -> None:
    rows = session("jsonl", schema=READINGS)
    seen = rows.feed(chunks(b'{"ms":1,"celsius":2.5}\nTraceback:\n{"ms":"x"}\n', b'\n{"ms":2}\n{"ms":3'))
    assert [(row["seq"], row["ms"], row["celsius"]) for row in told(seen)] == [
        (0, 1, 2.5),
        (0, None, None),
        (1, 2, None),
    ]
    assert told(rows.finish()) == []
    summary = rows.summary()
    assert [row["seq"] for row in summary["rejected_rows"]] == [0, 1]
    assert (summary["rejected"], summary["null_cells"]) == (2, {"ms": 1})
    assert "ended within the line" in summary["rejected_rows"][1]["reason"]


def test_gaps_without_rows_are_told_each() -> None:
    rows = session("bytes", flush_ms=1000)
    seen = told(rows.feed([Gap(0, 3), Gap(4, 9)]) + rows.finish())
    assert seen == [("not read in time", 0, 3), ("not read in time", 4, 9)]


def test_rows_wait_for_the_flush_or_for_enough() -> None:
    now = [0.0]
    rows = session("bytes", now=now, flush_ms=100, batch_rows=3)
    assert rows.feed(chunks(b"a", b"b")) == []
    assert rows.deadline == pytest.approx(0.1)
    now[0] = 0.1
    assert [batch.num_rows for batch in rows.due()] == [2]
    assert rows.deadline is None
    assert [batch.num_rows for batch in rows.feed(chunks(b"c", b"d", b"e", b"f", first=2))] == [3]


def test_the_limit_is_exact_though_lines_are_rejected() -> None:
    rows = session("csv", schema={"n": "int64"}, limit_rows=3, flush_ms=1000)
    seen = told(rows.feed(chunks(b"1\nx\n2\n", b"3\n4\n5\n")))
    assert ([row["n"] for row in seen], rows.full) == ([1, 2, 3], True)
    assert rows.finish() == []


def test_output_without_line_ends_is_bounded() -> None:
    flood = chunks(b"x" * (MAX_LINE_BYTES + 1), b"y\nok\n")
    assert [len(text) for _, text in texts(session().feed(flood))] == [MAX_LINE_BYTES, 2, 2]
    rows = session("jsonl", schema={"a": "int64"})
    assert rows.feed([*flood, *chunks(b'{"a":1}\n', first=2)])[-1].num_rows == 1
    assert {row["reason"] for row in rows.summary()["rejected_rows"][:2]} == {
        f"the line is longer than {MAX_LINE_BYTES} bytes"
    }


def test_columns_are_chosen_of_all() -> None:
    rows = session("csv", schema=READINGS, columns=["celsius", "seq"])
    assert told(rows.feed(chunks(b"1,2.5\n"))) == [{"celsius": 2.5, "seq": 0}]
    assert rows.schema.names == ["celsius", "seq"]


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ({"format": "jsonl"}, "schema"),
        ({"format": "csv", "schema": {}}, "schema"),
        ({"format": "lines", "schema": {"a": "int64"}}, "schema"),
        ({"format": "csv", "schema": {"time": "int64"}}, "schema.time"),
        ({"format": "csv", "schema": {"a": "int65"}}, "schema.a"),
        ({"format": "bytes", "columns": ("text",)}, "columns"),
    ],
)
def test_keys_that_do_not_go_together_are_named(keys: dict[str, Any], where: str) -> None:
    with pytest.raises(RequestError) as raised:
        session(**keys)
    assert raised.value.where == where


@pytest.mark.parametrize(
    ("data", "limit", "next_seq"),
    [
        ((b"1\n2\n", b"3\n4\n5\n"), 3, 1),  # 4 and 5 stand in the chunk that gave 3
        ((b"1\n2\n", b"3\n4\n"), 2, 1),  # all of the first chunk was given
        ((b"1\n2", b"2\n3\n"), 1, 0),  # 22 begins in the first
        ((b"1\n2", b"2\n3\n"), 2, 1),
        ((b"1\n2\n3",), 2, 0),  # 3 has begun
    ],
)
def test_who_goes_on_after_a_limit_misses_no_line(data: tuple[bytes, ...], limit: int, next_seq: int) -> None:
    rows = session(limit_rows=limit)
    rows.feed(chunks(*data))
    assert rows.full
    assert rows.summary()["next_seq"] == next_seq
