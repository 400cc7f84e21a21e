"""Raw paste and its window, byte by byte and whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.errors import ProtocolError, TransportTimeout
from fastflight.protocol import Inbox, Send, raw_paste
from tests.support.memory import Answer, Entry, Silence, play

WINDOW = b"R\x01\x04\x00"


def test_waits_for_the_window_before_it_sends_on() -> None:
    script: list[Entry] = [
        Send(b"\x05A\x01"),
        Answer(WINDOW),
        Send(b"abcd"),
        Answer(b"\x01"),
        Send(b"efgh"),
        Answer(b"\x01"),
        Send(b"i\x04"),
        Answer(b"\x01\x04"),
    ]
    assert play(raw_paste.submit(Inbox(), b"abcdefghi"), script).result is True


@given(st.lists(st.integers(1, 3), max_size=20))
def test_windows_that_come_early_are_used(sizes: list[int]) -> None:
    script: list[Entry] = [
        Send(b"\x05A\x01"),
        Answer(WINDOW + b"\x01\x01", may_wait=True),
        Send(b"abcdefghi\x04"),
        Answer(b"\x04"),
    ]
    if not sizes:
        assert play(raw_paste.submit(Inbox(), b"abcdefghi"), script).result is True


def test_a_board_that_stops_early_is_acknowledged_and_its_reason_left_to_read() -> None:
    inbox = Inbox()
    script: list[Entry] = [
        Send(b"\x05A\x01"),
        Answer(WINDOW),
        Send(b"abcd"),
        Answer(b"\x04"),
        Send(b"\x04"),
    ]
    assert play(raw_paste.submit(inbox, b"abcdefgh"), script).result is True


def test_empty_code_is_only_an_end() -> None:
    script: list[Entry] = [Send(b"\x05A\x01"), Answer(WINDOW), Send(b"\x04"), Answer(b"\x04")]
    assert play(raw_paste.submit(Inbox(), b""), script).result is True


@pytest.mark.parametrize(
    ("answer", "text"),
    [(b"XY", "b'XY' to a request"), (b"R\x01\x00\x00", "window of no bytes")],
    ids=["unknown answer", "empty window"],
)
def test_what_the_protocol_does_not_allow(answer: bytes, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        play(raw_paste.submit(Inbox(), b"1"), [Send(b"\x05A\x01"), Answer(answer)])


def test_other_bytes_instead_of_a_window_are_refused() -> None:
    script: list[Entry] = [Send(b"\x05A\x01"), Answer(WINDOW), Send(b"abcd"), Answer(b"?")]
    with pytest.raises(ProtocolError, match=r"b'\?' during raw paste"):
        play(raw_paste.submit(Inbox(), b"abcdef"), script)
    script = [Send(b"\x05A\x01"), Answer(WINDOW), Send(b"ab\x04"), Answer(b"?")]
    with pytest.raises(ProtocolError, match=r"ended raw paste with b'\?'"):
        play(raw_paste.submit(Inbox(), b"ab"), script)


def test_a_window_that_never_comes_times_out() -> None:
    script: list[Entry] = [Send(b"\x05A\x01"), Answer(WINDOW), Send(b"abcd"), Silence()]
    with pytest.raises(TransportTimeout):
        play(raw_paste.submit(Inbox(), b"abcdef", probing=True), script)
