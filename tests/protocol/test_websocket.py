"""WebSocket framing: the same frames however they are split, and the same judgement as an independent library's."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import ProtocolError as PeerError
from websockets.exceptions import WebSocketException
from websockets.frames import Frame as PeerFrame
from websockets.frames import Opcode as PeerOpcode
from websockets.protocol import SERVER, Protocol
from websockets.utils import accept_key

from fastflight.protocol.websocket import (
    MAX_CONTROL_BYTES,
    SMALL_BYTES,
    Close,
    CloseCode,
    FramingError,
    Opcode,
    Payload,
    Ping,
    Pong,
    WebSocketReader,
    accept,
    close,
    header,
    unmask,
)

LIMIT = 70_000
MASK = b"\x01\x02\x03\x04"
SIZES = st.sampled_from([0, 1, 7, 125, 126, 127, 255, 256, 257, 263, 65_535, 65_536])


def frame(opcode: int, data: bytes = b"", *, final: bool = True, mask: bytes = MASK, reserved: int = 0) -> bytes:
    """What a client sends."""
    size = len(data)
    short = size if size < 126 else 126 if size < 65_536 else 127
    length = b"" if size < 126 else struct.pack("!H", size) if size < 65_536 else struct.pack("!Q", size)
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
    return bytes([final << 7 | reserved | opcode, 0x80 | short]) + length + mask + masked


def heard(*pieces: bytes, masked: bool = True, limit: int = LIMIT) -> list[object]:
    """The frames, as plain tuples, and at last the error if there was one."""
    reader = WebSocketReader(masked=masked, max_frame_bytes=limit)
    found: list[object] = []
    try:
        for piece in pieces:
            for one in reader.feed(piece):
                found.append((bytes(one.data), one.text, one.final) if isinstance(one, Payload) else one)
    except FramingError as error:
        found.append((error.what, error.close_code))
    return found


def pieces_of(wire: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(wire), *(cut % (len(wire) + 1) for cut in cuts)})
    return [wire[start:end] for start, end in zip(places, places[1:], strict=False)]


FRAMES = st.builds(
    frame,
    st.sampled_from([0, 1, 2, 2, 2, 8, 9, 10]) | st.integers(0, 15),
    st.binary(max_size=300) | SIZES.map(bytes),
    final=st.booleans(),
    mask=st.binary(min_size=4, max_size=4),
    reserved=st.sampled_from([0, 0, 0, 0, 0x40, 0x10]),
)
WIRE = st.lists(FRAMES, max_size=6).map(b"".join) | st.binary(max_size=60)


@given(WIRE, st.lists(st.integers(0, 1 << 20), max_size=12))
def test_any_split_gives_the_same_frames(wire: bytes, cuts: list[int]) -> None:
    assert heard(*pieces_of(wire, cuts)) == heard(wire)


@given(st.lists(FRAMES, max_size=4).map(b"".join) | st.binary(max_size=40))
def test_byte_by_byte_too(wire: bytes) -> None:
    wire = wire[:2000]
    assert heard(*(wire[at : at + 1] for at in range(len(wire)))) == heard(wire)


@given(WIRE)
def test_the_websockets_library_judges_the_same(wire: bytes) -> None:
    ours = heard(wire, limit=1 << 64)
    refused = bool(ours) and isinstance(ours[-1], tuple) and len(ours[-1]) == 2
    peer = Protocol(SERVER, max_size=None)
    # It judges a frame when all of it is there, we as soon as it is wrong.
    peer.receive_data(wire + bytes(1 << 17 if refused else 0))
    theirs: list[object] = []
    for one in peer.events_received():
        assert isinstance(one, PeerFrame)
        theirs.append((one.opcode, bytes(one.data)))
    error = peer.parser_exc
    said: list[object] = []
    text = False
    for each in ours:
        if isinstance(each, Close):
            body = b"" if each.code is None else struct.pack("!H", each.code) + each.reason.encode()
            said.append((PeerOpcode.CLOSE, body))
        elif isinstance(each, Ping):
            said.append((PeerOpcode.PING, each.data))
        elif isinstance(each, Pong):
            said.append((PeerOpcode.PONG, each.data))
        elif isinstance(each, tuple) and len(each) == 3:
            said.append(each)
    # A fragment has lost its opcode here, and has it there.
    payloads = iter(theirs)
    for each, (opcode, data) in zip(said, payloads, strict=True):  # type: ignore[misc]
        if isinstance(each, tuple) and len(each) == 3:
            if opcode is not PeerOpcode.CONT:
                text = opcode is PeerOpcode.TEXT
            assert each[:2] == (data, text)
        else:
            assert each == (opcode, data)
    assert refused == isinstance(error, WebSocketException | UnicodeDecodeError), (ours, error)
    if isinstance(error, PeerError) and refused:
        assert ours[-1][1] == CloseCode.PROTOCOL_ERROR  # type: ignore[index]


@given(st.binary(max_size=3 * SMALL_BYTES) | SIZES.map(bytes), st.binary(min_size=4, max_size=4))
def test_a_mask_comes_off_as_the_standard_says(data: bytes, mask: bytes) -> None:
    plain = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
    assert bytes(unmask(memoryview(data), mask)) == plain
    assert bytes(unmask(unmask(data, mask), mask)) == data


@given(SIZES, st.sampled_from([Opcode.BINARY, Opcode.TEXT]))
def test_a_header_is_read_as_it_was_written(size: int, opcode: Opcode) -> None:
    text = opcode is Opcode.TEXT
    assert heard(header(size, opcode) + bytes(size), masked=False) == [(bytes(size), text, True)]


def test_a_frame_that_came_whole_and_unmasked_is_not_copied() -> None:
    wire = bytearray(header(5) + b"hello")
    (one,) = WebSocketReader(masked=False, max_frame_bytes=LIMIT).feed(wire)
    assert isinstance(one, Payload)
    wire[-1:] = b"y"
    assert bytes(one.data) == b"helly"


def test_control_frames_come_between_fragments() -> None:
    wire = frame(2, b"a", final=False) + frame(9, b"?") + frame(0, b"b", final=False) + frame(0, b"c")
    assert heard(wire) == [(b"a", False, False), Ping(b"?"), (b"b", False, False), (b"c", False, True)]


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (frame(2, b"x", reserved=0x40), CloseCode.PROTOCOL_ERROR),
        (frame(3), CloseCode.PROTOCOL_ERROR),
        (frame(9, b"x", final=False), CloseCode.PROTOCOL_ERROR),
        (frame(9, bytes(MAX_CONTROL_BYTES + 1)), CloseCode.PROTOCOL_ERROR),
        (frame(0, b"x"), CloseCode.PROTOCOL_ERROR),
        (frame(2, b"x", final=False) + frame(2, b"y"), CloseCode.PROTOCOL_ERROR),
        (b"\x82\x01x", CloseCode.PROTOCOL_ERROR),
        (frame(8, b"\x03"), CloseCode.PROTOCOL_ERROR),
        (frame(8, struct.pack("!H", 1005)), CloseCode.PROTOCOL_ERROR),
        (frame(8, struct.pack("!H", 1000) + b"\xff"), CloseCode.INVALID_DATA),
        (b"\x82\xff" + struct.pack("!Q", 1 << 63), CloseCode.MESSAGE_TOO_BIG),
        (b"\x82\xff" + struct.pack("!Q", LIMIT + 1), CloseCode.MESSAGE_TOO_BIG),
    ],
)
def test_what_may_not_be_sent_is_refused_by_its_code(wire: bytes, code: CloseCode) -> None:
    *before, last = heard(wire)
    assert isinstance(last, tuple) and last[1] is code
    assert len(before) == wire.startswith(b"\x02")


def test_a_frame_within_the_limit_is_taken() -> None:
    assert heard(frame(2, bytes(LIMIT))) == [(bytes(LIMIT), False, True)]


def test_nothing_is_heard_after_a_close() -> None:
    assert heard(frame(8, struct.pack("!H", 1001) + b"off") + frame(9), frame(9)) == [Close(1001, "off")]
    assert heard(frame(8)) == [Close(None, "")]


def test_a_close_keeps_to_its_length_at_a_whole_character() -> None:
    (said,) = WebSocketReader(masked=False, max_frame_bytes=LIMIT).feed(close(CloseCode.POLICY_VIOLATION, "é" * 200))
    assert said == Close(1008, "é" * 61)


@given(st.text("ABCabc019+/=", max_size=30))
def test_a_key_is_accepted_as_the_library_accepts_it(key: str) -> None:
    assert accept(key) == accept_key(key)
