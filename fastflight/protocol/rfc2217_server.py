"""The server's side of RFC 2217, without I/O: what stands between a client on the network and a serial line.

Send what `take` gives at once, for the client waits for the first word on some options. Then `feed` what the client
sends, and for each event, in order:

================================  =================================================================================
event                             what the caller does
================================  =================================================================================
`TelnetData`                      write it to the line
`SetBaud` and the other settings  apply the value, unless it is None; then `answer` with the value in force
`SetFlow` and the other controls  the same
`Purge`                           throw the buffers away, then `answer` with the event itself
`NotifyModem(None)`               `notify_modem(force=True)` with the lines as they are now
`NotifyLine(None)`                `notify_line(force=True)` with the state as it is now
`Suspend`, `Resume`               stop and start sending data to the client (`suspended` says which)
`Command`                         as it likes; `TelnetCode.BREAK` asks for a break on the line
`Negotiated`                      nothing
`Signature`                       nothing: who the client says it is
================================  =================================================================================

Answers must be given in the order of the events: clients match them by kind and order. Masks and questions for the
signature are answered here. What goes to the client as data goes through `encode`, and after every call that may have
something to say (`feed`, `answer`, `notify_...`, `suspend`, `resume`) send what `take` gives. A client that does not
read its answers makes `take` grow only by what it sends: stop feeding while it does not take what was sent.
"""

from __future__ import annotations

from fastflight.protocol.rfc2217 import (
    CLIENT,
    SERVER,
    Control,
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

Event = TelnetData | Command | Negotiated | Setting | Control | Purge | Notice | Suspend | Resume | Signature

# A board's REPL echoes what is typed, and a client's terminal must not: so the server does, in telnet's words.
OURS = frozenset({Option.BINARY, Option.ECHO, Option.SUPPRESS_GO_AHEAD, Option.COM_PORT})
THEIRS = frozenset({Option.BINARY, Option.SUPPRESS_GO_AHEAD, Option.COM_PORT})

_AGREEMENTS = (Negotiated(Option.COM_PORT, ours=True, on=True), Negotiated(Option.COM_PORT, ours=False, on=True))


class Rfc2217Server:
    """One client's connection."""

    def __init__(self, signature: bytes = b"fastflight") -> None:
        self._signature = signature
        self._telnet = Telnet(OURS, THEIRS)
        self._line_mask = LineState(0)
        self._modem_mask = ModemState(0xFF)
        self._modem = ModemState(0)
        self._greeted = False
        self._suspended = False
        # pyserial's client counts on the server to ask for binary.
        for option in (Option.BINARY, Option.SUPPRESS_GO_AHEAD, Option.ECHO):
            self._telnet.ask(option, ours=True)
        for option in (Option.BINARY, Option.SUPPRESS_GO_AHEAD, Option.COM_PORT):
            self._telnet.ask(option, ours=False)

    @property
    def agreed(self) -> bool:
        """The client said that it speaks RFC 2217; before, it is told nothing unasked."""
        return self._telnet.is_on(Option.COM_PORT, ours=False) or self._telnet.is_on(Option.COM_PORT, ours=True)

    @property
    def suspended(self) -> bool:
        """The client wants no data now."""
        return self._suspended

    def feed(self, data: bytes) -> list[Event]:
        """What the client says with `data`."""
        events: list[Event] = []
        for event in self._telnet.feed(data):
            if not isinstance(event, Subnegotiation):
                events.append(event)
                if event in _AGREEMENTS and not self._greeted:
                    # Some clients never ask for the lines, and fail where they have not been told.
                    self._greeted = True
                    events.append(NotifyModem(None))
            elif event.option == Option.COM_PORT and (message := decode(event.payload, CLIENT)) is not None:
                events += self._heard(message)
        return events

    def take(self) -> bytes:
        """What must be sent to the client now."""
        return self._telnet.take()

    def encode(self, data: bytes) -> bytes:
        """`data` of the line as it is sent to the client."""
        return self._telnet.encode(data)

    def answer(self, in_force: Setting | Control | Purge) -> None:
        """Answer the oldest request of this kind that has none yet, with what is in force now."""
        self._say(in_force)

    def notify_modem(self, *, cts: bool, dsr: bool, ri: bool, cd: bool, force: bool = False) -> None:
        """Tell the client the modem lines, if they are news to it and it wants them, or if it asked (`force`)."""
        lines = ModemState(0)
        for flag, on in ((ModemState.CTS, cts), (ModemState.DSR, dsr), (ModemState.RI, ri), (ModemState.CD, cd)):
            lines |= flag if on else ModemState(0)
        if not self.agreed and not force:
            return
        changed = lines ^ self._modem
        # The flags of change stand four bits below their lines; RI's tells only its end.
        deltas = ModemState(changed >> 4)
        if lines & ModemState.RI:
            deltas &= ~ModemState.RI_ENDED
        if force or (changed | deltas) & self._modem_mask:
            self._say(NotifyModem((lines | deltas) & self._modem_mask))
        self._modem = lines

    def notify_line(self, state: LineState, *, force: bool = False) -> None:
        """Tell the client the line's state, as far as it wants it, or if it asked (`force`)."""
        if force or (self.agreed and state & self._line_mask):
            self._say(NotifyLine(state if force else state & self._line_mask))

    def suspend(self) -> None:
        """Ask the client to send no data."""
        self._say(Suspend())

    def resume(self) -> None:
        """Ask the client to send data again."""
        self._say(Resume())

    def _heard(self, message: Message) -> list[Event]:
        match message:
            case Signature(b""):
                self._say(Signature(self._signature))
            case LineMask(line_mask):
                self._line_mask = line_mask
                self._say(message)
            case ModemMask(modem_mask):
                self._modem_mask = modem_mask
                self._say(message)
                # What the new mask shows may have changed long ago.
                return [NotifyModem(None)]
            case Suspend() | Resume():
                self._suspended = isinstance(message, Suspend)
                return [message]
            case _:
                return [message]
        return []

    def _say(self, message: Message) -> None:
        self._telnet.subnegotiate(Option.COM_PORT, encode(message, SERVER))
