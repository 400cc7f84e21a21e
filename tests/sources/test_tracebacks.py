"""Which tracebacks are found in what a device prints, however it comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.gap import Gap
from fastflight.sources.tracebacks import CUT_OFF, MAX_LINES, Traceback, TracebackReader, without_numbers
from fastflight.transport.chunk_buffer import Chunk
from fastflight.transport.tap import AFTER_REQUEST

SECOND = 10**9
CRASH = (
    b"Traceback (most recent call last):\r\n"
    b'  File "main.py", line 8, in <module>\r\n'
    b'  File "sensor.py", line 5, in read\r\n'
    b"ValueError: bad reading 3\r\n"
)
PROMPT = b"MicroPython v1.24.0 on 2024-10-25; Pico\r\n>>> "
FOUND = ("ValueError: bad reading 3", "sensor.py:5 in read")


def chunks(*pieces: bytes, cut: str = "") -> list[Chunk]:
    """Chunks with these bytes, the times 1 s, 2 s and so on, and a cut before the last one."""
    made = [Chunk(seq, (seq + 1) * SECOND, "rx", piece) for seq, piece in enumerate(pieces)]
    return [*made[:-1], made[-1]._replace(cut=cut)]


def found(*items: Chunk | Gap, later: float = 60.0) -> list[tuple[str, str]]:
    """Error and place of each traceback in `items`, when nothing more comes for `later` seconds."""
    return [(each.error, each.place) for each in tracebacks(*items, later=later)]


def tracebacks(*items: Chunk | Gap, later: float = 60.0) -> list[Traceback]:
    together, one_by_one = TracebackReader(), TracebackReader()
    now = max(item.time_ns for item in items if isinstance(item, Chunk)) + round(later * SECOND)
    found = [*together.feed(items), *together.settle(now)]
    again = [each for item in items for each in one_by_one.feed([item])]
    assert [*again, *one_by_one.settle(now)] == found
    return found


def test_a_traceback_has_its_error_the_place_of_its_last_frame_its_text_and_its_first_row() -> None:
    (crash,) = tracebacks(*chunks(b"t=1\r\n", b"t=2\r\n" + CRASH + PROMPT))
    assert (crash.error, crash.place) == FOUND
    assert crash.text == CRASH.decode().replace("\r\n", "\n").rstrip()
    assert (crash.seq, crash.time_ns) == (1, 2 * SECOND)


@given(st.lists(st.integers(0, 400), max_size=20))
def test_it_does_not_matter_how_the_bytes_are_cut(places: list[int]) -> None:
    text = b"Trace of T\r\n" + CRASH + b"restarting\r\nTraceback (most" + CRASH + PROMPT
    ends = sorted({0, *(place % len(text) for place in places), len(text)})
    pieces = [text[start:end] for start, end in zip(ends, ends[1:], strict=False)]
    assert found(*chunks(*pieces)) == [FOUND, FOUND]


def test_byte_by_byte_it_begins_with_the_row_of_its_first_byte() -> None:
    text = b"T\r\n" + CRASH + PROMPT
    (crash,) = tracebacks(*chunks(*(text[at : at + 1] for at in range(len(text)))))
    assert (crash.seq, crash.error) == (3, FOUND[0])


def test_the_prompt_or_the_next_line_ends_it_and_without_them_silence_does() -> None:
    reader = TracebackReader()
    assert [each.error for each in reader.feed(chunks(CRASH + b">>> "))] == [FOUND[0]]
    assert [each.error for each in reader.feed(chunks(CRASH + b"boot\r\n"))] == [FOUND[0]]
    assert list(reader.feed(chunks(CRASH))) == [] and reader.is_inside
    assert [each.error for each in reader.settle(SECOND)] == [FOUND[0]]
    assert not reader.is_inside and list(reader.settle(2 * SECOND)) == []


def test_an_error_without_a_line_end_counts_when_the_board_is_silent() -> None:
    assert found(*chunks(CRASH.rstrip())) == [FOUND]
    assert found(*chunks(CRASH.rstrip()), later=1.0) == []


def test_joined_tracebacks_are_one_with_the_last_error() -> None:
    text = (
        CRASH + b"\nDuring handling of the above exception, another exception occurred:\n\n"
        b'Traceback (most recent call last):\n  File "main.py", line 9, in go\n    show(x)\n    ^^^^^^^\nKeyError: 7\n'
    )
    (crash,) = tracebacks(*chunks(text))
    assert (crash.error, crash.place) == ("KeyError: 7", "main.py:9 in go")
    assert "bad reading 3" in crash.text and "During handling" in crash.text
    # Two that nothing joins are two.
    assert found(*chunks(CRASH + CRASH)) == [FOUND, FOUND]


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (b"json.decoder.JSONDecodeError: Expecting value", "json.decoder.JSONDecodeError: Expecting value"),
        (b"struct.error: unpack", "struct.error: unpack"),
        (b"MemoryError: ", "MemoryError:"),
        (b"Overheated", "Overheated"),
        (b"OSError: -202", "OSError: -202"),
        (b"MPY: soft reboot", CUT_OFF),
        (b'{"t": 21.5}', CUT_OFF),
        (b"t=21.5", CUT_OFF),
    ],
)
def test_what_is_an_error_and_what_is_other_output(last: bytes, error: str) -> None:
    text = CRASH.replace(b"ValueError: bad reading 3", last)
    assert found(*chunks(text)) == [(error, FOUND[1])]


def test_what_a_gap_a_lost_line_or_a_reset_cuts_off_is_still_a_crash() -> None:
    begin, rest = CRASH[:80], CRASH[80:]
    cut_off = (CUT_OFF, "main.py:8")
    first, second = chunks(begin, rest)
    assert found(first, Gap(1, 7), second._replace(seq=8)) == [cut_off]
    assert found(*chunks(begin, rest, cut="the line was lost")) == [cut_off]
    assert found(*chunks(begin[:76], CRASH)) == [cut_off, FOUND]
    assert found(*chunks(begin[:70], CRASH)) == [FOUND]
    assert found(*chunks(begin)) == [cut_off]


@pytest.mark.parametrize(
    "text",
    [
        CRASH.replace(b"ValueError: bad reading 3", b"KeyboardInterrupt: "),
        b'Traceback (most recent call last):\r\n  File "<stdin>", line 1, in <module>\r\nZeroDivisionError: \r\n>>> ',
        b"Traceback (most recent call last):\r\nno frame\r\n",
        b'{"log": "Traceback (most recent call last):\\n  File \\"main.py\\", line 1\\nValueError: x"}\r\n',
        b"Traceback (most recent call last): is how it begins\r\n",
    ],
)
def test_what_is_no_crash_of_a_program(text: bytes) -> None:
    assert found(*chunks(text)) == []
    assert found(*chunks(text + CRASH)) == [FOUND]


def test_what_a_request_stops_and_what_is_sent_to_the_board_are_no_crashes() -> None:
    assert found(*chunks(CRASH[:80], b"MicroPython\r\n", cut=AFTER_REQUEST)) == []
    assert found(Chunk(0, SECOND, "tx", CRASH)) == []


def test_of_a_long_traceback_the_beginning_and_the_end_are_kept() -> None:
    frames = b"".join(b'  File "main.py", line %d, in deep\r\n' % number for number in range(1000))
    text = b"Traceback (most recent call last):\r\n" + frames + b"RuntimeError: maximum recursion depth\r\n"
    (crash,) = tracebacks(*chunks(text))
    assert (crash.error, crash.place) == ("RuntimeError: maximum recursion depth", "main.py:999 in deep")
    assert len(crash.text.splitlines()) == 2 * MAX_LINES + 1 and "  ... 962 lines" in crash.text


def test_numbers_of_a_message_do_not_make_another_error() -> None:
    assert without_numbers("ValueError: bad reading 3.5 of 0x3f") == "ValueError: bad reading # of #"
    assert without_numbers("MemoryError: allocating 1024 bytes") == without_numbers("MemoryError: allocating 8 bytes")
    assert without_numbers("TypeError: <Foo object at 7f3a2b10>") == without_numbers(
        "TypeError: <Foo object at b0a1c2>"
    )
    # Names with digits differ, and so do numbers that say what has failed.
    assert without_numbers("KeyError: sensor1") != without_numbers("KeyError: sensor2")
    assert without_numbers("OSError: [Errno 110] ETIMEDOUT") == "OSError: [Errno 110] ETIMEDOUT"
    assert without_numbers("OSError: -202") == "OSError: -202"
