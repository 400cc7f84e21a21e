"""Who reads the input of a board, by what the board sends; and how much of ours it may not have read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastflight.device.unread_input import BUDGET_BYTES, FIRST_PAUSE_SECONDS, SEARCHED_BYTES, Reader, UnreadInput
from fastflight.protocol import agent_frames as frames

BANNER = b'\r\nMicroPython 9458e3a23f on 2026-07-05; a board\r\nType "help()" for more information.\r\n>>> '
OLD_BANNER = b'MicroPython v1.9.2-34-gd64154c73 on 2017-09-01; micro:bit\r\nType "help()" for more.\r\n>>> '
ANNOUNCEMENT = frames.encode(frames.ANNOUNCEMENT, 0, b"1 rp2")


class Line:
    """The unread input of a board, by a clock that stands."""

    def __init__(self) -> None:
        self.now = 0.0
        self.input = UnreadInput(lambda: self.now)

    def refuse(self) -> bool:
        """Make a request of one byte that is not answered. Return whether it was allowed."""
        if not self.input.may_ask(1):
            return False
        self.input.sent(1)
        self.input.unanswered()
        return True


@pytest.mark.parametrize(
    ("said", "reader", "unread"),
    [
        (BANNER, Reader.REPL, 0),
        (OLD_BANNER, Reader.REPL, 0),
        (BANNER + b'{"celsius": 21.5}\r\n', Reader.REPL, 0),
        (b"\r\nraw REPL; CTRL-B to exit\r\n>", Reader.REPL, 0),
        (b"row 1\r\n" + ANNOUNCEMENT, Reader.REPL, 0),
        (b"KeyboardInterrupt: \r\n>>> ", Reader.UNKNOWN, 1),
        (b"OSError: ETIMEDOUT\r\n\x04>", Reader.UNKNOWN, 1),
        (b"Starting asyncio REPL...\r\n", Reader.UNKNOWN, 1),
        (b"42\r\n--> ", Reader.UNKNOWN, 1),
        (b'{"celsius": 21.5}\r\n', Reader.NOBODY, 1),
        (b"a -> b, c >> d\r\nMicroPython v1.27\r\n", Reader.NOBODY, 1),
        (b"\x16h" + b"\0" * 20, Reader.NOBODY, 1),
    ],
)
@settings(max_examples=25)
@given(sizes=st.lists(st.integers(1, 30), max_size=20))
def test_what_a_board_sends_tells_who_reads(said: bytes, reader: Reader, unread: int, sizes: list[int]) -> None:
    line = Line()
    assert line.refuse()
    for size in sizes:
        line.input.received(said[:size])
        said = said[size:]
    line.input.received(said)
    assert (line.input.reader, line.input.unread) == (reader, unread)


@given(sizes=st.lists(st.integers(1, 30), max_size=20))
def test_aiorepl_that_starts_at_a_prompt_is_known_after_a_reset(sizes: list[int]) -> None:
    line = Line()
    line.input.received(BANNER)
    said = b"MPY: soft reboot\r\nrow 0\r\nStarting asyncio REPL...\r\n--> "
    for size in sizes:
        line.input.received(said[:size])
        said = said[size:]
    line.input.received(said)
    line.input.forget()
    assert line.input.aiorepl


def test_a_prompt_before_the_newest_output_tells_nothing() -> None:
    line = Line()
    assert line.refuse()
    line.input.received(BANNER + b"x" * SEARCHED_BYTES)
    assert (line.input.reader, line.input.unread) == (Reader.NOBODY, 1)


def test_a_board_that_does_not_answer_is_left_alone_for_a_pause_that_grows() -> None:
    line = Line()
    asked = []
    for second in range(1000):
        line.now = float(second)
        if line.refuse():
            asked.append(second)
    assert asked == [0, 10, 30, 70, 150, 310, 630]
    line.now += FIRST_PAUSE_SECONDS
    line.input.answered()
    assert line.refuse()
    line.now += FIRST_PAUSE_SECONDS
    assert line.refuse()


@given(st.lists(st.sampled_from(["refuse", "open", "prompt", "wait"])))
def test_no_more_than_the_budget_is_sent_whatever_happens(events: list[str]) -> None:
    line = Line()
    sent = 0
    for event in [*events, *["refuse", "open", "refuse", "prompt", "refuse", "wait"] * 10]:
        match event:
            case "refuse":
                sent += line.refuse()
            case "open":
                line.input.forget()
            case "prompt":
                line.input.received(b">>> ")
            case "wait":
                line.now = 2 * line.now + FIRST_PAUSE_SECONDS
    assert sent == BUDGET_BYTES
    line.input.forget(empty=True)
    assert line.refuse()


def test_a_device_that_prints_and_has_never_answered_gets_no_further_byte() -> None:
    line = Line()
    assert line.refuse()
    line.input.received(b'{"n": 1}\r\n{"n": 2}\r\n')
    line.now = 1_000_000.0
    assert not line.refuse()
    line.input.received(b"KeyboardInterrupt: \r\n>>> ")
    assert line.refuse()
    line.input.received(BANNER)
    assert line.input.kind == "micropython"
    # A board that has answered once may come back to its prompt unseen.
    line.input.forget()
    line.input.received(b'{"n": 3}\r\n{"n": 4}\r\n')
    assert line.refuse()
    line.now *= 2
    assert line.refuse()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b'{"n": 1}\r\n{"n": 2}\r\n', "lines"),
        (b"$GPGGA,092725.00,4717.11399,N*5B\n$GPGSA,A,3*39\n", "lines"),
        ("\n21.5 °C\r\n".encode(), "lines"),
        (b"one line without its end, and no other", "unknown"),
        (b"", "unknown"),
        # At a wrong speed.
        (b"\n\xe6\x80\x1e\xfe\n\x00\x86\xf8\n\xfe\xfe\xfe\xfe\n", "unknown"),
    ],
)
def test_a_device_whose_lines_go_on_after_an_interrupt_only_prints(said: bytes, kind: str) -> None:
    line = Line()
    line.input.received(said)
    line.input.uninterrupted()
    assert line.input.kind == kind
    assert line.input.may_ask(1) == (kind == "unknown")
    line.input.forget()
    assert line.input.kind == kind
    line.input.received(b"KeyboardInterrupt: \r\n>>> ")
    assert line.input.kind == "unknown"
    line.input.answered()
    line.input.received(said)
    line.input.uninterrupted()
    assert line.input.kind == "micropython"
