"""One client of the relay: a WebSocket whose binary messages are the relay's frames, and its streams.

A `RelaySocket` receives from the client and sends to it. Memory is bounded in both directions: targets are not read
while `QUEUED_BYTES` or `DATA_FRAMES` wait for the client, and the client is not read while `MAX_QUEUED_FRAMES` wait. So
a client that sends requests and never reads has a limited cost. To end a client, the relay sends a frame with the
reason and a WebSocket close, and gives the client a moment to read them.

The `websockets` library parses and checks the client's frames. Its own answers are dropped: one pong answers all pings
of a read, and the close frame follows the last frame of the relay.
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
from fastflight.gateway.relay.stream import CONNECT_SECONDS, RelayStream
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

# Bytes that wait for a client that does not read: a few reads of its targets. The system's buffer holds more.
QUEUED_BYTES = 512 * 1024
# Frames that wait for a client. Data takes at most half of them; the other half is for answers.
MAX_QUEUED_FRAMES = 1000
DATA_FRAMES = MAX_QUEUED_FRAMES // 2
# Connections to targets that are being opened: as many as a page opens at once, but too few to scan a network.
MAX_CONNECTING = 32
# New streams: twice as many as may be open as a burst, then so many a second.
OPENS_AT_ONCE, OPENS_PER_SECOND = 2 * MAX_STREAMS, 32
# A page puts one frame of the relay into each message; others may put several.
MAX_MESSAGE_BYTES = MAX_PAYLOAD_BYTES + 64 * 1024
# How long a client has to read why the relay ends it. Closing at once could destroy the text on its way.
LINGER_SECONDS = 2.0


class RelayClient:
    """The client at `wire`, authenticated as `identity`. Call `start`. `gone` is called once, at the end."""

    def __init__(
        self,
        wire: RelaySocket,
        allowed: AllowedTargets,
        buffers: Buffers,
        gone: Callable[[RelayClient], None],
        *,
        identity: Identity = ANYBODY,
        clock: Callable[[], float] = time.monotonic,
        connect_timeout: float = CONNECT_SECONDS,
        timing: bool = False,
    ) -> None:
        self.connection = RelayConnection(accepts=True)
        self.buffers = buffers
        self.outgoing = wire.start(self._receive, self._drained, self.abort)
        self._wire = wire
        self._allowed = allowed
        self._asker = Asker(identity, own_port=wire.own_port)
        self._opens = RateLimit(OPENS_AT_ONCE, OPENS_PER_SECOND, clock)
        self._gone = gone
        self._connect_timeout = connect_timeout
        self._timing = timing
        self._loop = asyncio.get_running_loop()
        # Extensions are not negotiated. Each fragment is passed on by itself, so only fragments are limited.
        self._websocket = Protocol(Side.SERVER, max_size=(None, MAX_MESSAGE_BYTES))
        self._streams: dict[int, RelayStream] = {}
        # The streams that read their target as soon as the client has room.
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
        """How many streams are open."""
        return len(self._streams)

    def look_again(self) -> None:
        """Read the client and the targets: the loop may not have reported that one has ended."""
        self._wire.look_again()
        for stream in list(self._streams.values()):
            stream.look_again()

    def waiting(self) -> Waiting | None:
        """Return what waits for the client to read; None if nothing does."""
        return (self.outgoing.size, self._wire.send_state()) if self.outgoing.size else None

    def start(self, hello: bytes) -> None:
        """Send `hello`, the answer to the handshake, and start to receive."""
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
        """Send the reason, and end when the client has closed, at the latest after `LINGER_SECONDS`."""
        self._finish(self.connection.end_connection(reason, text), code, text)

    def abort(self) -> None:
        """End at once, without a message."""
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

    def _receive(self, data: bytes) -> None:
        if not data:
            self.abort()
        elif not self._ending:  # otherwise the client has not read yet that it is ended
            self._parse(data)
            if self.outgoing.frames >= MAX_QUEUED_FRAMES:
                self._wire.rest()

    def _parse(self, data: bytes) -> None:
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
        elif pong is not None:  # RFC 6455, 5.5.3: a pong to the last of several pings is enough
            self._send_frame(Opcode.PONG, pong.data)

    def _finish_closed(self) -> None:
        """End with the close frame of the library: it answers the client's, or names its error."""
        close = self._websocket.close_sent
        assert close is not None
        has_code = close.code != CloseCode.NO_STATUS_RCVD
        failed = self._websocket.parser_exc is not None
        self._finish(b"", close.code if has_code else CloseCode.NORMAL_CLOSURE, close.reason if failed else "")

    def _carry_out(self, event: Event) -> None:
        if isinstance(event, Open):
            self._open(event)
        elif isinstance(event, Closed) and event.stream == 0:
            self._finish(b"", CloseCode.NORMAL_CLOSURE, "")
        elif (stream := self._streams.get(event.stream)) is None:
            return  # an event before this one closed the stream
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
        stream = RelayStream(self, event.stream, event.target, timing=self._timing)
        self._streams[event.stream] = stream
        stream.start(self._allowed, self._asker, self._connect_timeout)

    def _full(self) -> str:
        """Return why no stream may be opened now; empty if one may."""
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
        """Close the sending side once all is sent, so that the client closes as well."""
        if self._ending and not self._ended and not self._shut and not self.outgoing.frames:
            self._shut = True
            try:
                self._wire.shut()
            except OSError:
                self._loop.call_soon(self.abort)
