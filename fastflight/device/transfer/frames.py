"""Encodes the bytes that an upload sends to the board's `put` (`routines`): blocks of content, cut into steps.

A block is a header of three bytes, then a body: the crc32 (4 bytes, little endian) of the payload, and the payload. The
board writes a block only when it has arrived whole with the right crc32, so the file on the board is always a prefix of
the content. The payload is a part of the content, deflated if that saves an eighth, else plain.

The body is sent in steps. The board answers a step when it has read it from its receive ring, and the last step of a
block when the block is written. So the unanswered steps always fit into the ring, and wait there while the flash is
busy.

No byte is `\\x03`: Ctrl-C keeps working, for this host and, if this one disappears within a block, for the next.
`\\x03` and the escape character are sent as two bytes, which adds 0.8 % for random content. All bytes of the header
have the eighth bit set.
"""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

HEADER_BYTES = 3
CHECK_BYTES = 4
# Bits of the header's first byte.
DEFLATED = 1
FLUSH = 2
END = 4
VERIFY = 8
# Unanswered steps at a time. With fewer the line is idle while an answer comes back; with more there are more answers.
STEPS = 3
# How much of a piece a reset may lose. Each flush costs a write of metadata in the file systems of boards.
FLUSH_BYTES = 64 * 1024
# A payload is sent deflated if that saves at least an eighth: less is not worth the board's time.
DEFLATE_RATIO = 7 / 8

# zlib's name for a window of 1 KB, which a board with a small heap has room for.
WINDOW_BITS = 10


@dataclass(frozen=True, slots=True)
class UploadStep:
    """Bytes that the board acknowledges with one answer.

    `done`: how many bytes of the piece are written when the answer comes; None for a step within a block.
    """

    wire: bytes
    done: int | None


def header(kind: int, length: int) -> bytes:
    """Return the header of a block: the bits of its kind, and the length of its body in 14 bits, low part first."""
    return bytes((0x80 | kind, 0x80 | (length & 0x7F), 0x80 | (length >> 7)))


def end(*, verify: bool) -> bytes:
    """Return the header that ends the content. With `verify` the board sends its digest and waits for an answer."""
    return header(END | VERIFY if verify else END, 0)


def buffer_bytes(block: int) -> int:
    """Return the size of the board's buffer for a block of `block` bytes: with its crc32, and room for escapes."""
    return block + block // 16 + CHECK_BYTES + 12


def step_bytes(window: int) -> int:
    """Return how many bytes of a body one step holds, so that `STEPS` of them fit into `window` bytes."""
    return window // STEPS - HEADER_BYTES


def steps(piece: bytes, start: int, block: int, step: int, deflating: bool) -> Iterator[UploadStep]:
    """Yield the steps that send `piece` from `start` on, in blocks of at most `block` bytes of content.

    The board flushes at the end of the piece, and every `FLUSH_BYTES`.
    """
    limit = buffer_bytes(block)
    while start < len(piece):
        size = min(block, len(piece) - start)
        kind, body = 0, b""
        while True:
            payload = piece[start : start + size]
            body = escape(check(payload) + payload)
            if deflating and len(packed := deflate(payload)) < len(payload) * DEFLATE_RATIO:
                kind, body = DEFLATED, escape(check(packed) + packed)
            if len(body) <= limit:
                break
            # Each surplus byte comes from an escape. Cutting off half as many bytes may remove enough of them.
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


def deflate(data: bytes) -> bytes:
    """Return `data` as a raw deflate stream, with a window that fits into a board's memory."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -WINDOW_BITS)
    return packer.compress(data) + packer.flush()


def check(payload: bytes) -> bytes:
    """Return the crc32 of `payload`, in the form in which a body begins with it."""
    return binascii.crc32(payload).to_bytes(4, "little")


def escape(data: bytes) -> bytes:
    """Return `data` without `\\x03`, which would interrupt the board."""
    return data.replace(b"\x10", b"\x10P").replace(b"\x03", b"\x10S")
