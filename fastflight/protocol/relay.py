"""The relay protocol, without I/O: carries many TCP streams over one connection.

A frame is an 8-byte header, with integers in network byte order, and a payload::

    offset  size  field
    0       1     type       1 OPEN, 2 OPENED, 3 DATA, 4 END, 5 CLOSE, 6 CREDIT
    1       1     flags      in CLOSE the code (`Reason`), else 0
    2       2     stream     1 to 65535, chosen by the side that opens the stream; in CLOSE, 0 means the connection
    4       4     length     of the payload, at most `MAX_PAYLOAD_BYTES`

    OPEN    u32 credit, then the target, `host:port` in UTF-8. The sender accepts that many bytes.
    OPENED  u32 credit. The target is connected. The sender accepts that many bytes.
    DATA    bytes of the stream, at least one. Each byte uses up one byte of credit.
    END     no payload. The sender sends no more data; the other direction stays open.
    CLOSE   a reason as UTF-8 text, or nothing. The stream has ended, and data in transit is dropped.
    CREDIT  u32. The sender accepts that many more bytes.

CLOSE instead of OPENED means that the target cannot be reached. Each side answers a CLOSE with a CLOSE; the stream's
number is free when both have sent one. Until then, the side that closed first ignores the frames that the other side
sent before it received the CLOSE. A CLOSE of stream 0 gives the reason why the whole connection ends, and is the last
frame.

`RelayConnection` is one side of a connection. Pass received bytes to `feed`, handle the events, and send the `bytes`
that the other methods return. `data` returns only the header of a frame: send the payload after it. If the peer breaks
the rules, for example sends one byte more than its credit, `feed` first yields all events before the violation and then
raises `RelayViolation`. After that, feed no more data, and send what `violated` returns.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from enum import IntEnum

from fastflight.errors import ProtocolError

Buffer = bytes | bytearray | memoryview

_HEADER = struct.Struct("!BBHI")
_COUNT = struct.Struct("!I")
HEADER_BYTES = _HEADER.size

# Reads of 128 KB are the fastest; twice that is the longest size measured. It also bounds the memory for a partial
# frame.
MAX_PAYLOAD_BYTES = 256 * 1024
# A DNS name has at most 253 bytes, an IPv6 address with a scope fewer; the rest allows for brackets, colon and port.
MAX_TARGET_BYTES = 512
# One or two sentences, for people.
MAX_REASON_BYTES = 1024
# A page that needs more streams at once opens another connection.
MAX_STREAMS = 64
# Streams that this side has closed and whose CLOSE the peer has not answered. A peer with more of them is far behind,
# or does not answer at all.
MAX_UNANSWERED = 256
# The bytes in transit to this side of a stream. On loopback a larger window does not raise the rate, and 64 streams
# whose targets read nothing hold 16 MiB.
WINDOW_BYTES = 256 * 1024
# A peer that grants more credit counts wrong.
MAX_CREDIT = (1 << 31) - 1
MAX_STREAM = 0xFFFF


class FrameType(IntEnum):
    OPEN = 1
    OPENED = 2
    DATA = 3
    END = 4
    CLOSE = 5
    CREDIT = 6


class Reason(IntEnum):
    """Why a stream or the connection ended."""

    DONE = 0
    REFUSED = 1
    UNREACHABLE = 2
    TIMEOUT = 3
    RESET = 4
    LIMIT = 5
    VIOLATION = 6
    SHUTDOWN = 7


class RelayViolation(ProtocolError):
    """The peer sent a frame that the relay protocol does not allow."""

    code = "protocol.relay"

    def __init__(self, what: str) -> None:
        super().__init__(what, where="relay", hint="The connection ends here: open another one")


@dataclass(frozen=True, slots=True)
class Open:
    """The peer requests a stream to `target`. Answer with `opened` or `close`."""

    stream: int
    target: str


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream that this side opened is connected."""

    stream: int


@dataclass(frozen=True, slots=True)
class RelayData:
    """Bytes of the stream. Call `consumed` when they have been passed on."""

    stream: int
    data: Buffer


