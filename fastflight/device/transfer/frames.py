"""The bytes that an upload sends to the board's `put` (`routines`): blocks of content, cut into steps.

A block is a header of three bytes, then a body: the crc32 (4 bytes, little endian) of the payload, and the payload. The
board writes a block when it has arrived whole and its crc32 fits, so what lies on the board is always the content's
beginning. The payload is a part of the content, plain or deflated if that saves an eighth.

The body is sent in steps. The board answers each step when it has read it from its ring, and the last one when the
block is written. So the steps on the way never exceed the ring, and wait in it while the flash is busy.

No byte is `\\x03`: Ctrl-C keeps working, for us and for the next host, should this one go away within a block. `\\x03`
and the escape character are sent as two bytes, which is 0.8 % more for random content. All bytes of the header have the
eighth bit set.
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
# Steps on the way at once. With fewer the line is idle while an answer comes back; more would be more answers to read.
STEPS = 3
# How much of a piece a board that is reset may lose: the file systems of boards take a flush as a write of metadata.
FLUSH_BYTES = 64 * 1024
# A payload is deflated if that saves at least an eighth: less is not worth the board's time.
WORTH = 7 / 8

# zlib's name for a window of 1 KB, which a board with a small heap has room for.
WINDOW_BITS = 10


@dataclass(frozen=True, slots=True)
class UploadStep:
    """Bytes that the board answers together. `done`: content bytes that are written by then, None within a block."""

    wire: bytes
    done: int | None


def header(kind: int, length: int) -> bytes:
    """A block's first bytes: two bits of the kind, and the length, low part first."""
    return bytes((0x80 | kind, 0x80 | (length & 0x7F), 0x80 | (length >> 7)))


def end(*, verify: bool) -> bytes:
    """The header that ends the content. With `verify` the board then sends its digest and waits for an answer."""
    return header(END | VERIFY if verify else END, 0)


def buffer_bytes(block: int) -> int:
    """The board's buffer for a block of so much content: with its check, and room for the usual number of escapes."""
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
