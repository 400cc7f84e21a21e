"""WebSocket framing: frames or a `FramingError`, the same ones however the bytes are split."""

from __future__ import annotations

from fastflight.protocol.websocket import FramingError, Payload, WebSocketReader, close
from tests.fuzz.material import Material, cut
from tests.fuzz.target import Target

LIMIT = 200


def heard(pieces: list[bytes], masked: bool) -> list[object]:
    reader = WebSocketReader(masked=masked, max_frame_bytes=LIMIT)
    found: list[object] = []
    try:
        for piece in pieces:
            for frame in reader.feed(piece):
                if isinstance(frame, Payload):
                    assert len(frame.data) <= LIMIT
                    found.append((bytes(frame.data), frame.text, frame.final))
                else:
                    found.append(frame)
    except FramingError as error:
        assert close(error.close_code, error.what)
        found.append((error.what, error.close_code))
    return found


def run(data: bytes) -> None:
    material = Material(data)
    masked, pattern = material.byte() & 1 == 0, material.byte()
    wire = material.rest()
    assert heard(cut(wire, pattern), masked) == heard([wire], masked)


MASK = b"\x01\x02\x03\x04"
TARGET = Target(
    run,
    modules=("fastflight.protocol.websocket",),
    seeds=(
        b"\x00\x00\x82\x85" + MASK + b"hello" + b"\x88\x82" + MASK + b"\x02\xea",
        b"\x00\x12\x01\x83" + MASK + b"abc\x89\x80" + MASK + b"\x80\x82" + MASK + b"de",
        b"\x01\x03\x82\x05hello\x8a\x00\x88\x02\x03\xe8",
        b"\x01\x05\x82\x7e\x00\x80" + bytes(128) + b"\x81\x01x",
        b"\x00\x00\x82\xff\x00\x00\x00\x00\x00\x00\x00\x03" + MASK + b"xyz",
    ),
    max_bytes=160,
)
