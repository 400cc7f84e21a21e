"""What goes up the line to the board's `put` (`routines`): blocks of content, cut into steps that are answered.

A block is a header of three bytes, then a body: the crc32 (4 bytes, little endian) of the payload, and the payload.
The board writes a block when it has come whole and its crc32 fits, so that what lies on the board is the content's
beginning whatever happened on the way. The payload is a part of the content, as it is or deflated if that is smaller.

The body goes in steps. Each is answered when the board has taken it off its ring, the last when the block is written:
while flash takes its time, the next steps wait in the ring, and those on the way are never more than it holds.

No byte is `\\x03`. Ctrl-C keeps working, for us and for everybody else: a board whose host went away in mid-block is
not lost. `\\x03` and the escape are written as two bytes, which is 0.8 % more for random content; the header has the
eighth bit set in all its bytes.
"""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

HEADER_BYTES = 3
CHECK_BYTES = 4
# Of the header's first byte.
DEFLATED = 1
FLUSH = 2
END = 4
VERIFY = 8
# Steps on the way at once: fewer leave the line idle while an answer comes back, more are more answers to read.
STEPS = 3
# How much of a piece a board that is reset may lose: the file systems of boards take a flush as a write of metadata.
FLUSH_BYTES = 64 * 1024
# A payload is deflated if that saves at least an eighth: less is not worth the board's time.
WORTH = 7 / 8

# zlib's name for a window of 1 KB, which a board with a small heap has room for.
WINDOW_BITS = 10


@dataclass(frozen=True, slots=True)
class UploadStep:
    """Bytes to be sent in one go and answered by the board; `done` content bytes are written then, if any are."""

    wire: bytes
    done: int | None


def header(kind: int, length: int) -> bytes:
    """A block's first bytes: two bits of the kind, and the length, low part first."""
    return bytes((0x80 | kind, 0x80 | (length & 0x7F), 0x80 | (length >> 7)))


def end(*, verify: bool) -> bytes:
    """What ends the content; with `verify` the board takes the digest of the part and waits for a word."""
    return header(END | VERIFY if verify else END, 0)


def buffer_bytes(block: int) -> int:
    """What a board needs to hold a block of so much content: its check, and escapes in good measure."""
    return block + block // 16 + CHECK_BYTES + 12


def step_bytes(window: int) -> int:
    """How much of a body to send before the board answers."""
    return window // STEPS - HEADER_BYTES


def steps(piece: bytes, start: int, block: int, step: int, deflating: bool) -> Iterator[UploadStep]:
    """What to send for `piece` from `start` on. The board flushes at its end, and now and then before."""
    limit = buffer_bytes(block)
    while start < len(piece):
        size = min(block, len(piece) - start)
        kind, body = 0, b""
        while True:
            payload = piece[start : start + size]
            body = escaped(check(payload) + payload)
            if deflating and len(packed := deflated(payload)) < len(payload) * WORTH:
                kind, body = DEFLATED, escaped(check(packed) + packed)
            if len(body) <= limit:
                break
            # Each byte too many stands for an escape; half of them may go with the bytes that are cut off.
            size -= max(1, (len(body) - limit) // 2)
            kind = 0
        before, start = start, start + size
        if start == len(piece) or start // FLUSH_BYTES > before // FLUSH_BYTES:
            kind |= FLUSH
        head = header(kind, len(body))
        for at in range(0, len(body), step):
            last = at + step >= len(body)
            yield UploadStep(head + body[at : at + step], start if last else None)
            head = b""


def deflated(data: bytes) -> bytes:
    """`data` as a raw deflate stream whose window a board has room for."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -WINDOW_BITS)
    return packer.compress(data) + packer.flush()


def check(payload: bytes) -> bytes:
    """The crc32 of a payload as its body begins with it."""
    return binascii.crc32(payload).to_bytes(4, "little")


def escaped(data: bytes) -> bytes:
    """`data` without `\\x03`, so that nothing in it interrupts the board."""
    return data.replace(b"\x10", b"\x10P").replace(b"\x03", b"\x10S")
