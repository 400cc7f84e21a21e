"""How a live session goes on over outages, and where it ends, without a line."""

from __future__ import annotations

from typing import Any, cast

import pytest

from fastflight.device import Device
from fastflight.service.requests import DeviceSession
from fastflight.sources.following import Following
from fastflight.transport.chunk_buffer import CHUNK_BYTES, TapReader
from fastflight.transport.tap import Tap
from tests.sources.test_session_rows import text, told


class FollowedLine:
    """What a session needs of a device."""

    def __init__(self, kept: int = 1000) -> None:
        self.tap = Tap(kept_bytes=kept * (CHUNK_BYTES + 8))
        self.outages = 0
        self.trouble = self.recording = ""
        self.is_open = True

    def says(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.tap.feed("rx", piece)

    def lost(self) -> None:
        self.trouble = "it was pulled"
        self.outages += 1
        self.tap.mark_lost()

    def back(self) -> None:
        self.tap.cut("the line was lost: it was pulled")
        self.trouble = ""


def session(line: FollowedLine, **keys: Any) -> tuple[Following, TapReader]:
    request = DeviceSession.model_validate({"device": "demo", "format": "lines", "flush_ms": 0, **keys})
    following = Following(cast(Device, line), request, lambda: 0.0)
    return following, following.start()


def feed(following: Following, reader: TapReader) -> list[Any]:
    """Lines as text, and notes, of all that is there."""
    return [text(each) for each in told(following.feed(reader.rest()))]


def test_lines_are_not_put_together_over_an_outage_that_a_slow_reader_finds_later() -> None:
    line = FollowedLine()
    following, reader = session(line, reconnect=True)
    line.says(b"whole\n", b"15")
    line.lost()
    line.back()
    line.says(b"5,2.0\n", b"next\n")
    outage = ("line lost", 2, 1)
    assert feed(following, reader) == ["whole", "15", outage, "5,2.0", "next"]
    assert feed(following, reader) == []
    assert following.rows.summary()["gaps"] == 1


def test_an_outage_is_told_at_once_to_a_reader_that_has_all_and_once() -> None:
    line = FollowedLine()
    following, reader = session(line, reconnect=True)
    line.says(b"15")
    line.lost()
    assert feed(following, reader) == ["15", ("line lost", 1, 0)]
    line.lost()  # it could not be opened again
    assert feed(following, reader) == []
    line.back()
    line.says(b"5\n")
    assert feed(following, reader) == ["5"]
    assert following.rows.summary()["gaps"] == 1


def test_what_was_kept_of_an_earlier_outage_is_told() -> None:
    line = FollowedLine()
    line.back()
    line.says(b"one\n15")
    line.back()
    line.says(b"5\n")
    following, reader = session(line, since_seq=0)
    outage = ("line lost", 1, 0)
    assert feed(following, reader) == ["one", "15", outage, "5"]


def test_the_end_of_a_device_is_where_it_was_lost_though_it_is_back() -> None:
    line = FollowedLine()
    following, reader = session(line)
    line.says(b"last\n")
    line.lost()
    line.back()
    line.says(b"of another life\n")
    assert feed(following, reader) == ["last"]
    summary = following.summary()
    assert (summary["ended"], summary["next_seq"]) == ("device gone", 1)


def test_a_gap_at_the_end_is_as_long_as_the_session() -> None:
    line = FollowedLine(kept=2)
    following, reader = session(line)
    line.says(*[b"a\n"] * 5)
    following.drain()
    line.says(*[b"b\n"] * 5)
    assert feed(following, reader) == [("not read in time", 0, 4)]
    assert following.summary()["next_seq"] == 5 and following.ended == "server draining"


@pytest.mark.parametrize("since_seq", [1, 2])
def test_a_line_behind_a_cut_is_not_known_to_be_whole(since_seq: int) -> None:
    line = FollowedLine()
    line.says(b"1,2\n")
    line.back()
    line.says(b"5,2\n", b"3,4\n")
    following, reader = session(line, since_seq=since_seq, format="csv", schema={"a": "int64", "b": "int64"})
    assert [row["a"] for row in told(following.feed(reader.rest()))] == [3]


def test_a_session_that_is_told_to_end_before_it_waits_does_not_wait() -> None:
    following, reader = session(FollowedLine())
    assert following.wait_seconds(5.0) == 5.0
    following.drain()
    assert following.wait_seconds(5.0) == 0.0
    assert (feed(following, reader), following.ended) == ([], "server draining")
