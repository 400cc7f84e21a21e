"""The client's side of RFC 2217, without I/O: controls a serial line behind a server on the network.

Pass everything that the server sends to `feed`, then get the line's data with `read`. Pass data for the line through
`encode` before you send it. Whenever `unsent` is true, send what `take` returns.

`open`, `exchange`, `insist`, `purge` and `modem` are conversations; only one may run at a time. Their runner differs
from others in one point: it feeds all received bytes to this client, and then answers `Receive` with any value. So
data that precedes an answer stays in order, and another caller may read at the same time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from fastflight.errors import ProtocolError, TransportError, TransportTimeout
from fastflight.protocol.conversation import Conversation, Receive, Send
from fastflight.protocol.rfc2217 import (
    CLIENT,
    LINE_NAMES,
    SERVER,
    Message,
    ModemMask,
    ModemState,
    NotifyModem,
    Purge,
    Resume,
    Setting,
    Signature,
    Suspend,
    decode,
    encode,
)
from fastflight.protocol.telnet import Option, Subnegotiation, Telnet, TelnetData

Request = Setting | Purge

OURS = frozenset({Option.BINARY, Option.SUPPRESS_GO_AHEAD, Option.COM_PORT})
THEIRS = frozenset({Option.BINARY, Option.ECHO, Option.SUPPRESS_GO_AHEAD, Option.COM_PORT})

SIGNATURE = b"fastflight"
# How long to wait for an answer that the server may omit: to a question, and to a message sent before the server agreed
# to RFC 2217. It is far above a round trip, and these answers are not worth a longer wait.
PATIENCE_SECONDS = 0.5
# How many requests that timed out to remember, because a slow server may still answer them. One exchange has fewer.
LATE_REQUESTS = 16
# The most unread data during the wait for an answer: a line of 3 Mbaud sends this in 50 s. A server that sends more
# will not answer.
MAX_UNREAD_BYTES = 16 << 20

_QUESTIONS: frozenset[Request] = frozenset(Setting(name, None) for name in LINE_NAMES)


class Rfc2217Client:
    """One connection to a server; `where` names it in errors."""

    def __init__(self, where: str = "") -> None:
        self._where = where
        self._telnet = Telnet(OURS, THEIRS)
        self._received: deque[bytes] = deque()
        self._received_bytes = 0
        # The server's last message of each kind (`_kind`).
        self._answers: dict[object, Message] = {}
        # The requests of the running exchange, and requests that timed out or were cancelled before an answer.
        self._requests: Sequence[Request] = ()
        self._abandoned: deque[Message] = deque(maxlen=LATE_REQUESTS)
        self._purging = False
        self._modem: ModemState | None = None
        self._suspended = False
        # The settings in force, by name, as far as the server has reported them.
        self.settings: dict[str, Any] = {}

    @property
    def suspended(self) -> bool:
        """Whether the server has asked the client to send no data."""
        return self._suspended

    @property
    def unsent(self) -> bool:
        """Whether there is something to `take`."""
        return self._telnet.unsent

    @property
    def unread(self) -> bool:
        """Whether there is something to `read`."""
        return bool(self._received)

    def take(self) -> bytes:
        """Remove and return the bytes that must be sent to the server now."""
        return self._telnet.take()

    def encode(self, data: bytes) -> bytes:
        """Return `data` for the line in the form to send to the server."""
        return self._telnet.encode(data)

    def read(self) -> bytes:
        """Remove and return the line's data received so far; may be empty."""
        data = b"".join([self._received.popleft() for _ in range(len(self._received))])
        self._received_bytes -= len(data)
        return data

    def feed(self, data: bytes) -> None:
        """Process bytes from the server."""
        for event in self._telnet.feed(data):
            match event:
                case TelnetData(text):
                    self._received.append(text)
                    self._received_bytes += len(text)
                case Subnegotiation(Option.COM_PORT, payload):
                    message = decode(payload, SERVER)
                    if message is not None:
                        self._receive(message)

    def open(self, requests: Sequence[Request], within: float) -> Conversation[None]:
        """Agree on RFC 2217 and apply `requests`, in one round trip where the server allows it.

        `within` is the longest silence, in seconds. A question may stay unanswered. Raises `TransportTimeout` if a
        request that sets a value is not answered, `TransportError` if the server refuses RFC 2217 or puts another
        value in force.
        """
        for option in (Option.COM_PORT, Option.BINARY, Option.SUPPRESS_GO_AHEAD):
            self._telnet.ask(option, ours=True)
        for option in (Option.BINARY, Option.SUPPRESS_GO_AHEAD):
            self._telnet.ask(option, ours=False)
        yield from self._request(requests)
        if (yield from self._wait_until(lambda: self._opening_is_done(requests), PATIENCE_SECONDS)):
            self._check_agreed()
            self._check_in_force(requests)
            return
        yield from self._wait_until(lambda: self._agreed or self._refused, within)
        self._check_agreed()
        # Some servers ignore requests before they have agreed: send those again.
        missing = self._unanswered(requests)
        yield from self._request(missing)
        yield from self._wait_until(lambda: not self._unanswered(missing), PATIENCE_SECONDS)
        required = [request for request in requests if request not in _QUESTIONS]
        if not (yield from self._wait_until(lambda: not self._unanswered(required), within)):
            raise self._no_answer(self._unanswered(required))
        self._check_in_force(required)

    def exchange(self, requests: Sequence[Request], within: float) -> Conversation[None]:
        """Send `requests`, all of different kinds, and wait for their answers.

        `within` is the longest silence, in seconds. Raises `TransportTimeout` that names the unanswered requests.
        """
        self._requests = requests
        try:
            yield from self._request(requests)
            if not (yield from self._wait_until(lambda: not self._unanswered(requests), within)):
                raise self._no_answer(self._unanswered(requests))
        finally:
            # Timed out or cancelled: a late answer to these must not count as the answer to a later request.
            self._abandoned.extend(self._unanswered(requests))
            self._requests = ()

    def insist(self, requests: Sequence[Request], within: float) -> Conversation[None]:
        """Like `exchange`, but raise `TransportError` if a value other than the requested one is in force."""
        yield from self.exchange(requests, within)
        self._check_in_force(requests)

    def purge(self, request: Purge, within: float) -> Conversation[None]:
        """Send `request` and wait for the answer. If it purges received data, drop the data up to the answer."""
        self._purging = request.received
        try:
            yield from self.exchange([request], within)
        finally:
            self._purging = False

    def modem(self, within: float) -> Conversation[ModemState]:
        """Return the state of the modem lines: the current one, or the last from a server that reports only changes.

        Raises `TransportTimeout` if the server has never reported them.
        """
        self._answers.pop(NotifyModem, None)
        self._send_message(ModemMask(ModemState(0xFF)))
        self._send_message(NotifyModem(None))
        yield Send(self.take())
        timeout = within if self._modem is None else min(within, PATIENCE_SECONDS)
        yield from self._wait_until(lambda: NotifyModem in self._answers, timeout)
        if self._modem is None:
            raise TransportTimeout("the server does not tell the modem lines", where=self._where)
        return self._modem

    @property
    def _agreed(self) -> bool:
        return self._telnet.is_on(Option.COM_PORT, ours=True) or bool(self._answers)

    @property
    def _refused(self) -> bool:
        return self._telnet.is_settled(Option.COM_PORT, ours=True) and not self._agreed

    def _opening_is_done(self, requests: Sequence[Request]) -> bool:
        """Return whether `open` need not wait any longer.

        That is so once the server has refused RFC 2217, or has answered all `requests` and the options that they need.
        """
        options = ((Option.COM_PORT, True), (Option.BINARY, True), (Option.BINARY, False))
        settled = all(self._telnet.is_settled(option, ours=ours) for option, ours in options)
        return self._refused or (settled and not self._unanswered(requests))

    def _check_agreed(self) -> None:
        if self._agreed:
            return
        hint = "It may be a raw line: open it as socket:// instead"
        if self._refused:
            raise TransportError("the server refuses RFC 2217", where=self._where, hint=hint)
        raise TransportTimeout("the server did not answer whether it speaks RFC 2217", where=self._where, hint=hint)

    def _check_in_force(self, requests: Sequence[Request]) -> None:
        answers = [(request, self._answers[_kind(request)]) for request in requests if request not in _QUESTIONS]
        if differing := [answer for request, answer in answers if answer != request]:
            raise TransportError(
                f"the server did not do as it was asked, and answered {_names(differing)}",
                where=self._where,
                hint="Ask for what its serial port can do",
            )

    def _receive(self, message: Message) -> None:
        if message in self._abandoned and message not in self._requests:
            self._abandoned.remove(message)
        else:
            self._answers[_kind(message)] = message
        match message:
            case Setting(name, value) if value is not None:
                self.settings[name] = value
            case NotifyModem(state):
                self._modem = state
            case Purge() if self._purging:
                self.read()
            case Suspend() | Resume():
                self._suspended = isinstance(message, Suspend)
            case Signature(b""):
                self._send_message(Signature(SIGNATURE))

    def _send_message(self, message: Message) -> None:
        self._telnet.subnegotiate(Option.COM_PORT, encode(message, CLIENT))

    def _request(self, requests: Sequence[Request]) -> Conversation[None]:
        for request in requests:
            self._answers.pop(_kind(request), None)
            try:
                self._send_message(request)
            except ValueError as error:
                raise TransportError(str(error), where=self._where) from error
        yield Send(self.take())

    def _unanswered(self, requests: Sequence[Request]) -> list[Request]:
        return [request for request in requests if _kind(request) not in self._answers]

    def _wait_until(self, condition: Callable[[], bool], within: float) -> Conversation[bool]:
        """Wait until `condition` holds. Return False if the server is silent for `within` seconds before that."""
        while not condition():
            if self._received_bytes > MAX_UNREAD_BYTES:
                raise ProtocolError(f"the server sent {self._received_bytes} bytes, and no answer", where=self._where)
            try:
                yield Receive(within)
            except TransportTimeout:
                return False
        return True

    def _no_answer(self, missing: Sequence[Request]) -> TransportTimeout:
        return TransportTimeout(f"the server did not answer {_names(missing)}", where=self._where)


def _kind(message: Message) -> object:
    """Return what the answer to a request has in common with it."""
    return message.name if isinstance(message, Setting) else type(message)


def _names(messages: Sequence[Message]) -> str:
    return ", ".join(str(message) for message in messages)
