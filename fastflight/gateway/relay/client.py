"""One client of the relay: a WebSocket whose binary messages are the relay's frames, and its streams.

The client is heard and answered by its `RelaySocket`. Its memory is bounded on both ways: targets are not read while
`QUEUED_BYTES` or `DATA_FRAMES` wait for it, and it is not heard itself while `MAX_QUEUED_FRAMES` do, so that one that
asks and never reads costs no more. It ends by a last frame that says why, a WebSocket close, and a moment to read them.

The `websockets` library reads and checks the client's frames. What it would send by itself is dropped: one pong answers
all pings of a read, and a close frame goes out behind the last frame of the relay.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from websockets.frames import Close, CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side

from fastflight.access.identity import ANYBODY, Identity
from fastflight.gateway.http.connections import Waiting
from fastflight.gateway.http.quota import RateLimit
from fastflight.gateway.relay.outgoing import Buffers
from fastflight.gateway.relay.stream import CONNECT_SECONDS, RelayStream, Taps
from fastflight.gateway.relay.targets import AllowedTargets, Asker
from fastflight.gateway.relay.wire import RelaySocket
from fastflight.gateway.ws.channel import cut_reason
from fastflight.protocol.relay import (
    MAX_PAYLOAD_BYTES,
    MAX_STREAMS,
    Closed,
    Credited,
    End,
    Event,
    Open,
    Reason,
    RelayConnection,
    RelayData,
    RelayViolation,
    violated,
)

# Payload that waits for a client that does not read: some reads of all its targets. The system holds more, in its own.
QUEUED_BYTES = 512 * 1024
# Frames that wait for it. Data stops at half of them: the other half is for answers.
MAX_QUEUED_FRAMES = 1000
DATA_FRAMES = MAX_QUEUED_FRAMES // 2
# Targets that have not answered yet: as many as a page opens in one go, and few to knock at a network's doors with.
MAX_CONNECTING = 32
# New streams: twice what a connection has in one go, and then so many a second.
OPENS_AT_ONCE, OPENS_PER_SECOND = 2 * MAX_STREAMS, 32
# A page puts one frame of the relay into each message; others may put several.
MAX_MESSAGE_BYTES = MAX_PAYLOAD_BYTES + 64 * 1024
# What a client that is told to go gets to read why. Closing at once could destroy the text on its way.
LINGER_SECONDS = 2.0


class RelayClient:
    """The client at `wire`, for whom `identity` was proven. `start` it; `gone` is told once."""

    def __init__(
        self,
        wire: RelaySocket,
        allowed: AllowedTargets,
        buffers: Buffers,
        gone: Callable[[RelayClient], None],
        *,
        identity: Identity = ANYBODY,
        clock: Callable[[], float] = time.monotonic,
        taps: Taps = lambda device: None,
        connect_timeout: float = CONNECT_SECONDS,
        timing: bool = False,
    ) -> None:
        self.connection = RelayConnection(accepts=True)
        self.buffers = buffers
        self.outgoing = wire.start(self._heard, self._drained, self.abort)
        self._wire = wire
        self._allowed = allowed
        self._asker = Asker(identity, own_port=wire.own_port)
        self._opens = RateLimit(OPENS_AT_ONCE, OPENS_PER_SECOND, clock)
        self._gone = gone
        self._taps = taps
        self._connect_timeout = connect_timeout
        self._timing = timing
        self._loop = asyncio.get_running_loop()
        # Extensions are not negotiated. Each fragment is passed on by itself, so only fragments are limited.
        self._websocket = Protocol(Side.SERVER, max_size=(None, MAX_MESSAGE_BYTES))
        self._streams: dict[int, RelayStream] = {}
        # Those that would read their target if there were room.
        self._waiting: dict[int, RelayStream] = {}
        self._ending = False
        self._ended = False
        self._shut = False
        self._linger: asyncio.TimerHandle | None = None

    @property
    def has_room(self) -> bool:
        return self.outgoing.size < QUEUED_BYTES and self.outgoing.frames < DATA_FRAMES

    @property
    def streams(self) -> int:
        """How many it has."""
        return len(self._streams)

    def look_again(self) -> None:
        """See to the client, and to targets, of whose end nobody may have told."""
        self._wire.look_again()
        for stream in list(self._streams.values()):
            stream.look_again()

    def waiting(self) -> Waiting | None:
        """What waits for the client; None while nothing does."""
        return (self.outgoing.size, self._wire.send_state()) if self.outgoing.size else None

    def start(self, hello: bytes) -> None:
        """Send `hello`, the answer to the handshake, and listen."""
        self.outgoing.send(hello)
        self._wire.listen()

    def wants_room(self, stream: RelayStream) -> None:
        self._waiting[stream.number] = stream

    def send(self, frame: bytes) -> None:
        if frame and not self._ending:
            self._send_frame(Opcode.BINARY, frame)

    def over(self, stream: RelayStream) -> None:
        self._streams.pop(stream.number, None)
        self._waiting.pop(stream.number, None)

    def end(self, code: CloseCode, reason: Reason, text: str) -> None:
        """Say why it ends, and end when that was read."""
        self._finish(self.connection.end_connection(reason, text), code, text)

    def abort(self) -> None:
        """End at once."""
        if self._ended:
            return
        self._ended = self._ending = True
        self._drop_streams("client gone")
        if self._linger is not None:
            self._linger.cancel()
        self._wire.close()
        self._gone(self)

    def _drained(self) -> None:
        if self.has_room and self._waiting:
            waiting, self._waiting = self._waiting, {}
            for stream in waiting.values():
                stream.look()
        if self.outgoing.frames < MAX_QUEUED_FRAMES and not self._ended:
            self._wire.listen()
        self._shut_when_sent()

    def _send_frame(self, opcode: Opcode, data: bytes | bytearray | memoryview) -> None:
        self.outgoing.send(Frame(opcode, data).serialize(mask=False))

    def _heard(self, data: bytes) -> None:
        if not data:
            self.abort()
        elif not self._ending:  # else it is thrown away: the client has not read yet that it is over
            self._hear(data)
            if self.outgoing.frames >= MAX_QUEUED_FRAMES:
                self._wire.rest()

    def _hear(self, data: bytes) -> None:
        self._websocket.receive_data(data)
        self._websocket.data_to_send()
        pong: Frame | None = None
        try:
            for frame in self._websocket.events_received():
                assert isinstance(frame, Frame)
                if frame.opcode is Opcode.PING:
                    pong = frame
                elif frame.opcode is Opcode.CLOSE:
                    self._finish_closed()
                elif frame.opcode is Opcode.TEXT:
                    self._finish(b"", CloseCode.UNSUPPORTED_DATA, "the relay takes binary messages")
                elif frame.opcode is not Opcode.PONG:
                    for event in self.connection.feed(frame.data):
                        self._carry_out(event)
                if self._ending:
                    return
        except RelayViolation as error:
            self._finish(violated(error), CloseCode.PROTOCOL_ERROR, error.what)
            return
        if self._websocket.parser_exc is not None:
            self._finish_closed()
        elif pong is not None:  # RFC 6455, 5.5.3: of several, the last may be answered for all
            self._send_frame(Opcode.PONG, pong.data)

    def _finish_closed(self) -> None:
        """End with the close frame that the library has for the client's: an answer, or what was wrong."""
        close = self._websocket.close_sent
        assert close is not None
        said = close.code != CloseCode.NO_STATUS_RCVD
        failed = self._websocket.parser_exc is not None
        self._finish(b"", close.code if said else CloseCode.NORMAL_CLOSURE, close.reason if failed else "")

    def _carry_out(self, event: Event) -> None:
        if isinstance(event, Open):
            self._open(event)
        elif isinstance(event, Closed) and event.stream == 0:
            self._finish(b"", CloseCode.NORMAL_CLOSURE, "")
        elif (stream := self._streams.get(event.stream)) is None:
            return  # closed by what came just before it
        elif isinstance(event, RelayData):
            stream.feed(event.data)
        elif isinstance(event, Credited):
            stream.look()
        elif isinstance(event, End):
            stream.end()
        elif isinstance(event, Closed):
            stream.abort("closed by the client")
            self.send(self.connection.close(event.stream))
            self.over(stream)

    def _open(self, event: Open) -> None:
        if text := self._full():
            self.send(self.connection.close(event.stream, Reason.LIMIT, text))
            return
        stream = RelayStream(self, event.stream, event.target, self._taps, timing=self._timing)
        self._streams[event.stream] = stream
        stream.start(self._allowed, self._asker, self._connect_timeout)

    def _full(self) -> str:
        """Why no more streams may be opened now; empty if they may."""
        if len(self._streams) >= MAX_STREAMS:
            return f"{MAX_STREAMS} streams are open: close one, or open another connection"
        if sum(stream.is_connecting for stream in self._streams.values()) >= MAX_CONNECTING:
            return f"{MAX_CONNECTING} targets have not answered yet: wait for one"
        if not self._opens.take():
            return f"more than {OPENS_PER_SECOND} streams a second: wait"
        return ""

    def _drop_streams(self, reason: str) -> None:
        streams, self._streams = self._streams, {}
        self._waiting.clear()
        for stream in streams.values():
            stream.abort(reason)

    def _finish(self, last: bytes, code: int, reason: str) -> None:
        if self._ending:
            return
        self._drop_streams("connection ended")
        self.send(last)
        self._ending = True
        self._send_frame(Opcode.CLOSE, Close(code, cut_reason(reason)).serialize())
        self._linger = self._loop.call_later(LINGER_SECONDS, self.abort)
        self._wire.listen()
        self._shut_when_sent()

    def _shut_when_sent(self) -> None:
        """Say that nothing follows, so that the client closes as well."""
        if self._ending and not self._ended and not self._shut and not self.outgoing.frames:
            self._shut = True
            try:
                self._wire.shut()
            except OSError:
                self._loop.call_soon(self.abort)
