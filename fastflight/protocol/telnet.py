"""Telnet without I/O: turns bytes from the peer into events, and data into bytes for the peer.

Pass everything that the peer sends to `feed`, which returns the events in order. The split of the bytes changes only
where one `TelnetData` ends and the next begins. Pass data for the peer through `encode` before you send it. After each
`feed`, `ask` or `subnegotiate`, send what `take` returns.

Option negotiation uses the states of RFC 1143, without the two states for withdrawing a request: an option is off,
requested, or on, separately for our side and for theirs. No peer can keep a negotiation going without end: a request
that changes nothing gets no answer, a refusal is sent once, and after `MAX_CHANGES` changes an option keeps its state
and further requests are ignored. Nothing that a peer sends is an error: unknown commands are skipped, and a
subnegotiation that is too long is dropped.

A byte 0xFF in the data crosses the wire as a pair of IACs; a single IAC begins a command.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from enum import Enum, IntEnum

IAC = b"\xff"
PAIR = b"\xff\xff"
# Counted as on the wire. The longest known subnegotiation is a SIGNATURE, a line of text.
MAX_SUBNEGOTIATION_BYTES = 1024
# How often one option may change on one side; an honest session needs two changes.
MAX_CHANGES = 32
# Everything up to the first IAC that is not half of a pair.
_PLAIN = re.compile(rb"[^\xff]*+(?:(?:\xff\xff)++[^\xff]*+)*+")


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
    """The telnet options that matter for a serial line."""

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
    """A subnegotiation of the peer: `payload` is its message about `option`, without the framing."""

    option: int
    payload: bytes


Event = TelnetData | Command | Negotiated | Subnegotiation


class _State(Enum):
    OFF = 0
    REQUESTED = 1
    ON = 2


# Received commands: whether they concern our side, and whether they switch the option on.
_RECEIVED: dict[int, tuple[bool, bool]] = {
    TelnetCode.WILL: (False, True),
    TelnetCode.WONT: (False, False),
    TelnetCode.DO: (True, True),
    TelnetCode.DONT: (True, False),
}
# Commands to send, by whether they concern our side, and whether they switch the option on.
_SENT = {
    (True, True): TelnetCode.WILL,
    (True, False): TelnetCode.WONT,
    (False, True): TelnetCode.DO,
    (False, False): TelnetCode.DONT,
}
_PLAIN_COMMANDS = frozenset(range(TelnetCode.NOP, TelnetCode.SB))


class Telnet:
    """One side of a connection. `ours` and `theirs` are the options that may be on at our side and at theirs."""

    def __init__(self, ours: frozenset[int], theirs: frozenset[int]) -> None:
        self._allowed = {True: ours, False: theirs}
        self._states: dict[tuple[int, bool], _State] = {}
        self._changes: dict[tuple[int, bool], int] = {}
        # Each item is a whole command, because one thread may call `take` while another calls `feed`.
        self._outgoing: deque[bytes] = deque()
        # The beginning of a command that is not complete yet.
        self._unfinished = b""
        # Whether the input is inside a subnegotiation that is too long.
        self._dropping = False
        self._after_return = False

    def ask(self, option: int, *, ours: bool) -> None:
        """Request `option` on our side or on theirs, unless it is already on or requested."""
        if self._state(option, ours) is _State.OFF:
            self._states[option, ours] = _State.REQUESTED
            self._send(option, ours, True)

    def is_on(self, option: int, *, ours: bool) -> bool:
        return self._state(option, ours) is _State.ON

    def is_settled(self, option: int, *, ours: bool) -> bool:
        """Return whether the peer has answered our last request for `option` on that side, if we made one."""
        return self._state(option, ours) is not _State.REQUESTED

    def subnegotiate(self, option: int, payload: bytes) -> None:
        """Send `payload` about `option`."""
        body = bytes([option]) + payload
        self._outgoing.append(bytes((IAC[0], TelnetCode.SB)) + body.replace(IAC, PAIR) + bytes((IAC[0], TelnetCode.SE)))

    def take(self) -> bytes:
        """Remove and return the bytes that must be sent to the peer now."""
        return b"".join([self._outgoing.popleft() for _ in range(len(self._outgoing))])

    @property
    def unsent(self) -> bool:
        """Whether there is something to `take`."""
        return bool(self._outgoing)

    def encode(self, data: bytes) -> bytes:
        """Return `data` in the form to send to the peer.

        Data is encoded as binary from our request on: a peer that agrees decodes all that follows our WILL as binary.
        """
        if self._state(Option.BINARY, True) is _State.OFF:
            # RFC 854: NUL follows a carriage return that is not part of a line end.
            data = data.replace(b"\r", b"\r\0")
        return data.replace(IAC, PAIR)

    def feed(self, data: bytes) -> list[Event]:
        """Return the events in `data` from the peer. Afterwards send what `take` returns."""
        data, self._unfinished = self._unfinished + data, b""
        events: list[Event] = []
        at = 0
        while at < len(data):
            if self._dropping:
                at = self._drop(data, at)
                continue
            stop = _find_single_iac(data, at)
            if text := self._remove_padding(data[at:stop].replace(PAIR, IAC)):
                events.append(TelnetData(text))
            if stop == len(data):
                break
            at = self._command(data, stop, events)
            if at == stop:
                self._unfinished = data[at:]
                break
        return events

    def _remove_padding(self, text: bytes) -> bytes:
        """Return `text` without the NULs that RFC 854 puts after carriage returns, unless the peer sends binary."""
        if not text or self.is_on(Option.BINARY, ours=False):
            return text
        after_return, self._after_return = self._after_return, text.endswith(b"\r")
        if after_return:
            text = text.removeprefix(b"\0")
        return text.replace(b"\r\0", b"\r")

    def _command(self, data: bytes, at: int, events: list[Event]) -> int:
        """Process the command at `at`. Return its end, or `at` if it is not complete."""
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
            events.append(Command(TelnetCode(code)))
        return at + 2

    def _subnegotiation(self, data: bytes, at: int, events: list[Event]) -> int:
        start = at + 2
        stop = _find_single_iac(data, start)
        if stop - start > MAX_SUBNEGOTIATION_BYTES:
            self._dropping = True
            return start
        if stop + 1 >= len(data):
            return at
        if data[stop + 1] != TelnetCode.SE:
            # Another command begins before the end: drop this one and process that.
            return stop
        if payload := data[start:stop].replace(PAIR, IAC):
            events.append(Subnegotiation(payload[0], payload[1:]))
        return stop + 2

    def _drop(self, data: bytes, at: int) -> int:
        """Skip the rest of a subnegotiation that is too long. Return the position after it."""
        stop = _find_single_iac(data, at)
        if stop + 1 >= len(data):
            self._unfinished = data[stop:]
            return len(data)
        self._dropping = False
        return stop + 2 if data[stop + 1] == TelnetCode.SE else stop

    def _negotiate(self, option: int, ours: bool, on: bool, events: list[Event]) -> None:
        state = self._state(option, ours)
        if on is (state is _State.ON) and state is not _State.REQUESTED:
            return  # the option already has this state
        changes = self._changes[option, ours] = self._changes.get((option, ours), 0) + 1
        if changes > MAX_CHANGES:
            return
        if state is _State.OFF and option not in self._allowed[ours]:
            # Refuse only once: a peer that asks again already has the answer.
            self._changes[option, ours] = MAX_CHANGES
            self._send(option, ours, False)
            return
        self._states[option, ours] = _State.ON if on else _State.OFF
        if state is not _State.REQUESTED:
            self._send(option, ours, on)
        events.append(Negotiated(option, ours, on))

    def _send(self, option: int, ours: bool, on: bool) -> None:
        self._outgoing.append(bytes((IAC[0], _SENT[ours, on], option)))

    def _state(self, option: int, ours: bool) -> _State:
        return self._states.get((option, ours), _State.OFF)


def _find_single_iac(data: bytes, start: int) -> int:
    """Return the position of the first IAC, from `start` on, that is not half of a pair; else `len(data)`."""
    match = _PLAIN.match(data, start)
    assert match is not None  # the pattern also matches no bytes
    return match.end()