@dataclass(frozen=True, slots=True)
class End:
    """The peer sends no more data on the stream."""

    stream: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The peer closed the stream, or the connection (stream 0). Answer the close of a stream with `close`."""

    stream: int
    reason: int
    text: str


@dataclass(frozen=True, slots=True)
class Credited:
    """The peer accepts more bytes on the stream: see `credit`."""

    stream: int


Event = Open | Opened | RelayData | End | Closed | Credited


@dataclass(slots=True)
class _Stream:
    # Bytes that this side may still send.
    credit: int = 0
    # Bytes that the peer may still send.
    window: int = 0
    # Bytes that this side has consumed and not yet granted again to the peer.
    consumed: int = 0
    # Whether this side opened the stream: then the peer reports when its target is connected.
    ours: bool = False
    connected: bool = False
    ended: bool = False
    peer_ended: bool = False
    closed: bool = False
    peer_closed: bool = False


def header(kind: FrameType, stream: int, size: int, flags: int = 0) -> bytes:
    """Return the 8 bytes before a payload of `size` bytes."""
    return _HEADER.pack(kind, flags, stream, size)


class RelayConnection:
    """One side of a connection. With `accepts` the peer opens the streams (the gateway), else this side does."""

    def __init__(self, *, accepts: bool, window_bytes: int = WINDOW_BYTES) -> None:
        self._accepts = accepts
        self._window = window_bytes
        self._streams: dict[int, _Stream] = {}
        self._partial_frame = bytearray()
        self._ended = False

    @property
    def streams(self) -> int:
        """The number of streams that this side has not closed."""
        return sum(not stream.closed for stream in self._streams.values())

    def credit(self, stream: int) -> int:
        """Return how many bytes may be sent on `stream` now; 0 for a stream that is unknown, ended or closed."""
        state = self._streams.get(stream)
        return 0 if state is None or state.closed or state.ended else state.credit

    def open(self, stream: int, target: str) -> bytes:
        """Return a frame that asks for a stream to `target`. Its number must be free."""
        name = target.encode()
        assert not self._accepts and 0 < stream <= MAX_STREAM and stream not in self._streams
        assert len(name) <= MAX_TARGET_BYTES
        self._streams[stream] = _Stream(window=self._window, ours=True)
        body = _COUNT.pack(self._window) + name
        return header(FrameType.OPEN, stream, len(body)) + body

    def opened(self, stream: int) -> bytes:
        """Return the frame that reports that the target of a stream that the peer opened is connected."""
        state = self._streams[stream]
        state.connected, state.window = True, self._window
        return header(FrameType.OPENED, stream, _COUNT.size) + _COUNT.pack(self._window)

    def data(self, stream: int, size: int) -> bytes:
        """Return the header for `size` bytes, and use up as much credit.

        `size` must be within `credit` and `MAX_PAYLOAD_BYTES`.
        """
        state = self._streams[stream]
        assert 0 < size <= min(state.credit, MAX_PAYLOAD_BYTES) and not state.ended and not state.closed
        state.credit -= size
        return _HEADER.pack(FrameType.DATA, 0, stream, size)

    def end(self, stream: int) -> bytes:
        """Return the frame that ends this side's data on the stream."""
        state = self._streams[stream]
        assert state.connected and not state.ended and not state.closed
        state.ended = True
        return header(FrameType.END, stream, 0)

    def close(self, stream: int, reason: Reason = Reason.DONE, text: str = "") -> bytes:
        """Return the frame that ends the stream or answers `Closed`; empty if this side has already closed it."""
        state = self._streams.get(stream)
        if state is None or state.closed:
            return b""
        state.closed = True
        if state.peer_closed:
            del self._streams[stream]
        return _close_frame(stream, reason, text)

    def consumed(self, stream: int, size: int) -> bytes:
        """Record that `size` bytes of the stream have been passed on.

        Return a frame that grants new credit once half of the window has been consumed, else `b""`.
        """
        state = self._streams.get(stream)
        if state is None or state.closed or state.peer_ended or state.peer_closed:
            return b""
        state.consumed += size
        if state.consumed * 2 < self._window:
            return b""
        granted, state.consumed = state.consumed, 0
        state.window += granted
        return header(FrameType.CREDIT, stream, _COUNT.size) + _COUNT.pack(granted)

    def end_connection(self, reason: Reason, text: str = "") -> bytes:
        """Return the last frame of the connection. Data that is fed afterwards is ignored."""
        self._ended = True
        return _close_frame(0, reason, text)

    def feed(self, data: Buffer) -> Iterator[Event]:
        """Yield the events that `data` completes. Iterate to the end before the next call.

        `RelayData` may hold views of `data`. Raises `RelayViolation` when the peer breaks the rules.
        """
        if self._ended:
            return
        view = memoryview(data)
        if self._partial_frame:
            view = yield from self._complete_frame(view)
        at, end = 0, len(view)
        while not self._ended and end - at >= HEADER_BYTES:
            kind, flags, stream, size = _parse_header(view, at)
            start = at + HEADER_BYTES
            if end - start < size:
                break
            at = start + size
            yield from self._receive(kind, flags, stream, view[start:at])
        self._partial_frame += view[at:]

    def _complete_frame(self, view: memoryview) -> Generator[Event, None, memoryview]:
        """Complete the partial frame from the start of `view`, and return the rest of `view`, which is not copied."""
        missing = HEADER_BYTES - len(self._partial_frame)
        if missing > 0:
            self._partial_frame += view[:missing]
            view = view[missing:]
            if len(self._partial_frame) < HEADER_BYTES:
                return view
        kind, flags, stream, size = _parse_header(self._partial_frame, 0)
        missing = HEADER_BYTES + size - len(self._partial_frame)
        self._partial_frame += view[:missing]
        if len(self._partial_frame) == HEADER_BYTES + size:
            frame, self._partial_frame = self._partial_frame, bytearray()
            yield from self._receive(kind, flags, stream, memoryview(frame)[HEADER_BYTES:])
        return view[missing:]

    def _receive(self, kind: FrameType, flags: int, stream: int, payload: memoryview) -> Iterator[Event]:
        if kind is FrameType.CLOSE and stream == 0:
            self._ended = True
            yield Closed(0, flags, _text(payload))
            return
        if kind is FrameType.OPEN:
            yield self._accept(stream, payload)
            return
        state = self._streams.get(stream)
        if state is None or state.peer_closed:
            raise RelayViolation(f"{kind.name} for stream {stream}, which is not open")
        if kind is FrameType.CLOSE:
            state.peer_closed = True
            if state.closed:
                del self._streams[stream]
            else:
                yield Closed(stream, flags, _text(payload))
        elif not state.closed:  # else the peer sent it before it received this side's CLOSE
            yield from _HANDLERS[kind](stream, state, payload)

    def _accept(self, stream: int, payload: memoryview) -> Event:
        if not self._accepts:
            raise RelayViolation("OPEN from the side that must not open streams")
        if stream in self._streams:
            raise RelayViolation(f"stream {stream} is open already")
        if len(self._streams) >= MAX_STREAMS + MAX_UNANSWERED:
            raise RelayViolation(f"{len(self._streams)} streams, most of them closed and not answered")
        try:
            target = bytes(payload[_COUNT.size :]).decode()
        except UnicodeDecodeError as error:
            raise RelayViolation("a target that is not UTF-8") from error
        state = self._streams[stream] = _Stream()
        _grant(state, payload)
        return Open(stream, target)


