"""Telnet without I/O: turns bytes from the peer into events, and data into bytes for the peer.

`feed` takes everything that comes from the peer and returns its events in order. How the bytes are split changes only
where one `TelnetData` ends and the next begins. After each `feed`, `ask` or `subnegotiate`, send what `take` returns.
Data for the peer goes through `encode`.

Options are negotiated by the states of RFC 1143, without the two states for withdrawing a request: an option is off,
requested, or on, separately for our side and for theirs. A request that changes nothing is not answered, a refusal is
sent once, and after `MAX_CHANGES` changes an option keeps its state and further requests are ignored: no peer can keep
a negotiation going. Nothing that a peer sends is an error: commands without meaning are skipped, and a subnegotiation
that is too long is dropped.

A byte 0xFF in the data crosses the wire as a pair of IACs; a single IAC begins a command.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from enum import Enum, IntEnum

IAC = b"\xff"
PAIR = b"\xff\xff"
# The longest that means anything here is a SIGNATURE, a line of text. Counted as on the wire.
MAX_SUBNEGOTIATION_BYTES = 1024
# Times that one option may change on one side; an honest session needs two.
MAX_CHANGES = 32
# Everything up to the first IAC that is not half of a pair.
_PLAIN = re.compile(rb"[^\xff]*+(?:(?:\xff\xff)++[^\xff]*+)*+")
# `bytes.replace` costs the same for each IAC, so runs of this length, as in erased flash, are replaced in one piece.
_RUN = IAC * 64


class TelnetCode(IntEnum):
    """The commands after an IAC (RFC 854)."""

    SE = 240
    NOP = 241
    DATA_MARK = 242
    BREAK = 243
    INTERRUPT = 244
    ABORT_OUTPUT = 245
    ARE_YOU_THERE = 246
    ERASE_CHARACTER = 247
    ERASE_LINE = 248
    GO_AHEAD = 249
    SB = 250
    WILL = 251
    WONT = 252
    DO = 253
    DONT = 254


class Option(IntEnum):
    """The options that matter to a serial line."""

    BINARY = 0
    ECHO = 1
    SUPPRESS_GO_AHEAD = 3
    COM_PORT = 44


@dataclass(frozen=True, slots=True)
class TelnetData:
    """Bytes of the stream, at least one."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Command:
    """A command without an option, such as `TelnetCode.BREAK`."""

    code: TelnetCode


@dataclass(frozen=True, slots=True)
class Negotiated:
    """An option was switched on our side or on theirs, or the peer refused our request (`on` is false)."""

    option: int
    ours: bool
    on: bool


@dataclass(frozen=True, slots=True)
class Subnegotiation:
    """A message of the peer about `option`."""

    option: int
    payload: bytes


Event = TelnetData | Command | Negotiated | Subnegotiation


class _State(Enum):
    OFF = 0
    REQUESTED = 1
    ON = 2


# Received commands: whose side they are about, and whether they switch the option on.
_RECEIVED: dict[int, tuple[bool, bool]] = {
    TelnetCode.WILL: (False, True),
    TelnetCode.WONT: (False, False),
    TelnetCode.DO: (True, True),
    TelnetCode.DONT: (True, False),
}
# Sent commands, by our side or theirs, and on or off.
_SENT = {
    (True, True): TelnetCode.WILL,
    (True, False): TelnetCode.WONT,
    (False, True): TelnetCode.DO,
    (False, False): TelnetCode.DONT,
}
_PLAIN_COMMANDS = frozenset(range(TelnetCode.NOP, TelnetCode.SB))


