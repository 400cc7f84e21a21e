"""WebSocket framing (RFC 6455) without I/O: bytes become frames, and a payload gets the header that goes before it.

`header` gives the bytes that go before an unmasked payload, which is what a server sends: the payload itself is not
touched, so that both can be handed to one scattered write. `WebSocketReader.feed` takes whatever came and yields frames
in order, the same ones however the bytes were split. Run it to its end before the buffer is used again: the data of a
frame that came whole and unmasked is a view of it.

Extensions are not negotiated, so reserved bits are an error. What a peer may not send is a `FramingError`, raised after
all that came before it, whose `close_code` belongs into the close frame; after it, as after a `Close`, feed no more.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from fastflight.errors import ProtocolError

Buffer = bytes | bytearray | memoryview

# RFC 6455, 1.3: what a server adds to the client's key to show that it understood.
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
# RFC 6455, 5.5: the payload of a control frame.
MAX_CONTROL_BYTES = 125
# The longest header: 2 bytes, 8 of length, 4 of mask.
MAX_HEADER_BYTES = 14
# Above this, numpy's call costs less than Python's big integers.
SMALL_BYTES = 256


class Opcode(IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


_OPCODES = frozenset(Opcode)


class CloseCode(IntEnum):
    """Those that are sent here (RFC 6455, 7.4.1)."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    INVALID_DATA = 1007
    POLICY_VIOLATION = 1008
    MESSAGE_TOO_BIG = 1009
    TRY_AGAIN_LATER = 1013


# Codes that a peer may put into a close frame: those that the registry knows, of libraries, and of applications.
_RECEIVABLE = frozenset({*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)})


class FramingError(ProtocolError):
    """The peer broke the framing; `close_code` is what the peer is to be told."""

    code = "protocol.websocket"

    def __init__(self, what: str, close_code: CloseCode = CloseCode.PROTOCOL_ERROR) -> None:
        super().__init__(what, where="WebSocket", hint="The connection ends here: open another one")
        self.close_code = close_code


@dataclass(frozen=True, slots=True)
class Payload:
    """A whole frame of a message; the message ends with the one that is `final`."""

    data: Buffer
    text: bool
    final: bool


