"""What the timeline of the page finds in the lines of a device."""

from __future__ import annotations

import pytest

from fastflight.gateway.page.marks import BEFORE_LINES, MAX_MARKS, TEXT_LINES, MarkFinder, kind_of

SECOND = 1_000_000_000
TRACEBACK = [
    b"Traceback (most recent call last):\r",
    b'  File "main.py", line 7, in <module>\r',
    b"ValueError: no sensor\r",
]


def found(*lines: bytes, every_ns: int = 0) -> list[tuple[int, str, str]]:
    finder = MarkFinder()
    finder.feed([(place * every_ns, line) for place, line in enumerate(lines)], 0)
    finder.feed((), len(lines) * every_ns + SECOND)
    return [(mark["time"], mark["kind"], mark["text"]) for mark in finder.marks]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"I2C error 5", "error"),
        (b"ERROR: no network", "error"),
        (b'{"level": "error", "text": "x"}', "error"),
        (b'{"error": 0.2, "t": 1}', None),
        (b"MPY: soft reboot", "reset"),
        (b"rst:0x1 (POWERON_RESET),boot:0x13", "reset"),
        (b"Guru Meditation Error: Core 0 panic'ed", "traceback"),
        (b"21.4,45", None),
    ],
)
def test_lines_that_stand_out_have_a_kind(line: bytes, kind: str | None) -> None:
    assert kind_of(line) == kind


def test_a_traceback_is_one_mark_with_the_lines_around_it() -> None:
    lines = [b"row %d" % number for number in range(9)]
    (mark,) = found(*lines, *TRACEBACK, b"row 9", every_ns=1_000_000)
    assert mark[:2] == (9, "traceback")
    texts = mark[2].split("\n")
    assert texts[:BEFORE_LINES] == ["row 5", "row 6", "row 7", "row 8"]
    assert texts[BEFORE_LINES:] == [*(line.decode().rstrip() for line in TRACEBACK), "row 9"]


def test_a_reset_ends_the_mark_before_it() -> None:
    marks = found(*TRACEBACK, b"MPY: soft reboot", b"MicroPython v1.28.0 on 2026-01-01")
    assert [kind for _, kind, _ in marks] == ["traceback", "reset"]
    assert [kind for _, kind, _ in found(b"I2C error", *TRACEBACK)] == ["traceback"]


def test_a_board_that_only_prints_errors_is_bounded() -> None:
    marks = found(*[b"error " + b"x" * 9000] * 40_000, every_ns=SECOND // 1000)
    assert len(marks) == MAX_MARKS
    assert all(len(text) < (BEFORE_LINES + TEXT_LINES) * 161 for *_, text in marks)
