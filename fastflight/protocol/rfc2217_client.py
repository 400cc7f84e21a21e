"""The client's side of RFC 2217, without I/O: a serial line behind a server on the network.

Pass everything that the server sends to `feed`; data of the line then waits for `read`, in order. Data for the line
goes through `encode`. Whenever `unsent` is true, send what `take` returns. `open`, `exchange`, `insist`, `purge` and
`modem` are conversations, of which one may run at a time. Their runner differs in one point: it feeds all received
bytes to this client, and answers `Receive` with any value once that is done. So data before an answer keeps its place,
and another caller may read at the same time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from fastflight.errors import ProtocolError, TransportError, TransportTimeout
from fastflight.protocol.conversation import Conversation, Receive, Send
from fastflight.protocol.rfc2217 import (
    CLIENT,
    SERVER,
    Control,
    Message,
    ModemMask,
    ModemState,
    NotifyModem,
    Parity,
    Purge,
    Resume,
    SetBaud,
    SetDataBits,
    SetParity,
    SetStopBits,
    Setting,
    Signature,
    Suspend,
    decode,
    encode,
)
from fastflight.protocol.telnet import Option, Subnegotiation, Telnet, TelnetData

Request = Setting | Control | Purge

OURS = frozenset({Option.BINARY, Option.SUPPRESS_GO_AHEAD, Option.COM_PORT})
THEIRS = frozenset({Option.BINARY, Option.ECHO, Option.SUPPRESS_GO_AHEAD, Option.COM_PORT})

SIGNATURE = b"fastflight"
# Silence after which a server is taken not to answer what it need not: questions, and all that was said before it
# agreed to RFC 2217. Far above a round trip, and not worth waiting longer for.
PATIENCE_SECONDS = 0.5
# Requests that were given up and may still be answered: more than one exchange has, of a server that answers late.
LATE_REQUESTS = 16
# Data kept while an answer is awaited: a line of 3 Mbaud sends this in 50 s. A server that sends more will not answer.
MAX_UNREAD_BYTES = 16 << 20

_QUESTIONS: frozenset[Request] = frozenset({SetBaud(None), SetDataBits(None), SetParity(None), SetStopBits(None)})


class Rfc2217Client:
    """One connection to a server; `where` names it in errors."""

    def __init__(self, where: str = "") -> None:
        self._where = where
        self._telnet = Telnet(OURS, THEIRS)
        self._received: deque[bytes] = deque()
        self._received_bytes = 0
        # What the server said last, by kind.
        self._answers: dict[type[Message], Message] = {}
        # What is asked now, and what was given up before it was answered.
        self._asked: Sequence[Request] = ()
        self._late: deque[Message] = deque(maxlen=LATE_REQUESTS)
        self._purging = False
        self._modem: ModemState | None = None
        self._suspended = False
        # In force, as far as the server told.
        self.baud: int | None = None
        self.data_bits: int | None = None
        self.parity: Parity | None = None
        self.stop_bits: float | None = None

    @property
    def suspended(self) -> bool:
        """Whether the server has asked for no data."""
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
        """The bytes that must be sent to the server now."""
        return self._telnet.take()

    def encode(self, data: bytes) -> bytes:
        """`data` for the line as it is sent to the server."""
        return self._telnet.encode(data)

    def read(self) -> bytes:
        """The data of the line that is not read yet; may be empty."""
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
        """Agree on RFC 2217 and carry `requests` out, in one round trip where the server allows it.

        A question may stay unanswered. `TransportTimeout` if a request that sets a value is not answered.
        """
        for option in (Option.COM_PORT, Option.BINARY, Option.SUPPRESS_GO_AHEAD):
            self._telnet.ask(option, ours=True)
        for option in (Option.BINARY, Option.SUPPRESS_GO_AHEAD):
            self._telnet.ask(option, ours=False)
        yield from self._request(requests)
        if (yield from self._until(lambda: self._is_open(requests), PATIENCE_SECONDS)):
            self._check_agreed()
            self._check_done(requests)
            return
        yield from self._until(lambda: self._agreed or self._refused, within)
        self._check_agreed()
        # Some servers hear nothing before they have agreed: once more.
        missing = self._unanswered(requests)
        yield from self._request(missing)
        yield from self._until(lambda: not self._unanswered(missing), PATIENCE_SECONDS)
        orders = [request for request in requests if request not in _QUESTIONS]
        if not (yield from self._until(lambda: not self._unanswered(orders), within)):
            raise self._silent(self._unanswered(orders))
        self._check_done(orders)

    def exchange(self, requests: Sequence[Request], within: float) -> Conversation[None]:
        """Wait for answers to `requests`, all of different kinds. `TransportTimeout` names the missing ones."""
        self._asked = requests
        try:
            yield from self._request(requests)
            if not (yield from self._until(lambda: not self._unanswered(requests), within)):
                raise self._silent(self._unanswered(requests))
        finally:
            # Too late, or cancelled: what answers these answers nothing that is asked after them.
            self._late.extend(self._unanswered(requests))
            self._asked = ()

    def insist(self, requests: Sequence[Request], within: float) -> Conversation[None]:
        """`exchange`, with a `TransportError` if another value than the requested one is in force."""
        yield from self.exchange(requests, within)
        self._check_done(requests)

    def purge(self, request: Purge, within: float) -> Conversation[None]:
        """Drop buffered data on the way, up to the server's answer."""
        self._purging = request.received
        try:
            yield from self.exchange([request], within)
        finally:
            self._purging = False

    def modem(self, within: float) -> Conversation[ModemState]:
        """The modem lines now, or as last reported by a server that reports only changes."""
        self._answers.pop(NotifyModem, None)
        self._tell(ModemMask(ModemState(0xFF)))
        self._tell(NotifyModem(None))
        yield Send(self.take())
        patience = within if self._modem is None else min(within, PATIENCE_SECONDS)
        yield from self._until(lambda: NotifyModem in self._answers, patience)
        if self._modem is None:
            raise TransportTimeout("the server does not tell the modem lines", where=self._where)
        return self._modem

    @property
    def _agreed(self) -> bool:
        return self._telnet.is_on(Option.COM_PORT, ours=True) or bool(self._answers)

    @property
    def _refused(self) -> bool:
        return self._telnet.is_settled(Option.COM_PORT, ours=True) and not self._agreed

    def _is_open(self, requests: Sequence[Request]) -> bool:
        """The server said no, or all that it was asked."""
        matter = ((Option.COM_PORT, True), (Option.BINARY, True), (Option.BINARY, False))
        settled = all(self._telnet.is_settled(option, ours=ours) for option, ours in matter)
        return self._refused or (settled and not self._unanswered(requests))

    def _check_agreed(self) -> None:
        if self._agreed:
            return
        hint = "It may be a raw line: open it as socket:// instead"
        if self._refused:
            raise TransportError("the server refuses RFC 2217", where=self._where, hint=hint)
        raise TransportTimeout("the server did not answer whether it speaks RFC 2217", where=self._where, hint=hint)

    def _check_done(self, requests: Sequence[Request]) -> None:
        answers = [(request, self._answers[type(request)]) for request in requests if request not in _QUESTIONS]
        if kept := [answer for request, answer in answers if answer != request]:
            raise TransportError(
                f"the server did not do as it was asked, and answered {_names(kept)}",
                where=self._where,
                hint="Ask for what its serial port can do",
            )

    def _receive(self, message: Message) -> None:
        if message in self._late and message not in self._asked:
            self._late.remove(message)
        else:
            self._answers[type(message)] = message
        match message:
            case SetBaud(baud):
                self.baud = baud
            case SetDataBits(bits):
                self.data_bits = bits
            case SetParity(parity):
                self.parity = parity
            case SetStopBits(stop_bits):
                self.stop_bits = stop_bits
            case NotifyModem(state):
                self._modem = state
            case Purge() if self._purging:
                self.read()
            case Suspend() | Resume():
                self._suspended = isinstance(message, Suspend)
            case Signature(b""):
                self._tell(Signature(SIGNATURE))

    def _tell(self, message: Message) -> None:
        self._telnet.subnegotiate(Option.COM_PORT, encode(message, CLIENT))

    def _request(self, requests: Sequence[Request]) -> Conversation[None]:
        for request in requests:
            self._answers.pop(type(request), None)
            try:
                self._tell(request)
            except ValueError as error:
                raise TransportError(str(error), where=self._where) from error
        yield Send(self.take())

    def _unanswered(self, requests: Sequence[Request]) -> list[Request]:
        return [request for request in requests if type(request) not in self._answers]

    def _until(self, reached: Callable[[], bool], within: float) -> Conversation[bool]:
        """Wait until `reached`; false when the server was silent for `within` seconds before."""
        while not reached():
            if self._received_bytes > MAX_UNREAD_BYTES:
                raise ProtocolError(f"the server sent {self._received_bytes} bytes, and no answer", where=self._where)
            try:
                yield Receive(within)
            except TransportTimeout:
                return False
        return True

    def _silent(self, missing: Sequence[Request]) -> TransportTimeout:
        return TransportTimeout(f"the server did not answer {_names(missing)}", where=self._where)


def _names(messages: Sequence[Message]) -> str:
    return ", ".join(str(message) for message in messages)