@dataclass(frozen=True, slots=True)
class Ping:
    """To be answered by a pong with the same data."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Pong:
    data: bytes


@dataclass(frozen=True, slots=True)
class Close:
    """The peer sends no more. `code` is None where it gave none."""

    code: int | None
    reason: str


Frame = Payload | Ping | Pong | Close


def accept(key: str) -> str:
    """The `Sec-WebSocket-Accept` that answers `Sec-WebSocket-Key`."""
    return base64.b64encode(hashlib.sha1(key.encode("latin-1") + _GUID, usedforsecurity=False).digest()).decode()


def header(size: int, opcode: Opcode = Opcode.BINARY) -> bytes:
    """What goes before `size` bytes of payload that are sent unmasked, as one whole frame."""
    first = 0x80 | opcode
    if size < 126:
        return bytes((first, size))
    if size < 1 << 16:
        return struct.pack("!BBH", first, 126, size)
    return struct.pack("!BBQ", first, 127, size)


def close(code: int, reason: str = "") -> bytes:
    """A whole unmasked close frame; a long reason is cut at a character."""
    body = struct.pack("!H", code) + reason.encode()[: MAX_CONTROL_BYTES - 2].decode(errors="ignore").encode()
    return header(len(body), Opcode.CLOSE) + body


def unmask(data: Buffer, mask: bytes) -> Buffer:
    """`data` with its mask (RFC 6455, 5.3) taken off, or put on: a copy."""
    size = len(data)
    if size < SMALL_BYTES:
        key = int.from_bytes((mask * (size // 4 + 1))[:size], sys.byteorder)
        return (int.from_bytes(data, sys.byteorder) ^ key).to_bytes(size, sys.byteorder)
    words = size // 8
    result = bytearray(size)
    np.bitwise_xor(
        np.frombuffer(data, np.uint64, words),
        np.frombuffer(mask * 2, np.uint64)[0],
        out=np.frombuffer(result, np.uint64, words),
    )
    rest = words * 8
    for index in range(rest, size):
        result[index] = data[index] ^ mask[index % 4]
    return result


@dataclass(slots=True)
class _Head:
    opcode: Opcode
    final: bool
    size: int
    mask: bytes


class WebSocketReader:
    """The frames of one direction of a connection."""

    def __init__(self, *, masked: bool, max_frame_bytes: int) -> None:
        """`masked`: what a server reads; `max_frame_bytes` bounds the payload of each frame, and what is held here."""
        self._masked = masked
        self._limit = max_frame_bytes
        # Bytes of a header, or of the payload after `_head`, that do not make a whole yet.
        self._held = bytearray()
        self._head: _Head | None = None
        # The kind of the message that is not ended.
        self._message: Opcode | None = None
        self._closed = False

    def feed(self, data: Buffer) -> Iterator[Frame]:
        """The frames that `data` completes."""
        view = memoryview(data)
        at, end = 0, len(view)
        while not self._closed:
            if self._head is None:
                taken = self._read_head(view, at)
                at += taken
                if self._head is None:
                    return
            head, missing = self._head, self._head.size - len(self._held)
            if end - at < missing:
                self._held += view[at:]
                return
            payload: Buffer = view[at : at + missing]
            at += missing
            if self._held:
                self._held += payload
                payload, self._held = self._held, bytearray()
            self._head = None
            yield self._frame(head, unmask(payload, head.mask) if head.mask else payload)

    def _read_head(self, view: memoryview, at: int) -> int:
        """Take a header, or what there is of one; how many bytes of `view` were taken."""
        before = len(self._held)
        start = bytes(self._held) + view[at : at + MAX_HEADER_BYTES - before]
        self._held.clear()
        if len(start) >= 1:
            self._check_first(start[0])
        if len(start) >= 2:
            found = self._parsed(start)
            if found is not None:
                self._head, size = found
                return size - before
        self._held += start
        return len(start) - before

    def _check_first(self, first: int) -> None:
        """Refuse what the first byte may not be."""
        if first & 0x70:
            raise FramingError("reserved bits are set, and no extension was negotiated")
        code, final = first & 0x0F, bool(first & 0x80)
        if code not in _OPCODES:
            raise FramingError(f"opcode {code} has no meaning")
        if code >= Opcode.CLOSE:
            if not final:
                raise FramingError("a control frame cannot be fragmented")
        elif (code == Opcode.CONTINUATION) is (self._message is None):
            raise FramingError("a fragment out of its message")

    def _parsed(self, start: bytes) -> tuple[_Head, int] | None:
        """The header that `start` begins with, and its length; None while there is too little of it."""
        opcode, masked, size, length = Opcode(start[0] & 0x0F), bool(start[1] & 0x80), start[1] & 0x7F, 2
        if masked is not self._masked:
            raise FramingError("a frame that must be masked is not" if self._masked else "a server's frame is masked")
        if opcode >= Opcode.CLOSE and size > MAX_CONTROL_BYTES:
            raise FramingError("a control frame is too long")
        if size >= 126:
            length += 2 if size == 126 else 8
            if len(start) < length:
                return None
            size = int.from_bytes(start[2:length], "big")
            # RFC 6455, 5.2: 63 bits, in the fewest bytes that hold them.
            if size >> 63 or size < (126 if length == 4 else 1 << 16):
                raise FramingError("a length that is not written as it must be")
        if size > self._limit:
            raise FramingError(f"a frame has more than {self._limit} bytes", CloseCode.MESSAGE_TOO_BIG)
        mask = start[length : length + 4] if masked else b""
        if masked:
            length += 4
            if len(start) < length:
                return None
        return _Head(opcode, bool(start[0] & 0x80), size, mask), length

    def _frame(self, head: _Head, data: Buffer) -> Frame:
        if head.opcode is Opcode.PING:
            return Ping(bytes(data))
        if head.opcode is Opcode.PONG:
            return Pong(bytes(data))
        if head.opcode is Opcode.CLOSE:
            self._closed = True
            return _closed(bytes(data))
        kind = head.opcode if self._message is None else self._message
        self._message = None if head.final else kind
        return Payload(data, kind is Opcode.TEXT, head.final)


def _closed(data: bytes) -> Close:
    if not data:
        return Close(None, "")
    if len(data) == 1:
        raise FramingError("a close frame has half a code")
    code = int.from_bytes(data[:2], "big")
    if code not in _RECEIVABLE:
        raise FramingError(f"{code} is no code for a close frame")
    try:
        return Close(code, data[2:].decode())
    except UnicodeDecodeError as error:
        raise FramingError("the reason of a close frame is not UTF-8", CloseCode.INVALID_DATA) from error