def violated(error: RelayViolation) -> bytes:
    """Return the last frame of the connection, which tells the peer what it did wrong."""
    return _close_frame(0, Reason.VIOLATION, error.what)


def _close_frame(stream: int, reason: Reason, text: str) -> bytes:
    body = text.encode(errors="replace")[:MAX_REASON_BYTES].decode(errors="ignore").encode()
    return header(FrameType.CLOSE, stream, len(body), reason) + body


def _text(payload: memoryview) -> str:
    return bytes(payload).decode(errors="replace")


def _opened(stream: int, state: _Stream, payload: memoryview) -> Iterator[Event]:
    if state.connected or not state.ours:
        raise RelayViolation(f"OPENED for stream {stream}, which does not wait for it")
    state.connected = True
    _grant(state, payload)
    yield Opened(stream)


def _data(stream: int, state: _Stream, payload: memoryview) -> Iterator[Event]:
    if not state.connected or state.peer_ended:
        raise RelayViolation(f"data on stream {stream} {'after its end' if state.connected else 'before it is open'}")
    if len(payload) > state.window:
        raise RelayViolation(f"{len(payload)} bytes on stream {stream}, and credit for {state.window}")
    state.window -= len(payload)
    yield RelayData(stream, payload)


def _end(stream: int, state: _Stream, payload: memoryview) -> Iterator[Event]:
    if not state.connected or state.peer_ended:
        raise RelayViolation(f"an end of stream {stream} that is not open")
    state.peer_ended = True
    yield End(stream)


def _credited(stream: int, state: _Stream, payload: memoryview) -> Iterator[Event]:
    _grant(state, payload)
    yield Credited(stream)


_HANDLERS = {
    FrameType.OPENED: _opened,
    FrameType.DATA: _data,
    FrameType.END: _end,
    FrameType.CREDIT: _credited,
}


def _grant(state: _Stream, payload: memoryview) -> None:
    state.credit += _COUNT.unpack_from(payload)[0]
    if state.credit > MAX_CREDIT:
        raise RelayViolation(f"credit for more than {MAX_CREDIT} bytes")


# The smallest and the largest payload of each type, in bytes.
_SIZES = {
    FrameType.OPEN: (_COUNT.size + 1, _COUNT.size + MAX_TARGET_BYTES),
    FrameType.OPENED: (_COUNT.size, _COUNT.size),
    FrameType.DATA: (1, MAX_PAYLOAD_BYTES),
    FrameType.END: (0, 0),
    FrameType.CLOSE: (0, MAX_REASON_BYTES),
    FrameType.CREDIT: (_COUNT.size, _COUNT.size),
}
_TYPES = {int(kind): kind for kind in FrameType}


def _parse_header(data: Buffer, at: int) -> tuple[FrameType, int, int, int]:
    """Return the type, flags, stream and payload size of the header at `at`, or raise `RelayViolation`."""
    code, flags, stream, size = _HEADER.unpack_from(data, at)
    kind = _TYPES.get(code)
    if kind is None:
        raise RelayViolation(f"{code} is no type of a frame")
    least, most = _SIZES[kind]
    if not least <= size <= most:
        raise RelayViolation(f"{kind.name} with {size} bytes: it has {least} to {most}")
    if kind is not FrameType.CLOSE and (flags or not stream):
        raise RelayViolation(f"{kind.name} with flags {flags} on stream {stream}")
    return kind, flags, stream, size
