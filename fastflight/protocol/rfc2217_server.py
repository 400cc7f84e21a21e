"""The server's side of RFC 2217, without I/O, between a client on the network and a serial line.

First send what `take` returns: the client waits for the server to offer some options. Then pass what the client sends
to `feed`, and handle each event, in order:

================================  =================================================================================
event                             what the caller does
================================  =================================================================================
`TelnetData`                      write it to the line
`Setting`                         apply the value, unless it is None; then `answer` with the value in force
`Purge`                           empty the buffers, then `answer` with the event itself
`NotifyModem(None)`               call `notify_modem(force=True)` with the current state of the modem lines
`NotifyLine(None)`                call `notify_line(force=True)` with the current state of the line
`Suspend`, `Resume`               stop and start sending data to the client (`suspended` tells which)
`Command`                         optional; `TelnetCode.BREAK` asks for a break on the line
`Negotiated`                      nothing
`Signature`                       nothing: the client's name
================================  =================================================================================

Answer in the order of the events: clients match answers by kind and order. This module itself answers masks and
questions for the signature. Pass data for the client through `encode` before you send it. After each `feed`, `answer`,
`notify_...`, `suspend` and `resume`, send what `take` returns. The size of these answers depends on what the client
sends, so stop feeding while the client does not read.
"""

from __future__ import annotations

from fastflight.protocol.rfc2217 import (
    CLIENT,
    SERVER,
    LineMask,
    LineState,
    Message,
    ModemMask,
    ModemState,
    Notice,
    NotifyLine,
    NotifyModem,
    Purge,
    Resume,
    Setting,
    Signature,
    Suspend,
    decode,
    encode,
)
from fastflight.protocol.telnet import Command, Negotiated, Option, Subnegotiation, Telnet, TelnetData

Event = TelnetData | Command | Negotiated | Setting | Purge | Notice | Suspend | Resume | Signature

# A board's REPL echoes input, so the client's terminal must not echo it too: the server offers ECHO.
OURS = frozenset({Option.BINARY, Option.ECHO, Option.SUPPRESS_GO_AHEAD, Option.COM_PORT})
THEIRS = frozenset({Option.BINARY, Option.SUPPRESS_GO_AHEAD, Option.COM_PORT})

_AGREEMENTS = (Negotiated(Option.COM_PORT, ours=True, on=True), Negotiated(Option.COM_PORT, ours=False, on=True))


class Rfc2217Server:
    """One client's connection."""

    def __init__(self) -> None:
        self._telnet = Telnet(OURS, THEIRS)
        self._line_mask = LineState(0)
        self._modem_mask = ModemState(0xFF)
        self._modem = ModemState(0)
        self._greeted = False
        self._suspended = False
        # pyserial's client relies on the server to ask for binary.
        for option in (Option.BINARY, Option.SUPPRESS_GO_AHEAD, Option.ECHO):
            self._telnet.ask(option, ours=True)
        for option in (Option.BINARY, Option.SUPPRESS_GO_AHEAD, Option.COM_PORT):
            self._telnet.ask(option, ours=False)

    @property
    def agreed(self) -> bool:
        """Whether the client has agreed to RFC 2217. Before that it gets no notices, except by `force`."""
        return self._telnet.is_on(Option.COM_PORT, ours=False) or self._telnet.is_on(Option.COM_PORT, ours=True)

    @property
    def suspended(self) -> bool:
        """Whether the client has asked the server to send no data."""
        return self._suspended

    def feed(self, data: bytes) -> list[Event]:
        """Return the events in `data` from the client."""
        events: list[Event] = []
        for event in self._telnet.feed(data):
            if not isinstance(event, Subnegotiation):
                events.append(event)
                if event in _AGREEMENTS and not self._greeted:
                    # Some clients never ask for the modem lines, and fail if the server does not report them.
                    self._greeted = True
                    events.append(NotifyModem(None))
            elif event.option == Option.COM_PORT and (message := decode(event.payload, CLIENT)) is not None:
                events += self._receive(message)
        return events

    def take(self) -> bytes:
        """Remove and return the bytes that must be sent to the client now."""
        return self._telnet.take()

    def encode(self, data: bytes) -> bytes:
        """Return `data` from the line in the form to send to the client."""
        return self._telnet.encode(data)

    def answer(self, in_force: Setting | Purge) -> None:
        """Answer the oldest unanswered request of this kind with the value in force."""
        self._send(in_force)

    def notify_modem(self, *, cts: bool, dsr: bool, ri: bool, cd: bool, force: bool = False) -> None:
        """Notify the client of modem lines that have changed, if its mask asks for them.

        With `force`, notify it of the current state even if nothing has changed. Its mask applies all the same.
        """
        lines = ModemState(0)
        for flag, on in ((ModemState.CTS, cts), (ModemState.DSR, dsr), (ModemState.RI, ri), (ModemState.CD, cd)):
            lines |= flag if on else ModemState(0)
        if not self.agreed and not force:
            return
        changed = lines ^ self._modem
        # The change flags are four bits below their lines. The flag of RI reports only the end of a ring.
        deltas = ModemState(changed >> 4)
        if lines & ModemState.RI:
            deltas &= ~ModemState.RI_ENDED
        if force or (changed | deltas) & self._modem_mask:
            self._send(NotifyModem((lines | deltas) & self._modem_mask))
        self._modem = lines

    def notify_line(self, state: LineState, *, force: bool = False) -> None:
        """Notify the client of the line states that its mask asks for; with `force`, of all states."""
        if force or (self.agreed and state & self._line_mask):
            self._send(NotifyLine(state if force else state & self._line_mask))

    def suspend(self) -> None:
        """Ask the client to send no data."""
        self._send(Suspend())

    def resume(self) -> None:
        """Ask the client to send data again."""
        self._send(Resume())

    def _receive(self, message: Message) -> list[Event]:
        match message:
            case Signature(b""):
                self._send(Signature(b"fastflight"))
            case LineMask(line_mask):
                self._line_mask = line_mask
                self._send(message)
            case ModemMask(modem_mask):
                self._modem_mask = modem_mask
                self._send(message)
                # The lines that the new mask adds may have changed long ago.
                return [NotifyModem(None)]
            case Suspend() | Resume():
                self._suspended = isinstance(message, Suspend)
                return [message]
            case _:
                return [message]
        return []

    def _send(self, message: Message) -> None:
        self._telnet.subnegotiate(Option.COM_PORT, encode(message, SERVER))
