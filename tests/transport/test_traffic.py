"""Whatever the reads, what a board said by itself is told from what it answered to a request."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.device.board import OpenBoard
from fastflight.errors import TransportTimeout
from fastflight.protocol import agent_frames as frames
from fastflight.protocol.agent import AgentRepl
from fastflight.protocol.raw_repl import CTRL_A, CTRL_B, CTRL_D, RawRepl
from fastflight.protocol.traffic import HEADINGS, LEAVE_SECONDS, Traffic
from fastflight.transport.chunk_buffer import Chunk
from fastflight.transport.run import arun
from fastflight.transport.tap import AFTER_REQUEST, WITHIN_REQUEST, Tap

BANNER = b'\r\nMicroPython v1.27.0 on 2026-01-01; a board\r\nType "help()" for more information.\r\n>>> '
ENTER = b"\r\nraw REPL; CTRL-B to exit\r\n>"
ANSWER = b"OK42\r\n\x04\x04>"


class FilteredLine:
    """A line and its `Traffic`, with a clock that stands still."""

    def __init__(self) -> None:
        self.now = 0.0
        self.tap = Tap()
        self.repl = RawRepl()
        self.traffic = Traffic(
            lambda data, is_request: self.tap.feed("rx", data, request=is_request),
            lambda begins_line: self.tap.end_of_request(begins_line=begins_line),
            lambda: self.now,
        )
        self._reader = self.tap.reader()

    def begin(self) -> None:
        self.repl.traffic = self.traffic
        self.traffic.begin(self.repl.beside)

    def sends(self, data: bytes) -> None:
        self.tap.feed("tx", data, request=self.traffic.sending())

    def says(self, data: bytes) -> None:
        self.traffic.received(data)

    def leave(self) -> None:
        for step in self.repl.leave():
            self.sends(step.data)

    def seen(self) -> list[Chunk]:
        return [item for item in self._reader.rest() if isinstance(item, Chunk)]

    def text(self) -> bytes:
        chunks = self.seen()
        assert all(chunk.direction == "rx" for chunk in chunks)
        return b"".join(chunk.data for chunk in chunks)


def split(data: bytes, places: list[int]) -> Iterator[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    for start, end in zip([0, *ends], ends, strict=False):
        yield data[start:end]


@given(st.lists(st.integers(0, 400)), st.lists(st.integers(0, 400)), st.sampled_from([b"", b"row 2\r\n", b"half a"]))
def test_any_split_gives_the_same(first: list[int], second: list[int], before: bytes) -> None:
    line = FilteredLine()
    line.says(b"row 1\r\n")
    line.begin()
    line.sends(b"\x01")
    for data in split(before + ENTER + ANSWER, first):
        line.says(data)
    line.leave()
    line.traffic.end()
    for data in split(BANNER + b"row 3\r\n", second):
        line.says(data)
    assert line.text() == b"row 1\r\n" + before + b"row 3\r\n"


@given(st.lists(st.integers(0, 400)))
def test_a_program_that_does_not_stop_is_heard_whole(places: list[int]) -> None:
    said = b"raw\r\n>>> \r\nraw REPL; CTRL-B\r\nMicroPython is here\r\n\r\n\r\n> > >"
    line = FilteredLine()
    line.begin()
    line.sends(b"\x01")
    for data in split(said, places):
        line.says(data)
    line.traffic.end()
    assert line.text() == said


class AioreplPort:
    """The line of a board with aiorepl, whose program prints one of `prints` before and after each answer."""

    def __init__(self, line: FilteredLine, prints: list[bytes], sizes: list[int], newline: bytes) -> None:
        self.printed = b""
        self._line = line
        self._newline = newline
        self._prints, self._sizes = cycle(prints), cycle(sizes)
        self._waiting = self._print()

    def _print(self) -> bytes:
        data = next(self._prints).replace(b"\n", self._newline)
        self.printed += data
        return data

    async def awrite(self, data: bytes, timeout: float) -> None:
        self._line.sends(data)
        answer = b""
        if data.endswith(CTRL_D):
            mark = re.search(rb"\x1f\d+\x1f", data)
            answer = b"OK" + (mark[0] + b"True\n" if mark else b"") + b"\x04\x04>"
        answer += b"\n--> " if CTRL_B in data else b""
        answer += b"raw REPL; CTRL-B to exit\n>" if CTRL_A in data else b""
        self._waiting += self._print() + answer.replace(b"\n", self._newline) + self._print()

    async def aread(self, timeout: float) -> bytes:
        if not self._waiting:
            raise TransportTimeout("nothing")
        size = next(self._sizes)
        data, self._waiting = self._waiting[:size], self._waiting[size:]
        self._line.says(data)
        return data


PRINTS = st.sampled_from([b"", b"a row\n", b"\n", b"half", b"a row\n\nanother\n"])


@given(st.lists(PRINTS, min_size=1), st.lists(st.integers(1, 60), min_size=1), st.sampled_from([b"\n", b"\r\n"]))
def test_no_print_is_lost_when_a_request_begins_and_ends_beside_aiorepl(
    prints: list[bytes], sizes: list[int], newline: bytes
) -> None:
    line = FilteredLine()
    port = AioreplPort(line, prints, sizes, newline)
    board = OpenBoard()
    board._unread.aiorepl = True

    async def main() -> None:
        for _ in range(2):
            line.repl = board.repl
            line.begin()
            await arun(board.wake(interrupt=False), port)
            assert board.repl.beside == "aiorepl"
            await arun(board.repl.execute(b"0", 1.0), port)
            await arun(board.end(), port)
            line.traffic.end()
            with contextlib.suppress(TransportTimeout):
                while True:
                    await port.aread(0)

    asyncio.run(main())
    line.now += LEAVE_SECONDS
    line.says(b"")
    assert line.text() == port.printed


def test_a_board_whose_aiorepl_has_ended_answers_to_a_request() -> None:
    line = FilteredLine()
    line.traffic.begin("aiorepl")
    line.traffic.expect(HEADINGS)
    line.says(b"row 1\r\n" + ENTER)
    line.traffic.use("none")
    line.traffic.talk()
    line.says(ANSWER)
    line.traffic.leave()
    line.says(BANNER + b"row 2\r\n")
    line.traffic.end()
    assert line.text() == b"row 1\r\n\r\nrow 2\r\n"


def test_two_requests_in_a_row_whose_answers_come_together() -> None:
    line = FilteredLine()
    line.begin()
    line.says(ENTER + ANSWER)
    line.leave()
    line.traffic.end()
    line.begin()
    line.says(BANNER + b"row 1\r\n" + ENTER + ANSWER)
    line.leave()
    line.traffic.end()
    line.says(BANNER)
    assert line.text() == b"row 1\r\n"


def test_a_prompt_that_does_not_come_back_is_waited_for_no_longer_than_a_second() -> None:
    line = FilteredLine()
    line.begin()
    line.says(ENTER)
    line.leave()
    line.traffic.end()
    line.says(b"\r\nMicroPython v1")
    assert line.seen() == []
    line.now += LEAVE_SECONDS
    line.says(b" is what I like\r\n")
    assert line.text() == b"\r\nMicroPython v1 is what I like\r\n"
    line.says(BANNER)
    assert line.text() == BANNER


def test_a_line_does_not_go_on_over_a_request() -> None:
    line = FilteredLine()
    for begun, cut in ((b"whole\r\n", ""), (b"half", AFTER_REQUEST)):
        line.says(begun)
        line.begin()
        line.says(ENTER)
        line.leave()
        line.traffic.end()
        line.says(BANNER)
        assert line.tap.reader().begins_line
        line.says(b"next\r\n")
        assert [chunk.cut for chunk in line.seen()] == ["", cut]


def test_after_a_request_that_broke_off_nobody_knows_where_a_line_begins() -> None:
    line = FilteredLine()
    line.begin()
    line.says(ENTER + b"OK")
    line.traffic.end()
    assert not line.tap.reader().begins_line
    line.says(b"half a row\r\n")
    assert [(chunk.data, chunk.cut) for chunk in line.seen()] == [(b"half a row\r\n", WITHIN_REQUEST)]


def test_the_traffic_of_requests_is_counted_and_drops_nothing() -> None:
    line = FilteredLine()
    line.says(b"row\r\n")
    line.begin()
    line.says(ENTER)
    for _ in range(100):
        line.sends(b"x" * 100_000)
    line.leave()
    line.traffic.end()
    assert line.text() == b"row\r\n"
    assert line.tap.byte_counts == {"rx": len(b"row\r\n" + ENTER), "tx": 10_000_001}


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_an_agent_that_answers_late_prints_no_row(size: int) -> None:
    """The request gives it up and asks for the raw REPL. The answer comes then, or when the request has ended."""
    line, late = FilteredLine(), frames.encode(frames.ANNOUNCEMENT, 0, b"1 rp2")
    line.traffic.has_agent = True
    line.repl = AgentRepl()
    line.begin()
    line.says(b"row 1\r\n")
    line.traffic.use("none")
    for said in (b"row 2\r\n" + late, b"row 3\r\n"):
        for at in range(0, len(said), size):
            line.says(said[at : at + size])
    line.traffic.end()
    line.says(late + b"row 4\r\n")
    assert line.text() == b"".join(b"row %d\r\n" % number for number in range(1, 5))


def test_the_prompt_of_a_board_whose_agent_has_ended_answers_to_a_request() -> None:
    line = FilteredLine()
    line.traffic.has_agent = True
    line.begin()
    line.says(b"row\r\n" + ENTER + ANSWER)
    line.leave()
    line.traffic.end()
    line.says(BANNER + b"row\r\n")
    assert line.text() == b"row\r\nrow\r\n"
