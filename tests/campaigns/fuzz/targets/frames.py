"""Blocks of content on their way to a board: what the board's routine makes of them is the content, byte for byte."""

from __future__ import annotations

import zlib
from binascii import crc32

from fastflight.device.transfer import frames
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target


def put(wire: bytes, step: int, block: int) -> tuple[bytes, int]:
    """What `routines.PUT` does: the content, and how many answers there were."""
    content, at, answers = b"", 0, 0
    while at < len(wire):
        kind, low, high = wire[at : at + 3]
        assert min(kind, low, high) >= 0x80
        length = low & 127 | (high & 127) << 7
        assert length <= frames.buffer_bytes(block)
        body = wire[at + 3 : at + 3 + length]
        assert len(body) == length
        answers += -(-length // step)
        at += 3 + length
        body = body.replace(b"\x10S", b"\x03").replace(b"\x10P", b"\x10")
        payload = body[4:]
        assert crc32(payload).to_bytes(4, "little") == body[:4]
        content += zlib.decompress(payload, -15) if kind & frames.DEFLATED else payload
    return content, answers


def run(data: bytes) -> None:
    material = Material(data)
    block, window, deflating = 64 + 8 * material.byte(), 60 + material.byte(), bool(material.byte() & 1)
    piece = material.rest() * (1 + material.byte())
    start = len(piece) // 3 if block & 8 else 0
    step = frames.step_bytes(window)
    steps = list(frames.steps(piece, start, block, step, deflating))
    wire = b"".join(each.wire for each in steps)
    assert b"\x03" not in wire
    assert all(len(each.wire) <= step + frames.HEADER_BYTES for each in steps)
    assert put(wire, step, block) == (piece[start:], len(steps))
    done = [each.done for each in steps if each.done is not None]
    assert done == sorted(done) and done[-1:] == ([len(piece)] if start < len(piece) else [])


TARGET = Target(
    run,
    seeds=(
        b"\x00\x00\x00some content",
        b"\x10\xc8\x01aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        b"\xff\x00\x00" + bytes(range(64)),
        b"\x01\x05\x01\x03\x03\x03\x10\x10\x10\x03\x10S\x10P",
    ),
)