class Telnet:
    """One side of a connection. `ours` and `theirs` are the options that may be on, on each side."""

    def __init__(self, ours: frozenset[int], theirs: frozenset[int]) -> None:
        self._allowed = {True: ours, False: theirs}
        self._states: dict[tuple[int, bool], _State] = {}
        self._changes: dict[tuple[int, bool], int] = {}
        # Of whole commands: one thread may take while another feeds.
        self._outgoing: deque[bytes] = deque()
        # The beginning of a command whose end has not come yet.
        self._unfinished = b""
        # Inside a subnegotiation that is too long to keep.
        self._dropping = False
        self._after_return = False

    def ask(self, option: int, *, ours: bool) -> None:
        """Request `option` on our side or on theirs."""
        if self._state(option, ours) is _State.OFF:
            self._states[option, ours] = _State.REQUESTED
            self._send(option, ours, True)

    def is_on(self, option: int, *, ours: bool) -> bool:
        return self._state(option, ours) is _State.ON

    def is_settled(self, option: int, *, ours: bool) -> bool:
        """Whether no request of ours is open."""
        return self._state(option, ours) is not _State.REQUESTED

    def subnegotiate(self, option: int, payload: bytes) -> None:
        """Send `payload` about `option`."""
        body = bytes([option]) + payload
        self._outgoing.append(bytes((IAC[0], TelnetCode.SB)) + body.replace(IAC, PAIR) + bytes((IAC[0], TelnetCode.SE)))

    def take(self) -> bytes:
        """The bytes that must be sent to the peer now."""
        return b"".join([self._outgoing.popleft() for _ in range(len(self._outgoing))])

    @property
    def unsent(self) -> bool:
        """Whether there is something to `take`."""
        return bool(self._outgoing)

    def encode(self, data: bytes) -> bytes:
        """`data` as it crosses the wire.

        Data is sent as binary from our request on: a peer that agrees decodes all that follows our WILL as binary.
        """
        if self._state(Option.BINARY, True) is _State.OFF:
            # RFC 854: a carriage return that is no part of a line's end is followed by NUL.
            data = data.replace(b"\r", b"\r\0")
        return _escaped(data)

    def feed(self, data: bytes) -> list[Event]:
        """The events in `data` from the peer. Then send what `take` returns."""
        if self._unfinished:
            data = self._unfinished + data
            self._unfinished = b""
        elif data and not self._dropping:
            text = _unescaped(data)
            if data.count(IAC) == 2 * (len(data) - len(text)):  # pairs alone, so no command
                text = self._text(text)
                return [TelnetData(text)] if text else []
        events = _Events()
        at, end = 0, len(data)
        while at < end:
            if self._dropping:
                at = self._drop(data, at)
                continue
            stop = _single(data, at)
            if stop > at:
                events.data(self._text(_unescaped(data[at:stop])))
                at = stop
                continue
            at = self._command(data, stop, events)
            if at == stop:
                self._unfinished = data[at:]
                break
        return events.all()

    def _text(self, text: bytes) -> bytes:
        """`text` without the NULs that RFC 854 puts behind carriage returns, unless the peer sends binary."""
        if self.is_on(Option.BINARY, ours=False):
            return text
        after_return, self._after_return = self._after_return, text.endswith(b"\r")
        if after_return:
            text = text.removeprefix(b"\0")
        return text.replace(b"\r\0", b"\r")

    def _command(self, data: bytes, at: int, events: _Events) -> int:
        """Process the command at `at`. Returns its end, or `at` if it is not complete."""
        if at + 1 == len(data):
            return at
        code = data[at + 1]
        if code == TelnetCode.SB:
            return self._subnegotiation(data, at, events)
        if code in _RECEIVED:
            if at + 2 == len(data):
                return at
            self._negotiate(data[at + 2], *_RECEIVED[code], events)
            return at + 3
        if code in _PLAIN_COMMANDS:
            events.add(Command(TelnetCode(code)))
        return at + 2

    def _subnegotiation(self, data: bytes, at: int, events: _Events) -> int:
        start = at + 2
        stop = _single(data, start)
        if stop - start > MAX_SUBNEGOTIATION_BYTES:
            self._dropping = True
            return start
        if stop + 1 >= len(data):
            return at
        if data[stop + 1] != TelnetCode.SE:
            # Another command begins before the end: that one counts.
            return stop
        if payload := data[start:stop].replace(PAIR, IAC):
            events.add(Subnegotiation(payload[0], payload[1:]))
        return stop + 2

    def _drop(self, data: bytes, at: int) -> int:
        """Pass over the rest of a subnegotiation that is too long."""
        stop = _single(data, at)
        if stop + 1 >= len(data):
            self._unfinished = data[stop:]
            return len(data)
        self._dropping = False
        return stop + 2 if data[stop + 1] == TelnetCode.SE else stop

    def _negotiate(self, option: int, ours: bool, on: bool, events: _Events) -> None:
        state = self._state(option, ours)
        if on is (state is _State.ON) and state is not _State.REQUESTED:
            # Already so.
            return
        changes = self._changes[option, ours] = self._changes.get((option, ours), 0) + 1
        if changes > MAX_CHANGES:
            return
        if state is _State.OFF and option not in self._allowed[ours]:
            # Refused once: a peer that asks again has the answer.
            self._changes[option, ours] = MAX_CHANGES
            self._send(option, ours, False)
            return
        self._states[option, ours] = _State.ON if on else _State.OFF
        if state is not _State.REQUESTED:
            self._send(option, ours, on)
        events.add(Negotiated(option, ours, on))

    def _send(self, option: int, ours: bool, on: bool) -> None:
        self._outgoing.append(bytes((IAC[0], _SENT[ours, on], option)))

    def _state(self, option: int, ours: bool) -> _State:
        return self._states.get((option, ours), _State.OFF)


class _Events:
    """A list of events that joins neighbouring data."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._data: list[bytes] = []

    def data(self, data: bytes) -> None:
        if data:
            self._data.append(data)

    def add(self, event: Event) -> None:
        self.all().append(event)

    def all(self) -> list[Event]:
        if self._data:
            self._events.append(TelnetData(b"".join(self._data)))
            self._data.clear()
        return self._events


def _escaped(data: bytes) -> bytes:
    """`data` with each 0xFF doubled."""
    if _RUN not in data:
        return data.replace(IAC, PAIR)
    return (2 * _RUN).join([piece.replace(IAC, PAIR) for piece in data.split(_RUN)])


def _unescaped(data: bytes) -> bytes:
    """`data` with each pair of 0xFF made one."""
    if _RUN not in data:
        return data.replace(PAIR, IAC)
    return _RUN[:32].join([piece.replace(PAIR, IAC) for piece in data.split(_RUN)])


def _single(data: bytes, start: int) -> int:
    """The position of the first IAC, from `start` on, that is not half of a pair; `len(data)` if there is none."""
    match = _PLAIN.match(data, start)
    assert match is not None  # it matches nothing as well
    return match.end()
