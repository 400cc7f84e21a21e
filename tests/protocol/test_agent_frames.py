"""Frames of the agent between what a program prints: any split gives the same, and garbage is output."""

from __future__ import annotations

import binascii
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.protocol.agent_frames import (
    ANNOUNCEMENT,
    ANSWERS,
    CHECKED_AT_ONCE,
    CHECKED_PER_BYTE,
    CONTENT,
    HEAD,
    HELLO,
    MARK,
    MAX_PAYLOAD_BYTES,
    RUN,
    Frame,
    FrameReader,
    encode,
    has_announcement,
    to_board,
)

FRAMES = st.builds(Frame, st.sampled_from(sorted(ANSWERS)), st.integers(0, 255), st.binary(max_size=80))
# Output of programs, with bytes that look like the beginning of a frame.
OUTPUT = st.lists(st.sampled_from([MARK, b"h", b"d", b"\0", b"row 1\r\n", HELLO]) | st.binary(max_size=20)).map(
    b"".join
)


def read(pieces: list[bytes]) -> list[bytes | Frame]:
    """What a reader makes of pieces, with neighbouring output as one."""
    reader, events = FrameReader(), list[bytes | Frame]()
    for piece in pieces:
        events += reader.feed(piece)
    events.append(reader.flush())
    joined: list[bytes | Frame] = []
    for event in events:
        if isinstance(event, bytes) and joined and isinstance(before := joined[-1], bytes):
            joined[-1] = before + event
        elif event:
            joined.append(event)
    return joined


def wire(event: bytes | Frame) -> bytes:
    return event if isinstance(event, bytes) else encode(event.kind, event.number, event.payload)


@pytest.mark.parametrize(
    ("data", "passed"),
    [
        (b"row 1\r\n", b"row 1\r\n"),
        (b"row" + MARK, b"row"),
        (MARK + b"x", MARK + b"x"),
        (MARK + bytes([min(ANSWERS)]), b""),
    ],
)
def test_only_what_may_begin_a_frame_is_held_back(data: bytes, passed: bytes) -> None:
    assert b"".join(map(wire, FrameReader().feed(data))) == passed


@given(st.lists(FRAMES | st.sampled_from([b"row 1\r\n", b"\x16x", b"2,3\r\n"])))
def test_frames_are_found_between_output(events: list[bytes | Frame]) -> None:
    found = read([b"".join(map(wire, events))])
    assert [each for each in found if isinstance(each, Frame)] == [each for each in events if isinstance(each, Frame)]
    assert b"".join(map(wire, found)) == b"".join(map(wire, events))


@given(st.lists(FRAMES | OUTPUT), st.lists(st.integers(0, 1000)))
def test_any_split_gives_the_same(events: list[bytes | Frame], places: list[int]) -> None:
    data = b"".join(map(wire, events))
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    assert read([data[start:end] for start, end in zip([0, *ends], ends, strict=False)]) == read([data])


@given(st.binary(max_size=300) | OUTPUT)
def test_garbage_is_output_and_no_byte_of_it_is_lost(data: bytes) -> None:
    assert b"".join(map(wire, read([data[at : at + 1] for at in range(len(data))]))) == data


@given(FRAMES, st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_makes_a_frame_output(frame: Frame, place: int, change: int) -> None:
    data = bytearray(wire(frame))
    data[place % len(data)] ^= change
    assert frame not in read([bytes(data)])


@given(st.binary(max_size=200), st.integers(0, 255))
def test_a_frame_to_the_board_holds_no_ctrl_c_and_one_mark(payload: bytes, number: int) -> None:
    data = to_board(RUN, number, payload)
    assert b"\x03" not in data
    assert data.count(MARK) == 1


@given(st.lists(st.integers(0, 400_000), max_size=5))
def test_bytes_that_only_seem_to_be_frames_are_not_all_checked(places: list[int]) -> None:
    """All of them would be 4096 bytes for each five. A frame long after them is found again."""
    seeming = (MARK + b"h\0\0\x10") * 10_000
    frame = Frame(CONTENT, 1, b"data")
    data = seeming + bytes(MAX_PAYLOAD_BYTES) + wire(frame)
    pieces = [data[start:end] for start, end in pairwise([0, *sorted(places), len(data)])]
    checked = 0

    def crc32(part: bytes, start: int = 0) -> int:
        nonlocal checked
        checked += len(part)
        return binascii.crc32(part, start)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastflight.protocol.agent_frames.binascii", SimpleNamespace(crc32=crc32))
        assert read(pieces) == [seeming + bytes(MAX_PAYLOAD_BYTES), frame]
    assert checked < CHECKED_PER_BYTE * len(data) + CHECKED_AT_ONCE


def test_a_frame_that_is_too_long_is_output() -> None:
    head = HEAD.pack(CONTENT, 1, MAX_PAYLOAD_BYTES + 1, 0)
    assert FrameReader().feed(MARK + head + b"text") == [MARK + head + b"text"]


@given(before=OUTPUT, text=st.binary(max_size=40), after=OUTPUT)
def test_an_announcement_is_found_in_any_output_once_it_is_whole(before: bytes, text: bytes, after: bytes) -> None:
    announcement = encode(ANNOUNCEMENT, 0, text)
    too_long = MARK + HEAD.pack(ANNOUNCEMENT, 0, MAX_PAYLOAD_BYTES + 1, 0)
    assert has_announcement(before + too_long + announcement + after)
    assert not has_announcement(before + too_long + announcement[:-1])
