"""WebSocket framing: the same frames however they are split, and the same judgement as an independent library's."""

from __future__ import annotations

import struct

import pytest
from hypothesis import assume, given
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
BAD_LENGTH = "a length that is not written as it must be"
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
    assume(ours[-1:] != [(BAD_LENGTH, CloseCode.PROTOCOL_ERROR)])  # the library takes any spelling of a length
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
        (b"\x82\xff" + struct.pack("!Q", (1 << 63) - 1), CloseCode.MESSAGE_TOO_BIG),
        (b"\x82\xff" + struct.pack("!Q", LIMIT + 1), CloseCode.MESSAGE_TOO_BIG),
    ],
)
def test_what_may_not_be_sent_is_refused_by_its_code(wire: bytes, code: CloseCode) -> None:
    *before, last = heard(wire)
    assert isinstance(last, tuple) and last[1] is code
    assert len(before) == wire.startswith(b"\x02")


# What RFC 6455 does not let a client send, by its clause, and what it is told.
HOSTILE = {
    **{f"5.2 reserved bit {bit:#x}": frame(2, b"x", reserved=bit) for bit in (0x40, 0x20, 0x10)},
    **{f"5.2 reserved bit {bit:#x} of a ping": frame(9, b"x", reserved=bit) for bit in (0x40, 0x20, 0x10)},
    **{f"5.2 opcode {code}": frame(code) for code in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    "5.2 a length with its top bit": b"\x82\xff" + struct.pack("!Q", 1 << 63),
    "5.2 a length of all ones": b"\x82\xff" + b"\xff" * 8,
    "5.2 125 in two bytes": b"\x82\xfe" + struct.pack("!H", 125),
    "5.2 65535 in eight bytes": b"\x82\xff" + struct.pack("!Q", 65_535),
    "5.1 not masked": b"\x82\x01x",
    "5.1 a close that is not masked": b"\x88\x00",
    "5.4 a fragment of nothing": frame(0, b"x"),
    "5.4 a last fragment twice": frame(2, b"a", final=False) + frame(0, b"b") + frame(0, b"c"),
    "5.4 a message within a message": frame(2, b"a", final=False) + frame(2, b"b"),
    "5.4 text within a message": frame(2, b"a", final=False) + frame(1, b"b", final=False),
    **{f"5.5 a fragmented {code:#x}": frame(code, b"", final=False) for code in (8, 9, 10)},
    **{f"5.5 a long {code:#x}": frame(code, bytes(126)) for code in (8, 9, 10)},
    "5.5 a very long ping": b"\x89\xff" + struct.pack("!Q", 1 << 20),
    "5.5.1 half a code": frame(8, b"\x03"),
    **{f"7.4 code {code}": frame(8, struct.pack("!H", code)) for code in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000)},
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_a_client_may_not_send_is_refused_whole_and_byte_by_byte(what: str) -> None:
    wire = HOSTILE[what]
    for found in (heard(wire), heard(*(wire[at : at + 1] for at in range(len(wire))))):
        assert isinstance(found[-1], tuple) and found[-1][1] is CloseCode.PROTOCOL_ERROR


@given(
    st.sampled_from(sorted(HOSTILE.values())),
    st.lists(st.sampled_from([9, 10, 2]), max_size=3),
    st.lists(st.integers(0, 1 << 20), max_size=8),
)
def test_it_is_refused_after_all_before_it_however_it_is_split(wire: bytes, before: list[int], cuts: list[int]) -> None:
    fine = b"".join(frame(code, b"fine") for code in before)
    found = heard(*pieces_of(fine + wire, cuts))
    assert found[: len(before)] == heard(fine)
    assert isinstance(found[-1], tuple) and found[-1][1] is CloseCode.PROTOCOL_ERROR


@given(st.integers(0, 0xFFFF), st.text(max_size=40))
def test_a_close_has_a_code_that_may_be_sent(code: int, reason: str) -> None:
    # 7.4.2, and 1012 to 1014 of the registry.
    sendable = 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999
    (found,) = heard(frame(8, struct.pack("!H", code) + reason.encode()))
    assert (found == Close(code, reason)) is sendable
    assert sendable or found[1] is CloseCode.PROTOCOL_ERROR  # type: ignore[index]


def test_a_message_of_endless_empty_fragments_holds_nothing() -> None:
    reader = WebSocketReader(masked=True, max_frame_bytes=LIMIT)
    wire = frame(2, b"", final=False) + frame(0, b"", final=False) * 1000
    for _ in range(20):
        assert not any(each.data for each in reader.feed(wire) if isinstance(each, Payload))
        wire = frame(0, b"", final=False) * 1000
    assert not reader._held
    (last,) = reader.feed(frame(0, b"end"))
    assert isinstance(last, Payload) and last.final


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
