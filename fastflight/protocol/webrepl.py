"""The client of a board's WebREPL: a WebSocket that carries the REPL in text frames, after a password.

No I/O: pass received bytes to `feed`; send what `encode` returns, and whenever `unsent` is true what `take` returns.
`open` is a conversation, with a runner as for `rfc2217_client`.

MicroPython's server (`webrepl.py` and `modwebrepl.c`) serves one client at a time. It writes `Password: `, reads a
line, and answers `WebREPL connected` or `Access denied`. From then on each text frame is a piece of the terminal, cut
anywhere and not always UTF-8. Binary frames would start its own file transfers; none are sent.
"""

from __future__ import annotations

from collections import deque

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.protocol.conversation import Conversation, Receive, Send

PROMPT, CONNECTED, DENIED = b"Password: ", b"WebREPL connected\r\n", b"Access denied"
# The longest frame that the server can send.
MAX_FRAME_BYTES = 64 * 1024
# A board holds a frame's header and as much of it as it reads at once, so this only has to spare headers.
SENT_FRAME_BYTES = 4096
# What a server says before it lets a client in.
MAX_GREETING_BYTES = 4096


class WebReplClient:
    """One connection to the WebREPL at `host` and `port`; `where` names it in errors. `tls`: a proxy encrypts it."""

    def __init__(self, where: str, host: str, port: int, *, tls: bool = False) -> None:
        self._where = where
        host = f"[{host}]" if ":" in host else host
        uri = parse_uri(f"{'wss' if tls else 'ws'}://{host}:{port}/")
        self._frames = ClientProtocol(uri, max_size=MAX_FRAME_BYTES)
        self._received: deque[bytes] = deque()
        self._unsent = bytearray()

    @property
    def unsent(self) -> bool:
        """Whether there is something to `take`."""
        return bool(self._unsent)

    @property
    def unread(self) -> bool:
        """Whether `read` returns or raises something."""
        return bool(self._received) or self._ended

    def take(self) -> bytes:
        """Remove and return the bytes that must be sent now."""
        data = bytes(self._unsent)
        self._unsent.clear()
        return data

    def encode(self, data: bytes) -> bytes:
        """Return `data` for the terminal in the form to send, after what is `unsent`."""
        if self._frames.state is State.OPEN:
            for start in range(0, len(data), SENT_FRAME_BYTES):
                self._frames.send_text(data[start : start + SENT_FRAME_BYTES])
        self._collect()
        return self.take()

    def read(self) -> bytes:
        """Remove and return what the terminal has received; may be empty. `TransportClosed` at the end."""
        if not self._received and self._ended:
            hint = "A reset of the board does that: try again"
            raise TransportClosed("the board closed its WebREPL", where=self._where, hint=hint)
        return b"".join(self._received.popleft() for _ in range(len(self._received)))

    def feed(self, data: bytes) -> None:
        """Process received bytes."""
        self._frames.receive_data(data)
        for event in self._frames.events_received():
            if isinstance(event, Frame) and event.data and event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                self._received.append(bytes(event.data))
        self._collect()

    def open(self, password: str, within: float) -> Conversation[None]:
        """Connect and log in. `within` is the longest silence, in seconds. `TransportError` says why it was refused."""
        self._frames.send_request(self._frames.connect())
        self._collect()
        while self._frames.state is State.CONNECTING and self._frames.handshake_exc is None:
            yield from self._exchange(within)
        if self._frames.handshake_exc is not None:
            raise TransportError(
                f"no WebREPL answers there ({self._frames.handshake_exc})",
                where=self._where,
                hint="Start it on the board: import webrepl_setup",
            )
        yield from self._read_until(PROMPT, within)
        self._unsent += self.encode(password.encode() + b"\r")
        answer = yield from self._read_until(CONNECTED, within)
        if rest := answer.partition(CONNECTED)[2]:
            self._received.appendleft(rest)

    def _read_until(self, mark: bytes, within: float) -> Conversation[bytes]:
        text = b""
        while mark not in text:
            text += self.read()
            if DENIED in text:
                hint = "Check password_file or password_env in its URL"
                raise TransportError("its WebREPL refuses the password", where=self._where, hint=hint)
            if len(text) > MAX_GREETING_BYTES:
                raise TransportError("what answers there is not a WebREPL", where=self._where)
            if mark not in text:
                yield from self._exchange(within)
        return text

    def _exchange(self, within: float) -> Conversation[None]:
        if self.unsent:
            yield Send(self.take())
        try:
            yield Receive(within)
        except TransportTimeout as error:
            raise TransportTimeout(f"its WebREPL sent nothing for {within:g} s", where=self._where) from error

    @property
    def _ended(self) -> bool:
        return self._frames.state in (State.CLOSING, State.CLOSED) or self._frames.handshake_exc is not None

    def _collect(self) -> None:
        """Move what is to be sent into `_unsent`."""
        self._unsent += b"".join(self._frames.data_to_send())
