"""The typed rows of what a device prints now: which layout it has, and where a session ends that has another one."""

from __future__ import annotations

from typing import Any, cast

import pytest

from fastflight.device import Device
from fastflight.errors import DataError, RequestError
from fastflight.service.requests import IN_MEMORY, LAYOUT_CHANGED, DeviceSession
from fastflight.sources.following import Following
from fastflight.sources.live_rows import Found, LiveLayouts
from fastflight.sources.row_layout import RowLayout
from fastflight.tables.recognition import recognise
from fastflight.transport.chunk_buffer import TapReader
from tests.sources.test_following import FollowedLine
from tests.sources.test_session_rows import told

JSON = (b'{"t": 20}\n', b'{"t": 21}\n', b'{"t": 22}\n')
CSV = (b"1,2.5\n", b"2,2.5\n", b"3,2.5\n")


class PrintingLine(FollowedLine):
    name = "demo"

    def __init__(self, *pieces: bytes) -> None:
        super().__init__()
        self.tap.end_of_request(begins_line=True)
        self.says(*pieces)


def device(line: FollowedLine) -> Device:
    return cast(Device, line)


def session(line: FollowedLine, found: Found, **keys: Any) -> tuple[Following, TapReader]:
    request = DeviceSession.model_validate({"device": "demo", "as": "rows", "flush_ms": 0, **keys})
    following = Following(device(line), request, lambda: 0.0, found)
    return following, following.start()


def rows(following: Following, reader: TapReader) -> list[dict[str, Any]]:
    """The rows without their places, of all that is there."""
    found = told(following.feed(reader.rest()))
    return [{name: value for name, value in row.items() if name not in ("seq", "time")} for row in found]


@pytest.mark.parametrize(
    ("printed", "columns"),
    [
        ((b"ready\n", *JSON), ["t"]),
        (CSV, ["column_1", "column_2"]),
        ((b"ms,t\n", *CSV, b"4,2"), ["ms", "t"]),
        ((*JSON * 30, *CSV * 2, b"7,8.5\n", b"8,8.5\n"), ["column_1", "column_2"]),
        ((b"hello\n" * 30, *JSON), ["t"]),
        ((*JSON * 5, b"Traceback (most recent call last):\n" * 9), ["t"]),
    ],
)
def test_the_newest_lines_decide_the_columns(printed: tuple[bytes, ...], columns: list[str]) -> None:
    layout = LiveLayouts().find(device(PrintingLine(*printed))).layout
    assert layout is not None and layout.parser().schema.names == columns


def test_a_header_is_known_when_it_is_in_memory_no_more() -> None:
    line = PrintingLine(b"ms,t\n", *CSV)
    layouts = LiveLayouts()
    assert layouts.has_table(device(line))
    line.says(*CSV * 400)
    layout = layouts.find(device(line)).layout
    assert layout is not None and layout.parser().schema.names == ["ms", "t"]


def test_a_board_that_prints_text_is_looked_at_again_after_a_while() -> None:
    line = PrintingLine(*[b"hello\n"] * 30)
    layouts = LiveLayouts()
    assert not layouts.has_table(device(line))
    line.says(*JSON * 2)
    assert not layouts.has_table(device(line)) and layouts.find(device(line)).layout is not None
    assert layouts.has_table(device(line))


def test_a_recording_knows_columns_and_types_that_are_in_memory_no_more() -> None:
    recorded = recognise([b'{"t": 20.5, "h": 4}', *JSON])
    for printed in ((), JSON):
        found = LiveLayouts(recorded=lambda name: recorded).find(device(PrintingLine(*printed)))
        assert found.layout is not None
        assert {field.name: str(field.type) for field in found.layout.parser().schema} == {"t": "double", "h": "int64"}


@pytest.mark.parametrize(
    ("printed", "error", "is_text"),
    [
        ((), DataError, False),
        ((b'{"t": 1}\n', b'{"t": 2'), DataError, False),
        ((b"hello\n", b"world\n", b"again\n"), RequestError, False),
        ((b"hello\n" * 20,), RequestError, True),
        ((b"." * 70_000,), DataError, True),
    ],
)
def test_a_device_without_a_table_is_told_from_one_that_has_printed_little(
    printed: tuple[bytes, ...], error: type[Exception], is_text: bool
) -> None:
    found = LiveLayouts().find(device(PrintingLine(*printed)))
    assert found.layout is None and found.is_text is is_text
    refusal = found.refusal("demo")
    assert type(refusal) is error and "rows" in refusal.hint


def test_lines_that_are_declared_to_be_text_are_refused_as_rows() -> None:
    layouts = LiveLayouts(lambda name: RowLayout("lines"))
    assert not layouts.has_table(device(PrintingLine(*JSON)))
    layout = layouts.find(device(PrintingLine(*JSON))).layout
    assert layout is not None
    with pytest.raises(RequestError, match="text"):
        layout.parser()


@pytest.mark.parametrize(
    ("later", "why"),
    [
        ((b'{"t": 23, "p": 1}\n',), "column p is new"),
        ((b'{"t": 23.5}\n',), "column t is double, not int64"),
        (CSV, "the lines have another format"),
    ],
)
def test_a_session_ends_before_the_line_that_its_columns_do_not_hold(later: tuple[bytes, ...], why: str) -> None:
    line = PrintingLine(*JSON)
    layouts = LiveLayouts()
    following, reader = session(line, layouts.find(device(line)))
    line.says(b'{"t": 22}\n', b"noise\n", b'{"t": "?"}\n', b'{"t": 1}\n')
    first = line.tap.next_seq
    line.says(*later)
    assert rows(following, reader) == [{"t": 22}, {"t": None}, {"t": 1}]
    summary = following.summary()
    assert (following.ended, summary["why"], summary["next_seq"]) == (LAYOUT_CHANGED, why, first)
    # A session that goes on there has the columns, and each of the rows.
    following, reader = session(line, layouts.find(device(line), first), since_seq=first)
    assert len(rows(following, reader)) == len(later) and not following.ended


def test_a_session_of_the_past_has_rows_of_its_layout_and_counts_the_others() -> None:
    line = PrintingLine(*CSV, *JSON * 3)
    following, reader = session(line, LiveLayouts().find(device(line)), since_seconds=3600)
    assert rows(following, reader) == [{"t": 20}, {"t": 21}, {"t": 22}] * 3
    assert following.summary()["rejected"] == 3 and not following.ended


def test_what_is_in_memory_is_a_table_without_the_lines_at_its_ends() -> None:
    line = PrintingLine()
    line.tap.cut("opened")
    line.says(b'1}\n{"t"', b': 20}\n{"t": 2.5}\n', b'{"t": 3}\n{"t"')
    found = LiveLayouts().find(device(line))
    line.says(b': 4, "later": 1}\n')
    following, reader = session(line, found, follow=False)
    assert rows(following, reader) == [{"t": 20}, {"t": 2.5}, {"t": 3}]
    summary = following.summary()
    assert (following.ended, summary["rejected"], summary["next_seq"]) == (IN_MEMORY, 0, 2)


def test_lines_in_memory_are_text_with_the_one_that_goes_on() -> None:
    line = PrintingLine(b"one\ntw", b"o\nthree")
    request = DeviceSession.model_validate({"device": "demo", "format": "lines", "follow": False})
    following = Following(device(line), request, lambda: 0.0)
    reader = following.start()
    assert [row["text"] for row in told(following.feed(reader.rest()))] == ["one", "two", "three"]
    assert following.ended == IN_MEMORY
