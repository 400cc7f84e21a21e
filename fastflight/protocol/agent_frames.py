"""The frames between a host and the agent on a board, which share the line with what the board's program prints.

A frame is `MARK`, then a head and the payload. The head is the kind (a letter), a number, the length of the payload (2
bytes) and the crc32 of all but itself (4 bytes), little endian. `FrameReader` splits what a board sends into frames and
the program's own output: bytes that are no intact frame are output.

Frames to the board are escaped (`to_board`), so that none holds Ctrl-C, which would interrupt the program, and `MARK`
always begins a frame. `HELLO` asks the agent to announce itself; `STOP` asks it to leave the input to the board's
prompt from then on, and is answered in the same way. Both have no letters: a board at its prompt ignores them.
"""

from __future__ import annotations

import binascii
import re
import struct
from dataclasses import dataclass

MARK = b"\x16"
HELLO = MARK + b"\x1c"
STOP = MARK + b"\x1d"
# Kinds of frames to the agent: a piece of code; the last piece of fastflight's own code, or of code that runs among the
# global names of the program; content for the agent's file, a request for content.
CODE, RUN_OWN, RUN, WRITE, READ = b"CXYWR"
# Kinds of its answers: its announcement, an acknowledgement, output of code, the end of code or an error, content.
ANNOUNCEMENT, ACKNOWLEDGED, OUTPUT, ENDED, CONTENT = b"haoed"
ANSWERS = frozenset((ANNOUNCEMENT, ACKNOWLEDGED, OUTPUT, ENDED, CONTENT))

HEAD = struct.Struct("<BBHI")
# The agent sends blocks of at most 2048 bytes with their position. An announcement names its version and its port.
MAX_PAYLOAD_BYTES = 4096
MAX_ANNOUNCEMENT_BYTES = 64
# A board may send bytes of which every fifth seems to begin a frame of 4 kB. Checking them all takes the event loop a
# second for each MB. So for each byte that arrives this many are checked, and at most so many at once: many times what
# frames on a bad line need.
CHECKED_PER_BYTE = 8
CHECKED_AT_ONCE = 64 * 1024

_ANNOUNCING = MARK + bytes((ANNOUNCEMENT,))
_ESCAPED = re.compile(rb"[\x03\x10\x16]")


@dataclass(frozen=True, slots=True)
class Frame:
    """An intact frame. `number` is that of the frame that it answers."""

    kind: int
    number: int
    payload: bytes


def encode(kind: int, number: int, payload: bytes) -> bytes:
    """Return a frame as the agent sends it."""
    head = struct.pack("<BBH", kind, number, len(payload))
    return MARK + head + binascii.crc32(payload, binascii.crc32(head)).to_bytes(4, "little") + payload


def has_announcement(data: bytes) -> bool:
    """Return whether `data` holds a whole announcement, of at most `MAX_ANNOUNCEMENT_BYTES`."""
    at = data.find(_ANNOUNCING)
    while at >= 0:
        size = _size(data, at)
        if 0 < size <= min(MAX_ANNOUNCEMENT_BYTES, len(data) - at) and _decode(data[at + 1 : at + size]) is not None:
            return True
        at = data.find(_ANNOUNCING, at + 1)
    return False


def to_board(kind: int, number: int, payload: bytes) -> bytes:
    """Return a frame as it is sent to the agent."""
    body = encode(kind, number, payload)[len(MARK) :]
    return MARK + _ESCAPED.sub(lambda found: bytes((0x10, found[0][0] | 0x40)), body)


class FrameReader:
    """Splits received bytes into frames and output. At most one incomplete frame is held back.

    If a board sends far more that seems to be frames than can be, later frames may be taken for output.
    """

    def __init__(self) -> None:
        self._held = b""
        # How many bytes may be checked, and how many of the next bytes are output because that was too few.
        self._checkable = CHECKED_AT_ONCE
        self._unchecked = 0

    def feed(self, data: bytes) -> list[bytes | Frame]:
        """Return what is complete, in its order: frames, and pieces of output."""
        if not self._held and not self._unchecked and MARK not in data:
            self._passed(len(data))
            return [data] if data else []
        data = self._held + data
        found: list[bytes | Frame] = []
        # The output that is not returned yet begins at `start`; a frame may begin at `at`; `passed` is behind both.
        start = passed = 0
        at = min(self._unchecked, len(data))
        self._unchecked -= at
        while (at := data.find(MARK, at)) >= 0:
            size = _size(data, at)
            if size > len(data) - at:
                break
            self._passed(at - passed)
            passed = at
            if size > self._checkable:
                wait = -(-(size - self._checkable) // CHECKED_PER_BYTE)
                at += min(wait, len(data) - at)
                self._unchecked = wait - (at - passed)
                continue
            self._checkable -= size
            frame = _decode(data[at + 1 : at + size]) if size else None
            if frame is None:
                at += 1
                continue
            found += [data[start:at]] if at > start else []
            found.append(frame)
            start = at = at + size
        end = len(data) if at < 0 else at
        self._passed(end - passed)
        found += [data[start:end]] if end > start else []
        self._held = data[end:]
        return found

    def flush(self) -> bytes:
        """Return the bytes that are held back: no more bytes come that could complete a frame."""
        held, self._held = self._held, b""
        return held

    def _passed(self, count: int) -> None:
        """Allow for more to be checked after `count` more bytes."""
        self._checkable = min(self._checkable + CHECKED_PER_BYTE * count, CHECKED_AT_ONCE)


def _size(data: bytes, at: int) -> int:
    """Return the size of the frame that begins at `at`, or of its head if that is incomplete. 0 if there is none."""
    if at + 1 < len(data) and data[at + 1] not in ANSWERS:
        return 0
    size = len(MARK) + HEAD.size
    if at + size > len(data):
        return size
    length = HEAD.unpack_from(data, at + 1)[2]
    return size + length if length <= MAX_PAYLOAD_BYTES else 0


def _decode(body: bytes) -> Frame | None:
    """Return the frame whose bytes after the mark these are, or None if it is damaged."""
    kind, number, _, check = HEAD.unpack_from(body)
    payload = body[HEAD.size :]
    if binascii.crc32(payload, binascii.crc32(body[:4])) != check:
        return None
    return Frame(kind, number, payload)
