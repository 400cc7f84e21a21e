"""The messages of RFC 2217, the telnet option that controls a serial line over the network.

Client and server send the same messages with two sets of codes. The client sends a request; the server answers with
the value in force, which may differ from the requested one. A request with the value `None` is a question: it asks for
the value in force and changes nothing. `encode` returns the payload of a COM-PORT subnegotiation, `decode` reads one.

`decode` returns a question for a request whose value does not exist (nine data bits, a parity numbered 7): by the RFC,
the answer to a request that cannot be applied is the value in force.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Literal

# Added to the code of each message that the server sends.
SERVER = 100
CLIENT = 0

Parity = Literal["N", "O", "E", "M", "S"]

# A baud rate has 32 bits on the wire; 0 is a question.
MAX_BAUD = (1 << 32) - 1
DATA_BITS = (5, 6, 7, 8)
# In the order of their numbers, which begin at 1.
PARITIES: tuple[Parity, ...] = ("N", "O", "E", "M", "S")


class MessageCode(IntEnum):
    """The first byte of a message from the client. The server adds `SERVER` to it."""

    SIGNATURE = 0
    SET_BAUDRATE = 1
    SET_DATASIZE = 2
    SET_PARITY = 3
    SET_STOPSIZE = 4
    SET_CONTROL = 5
    NOTIFY_LINESTATE = 6
    NOTIFY_MODEMSTATE = 7
    FLOWCONTROL_SUSPEND = 8
    FLOWCONTROL_RESUME = 9
    SET_LINESTATE_MASK = 10
    SET_MODEMSTATE_MASK = 11
    PURGE_DATA = 12


class Flow(IntEnum):
    """Flow control of the data that the port sends, or of both directions, as SET-CONTROL values."""

    NONE = 1
    XON_XOFF = 2
    HARDWARE = 3
    DCD = 17
    DSR = 19


class InboundFlow(IntEnum):
    """Flow control of the data that the port receives, as SET-CONTROL values. `Flow` has those for outbound data."""

    NONE = 14
    XON_XOFF = 15
    HARDWARE = 16
    DTR = 18


class LineState(IntFlag):
    """The bits of NOTIFY-LINESTATE."""

    DATA_READY = 1
    OVERRUN = 2
    PARITY_ERROR = 4
    FRAMING_ERROR = 8
    BREAK = 16
    HOLDING_EMPTY = 32
    SHIFT_EMPTY = 64
    TIMEOUT = 128


class ModemState(IntFlag):
    """The bits of NOTIFY-MODEMSTATE: four lines, and which of them have changed since the last notice."""

    CTS_CHANGED = 1
    DSR_CHANGED = 2
    RI_ENDED = 4
    CD_CHANGED = 8
    CTS = 16
    DSR = 32
    RI = 64
    CD = 128


@dataclass(frozen=True, slots=True)
class Signature:
    """Tells the name of the sender. With an empty text, asks the receiver for its name."""

    text: bytes = b""


@dataclass(frozen=True, slots=True)
class SetBaud:
    """Sets the speed of the line, in bits per second."""

    baud: int | None


@dataclass(frozen=True, slots=True)
class SetDataBits:
    """Sets the number of bits per character, 5 to 8."""

    bits: int | None


@dataclass(frozen=True, slots=True)
class SetParity:
    parity: Parity | None


@dataclass(frozen=True, slots=True)
class SetStopBits:
    """Sets the number of stop bits: 1, 1.5 or 2."""

    bits: float | None


@dataclass(frozen=True, slots=True)
class SetFlow:
    flow: Flow | None


@dataclass(frozen=True, slots=True)
class SetInboundFlow:
    flow: InboundFlow | None


@dataclass(frozen=True, slots=True)
class SetBreak:
    on: bool | None


@dataclass(frozen=True, slots=True)
class SetDtr:
    on: bool | None


@dataclass(frozen=True, slots=True)
class SetRts:
    on: bool | None


@dataclass(frozen=True, slots=True)
class NotifyLine:
    """Reports the state of the serial line. A client sends None to ask for it (not in the RFC, but common)."""

    state: LineState | None


@dataclass(frozen=True, slots=True)
class NotifyModem:
    """Reports the state of the modem lines. A client sends None to ask for it (not in the RFC, but common)."""

    state: ModemState | None


@dataclass(frozen=True, slots=True)
class Suspend:
    """Asks the receiver to send no more data until `Resume`."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Asks the receiver to send data again."""


@dataclass(frozen=True, slots=True)
class LineMask:
    """Sets the line states for which the client wants a `NotifyLine`. The default is none."""

    mask: LineState


@dataclass(frozen=True, slots=True)
class ModemMask:
    """Sets the modem states for which the client wants a `NotifyModem`. The default is all."""

    mask: ModemState


@dataclass(frozen=True, slots=True)
class Purge:
    """Asks the server to drop data: what it received from the serial line, what it has not sent to it yet, or both."""

    received: bool
    unsent: bool


Setting = SetBaud | SetDataBits | SetParity | SetStopBits
Control = SetFlow | SetInboundFlow | SetBreak | SetDtr | SetRts
Notice = NotifyLine | NotifyModem
Mask = LineMask | ModemMask
Message = Signature | Setting | Control | Notice | Suspend | Resume | Mask | Purge

# What each byte means, by the code of the message. Two messages have longer values, `SIGNATURE` and `SET_BAUDRATE`.
_BYTES: dict[MessageCode, dict[int, Message]] = {
    MessageCode.SET_DATASIZE: {0: SetDataBits(None), **{bits: SetDataBits(bits) for bits in DATA_BITS}},
    MessageCode.SET_PARITY: {0: SetParity(None), **{1 + at: SetParity(each) for at, each in enumerate(PARITIES)}},
    MessageCode.SET_STOPSIZE: {0: SetStopBits(None), 1: SetStopBits(1.0), 2: SetStopBits(2.0), 3: SetStopBits(1.5)},
    MessageCode.SET_CONTROL: {
        0: SetFlow(None),
        4: SetBreak(None),
        5: SetBreak(True),
        6: SetBreak(False),
        7: SetDtr(None),
        8: SetDtr(True),
        9: SetDtr(False),
        10: SetRts(None),
        11: SetRts(True),
        12: SetRts(False),
        13: SetInboundFlow(None),
        **{flow: SetFlow(flow) for flow in Flow},
        **{flow: SetInboundFlow(flow) for flow in InboundFlow},
    },
    MessageCode.NOTIFY_LINESTATE: {value: NotifyLine(LineState(value)) for value in range(256)},
    MessageCode.NOTIFY_MODEMSTATE: {value: NotifyModem(ModemState(value)) for value in range(256)},
    MessageCode.SET_LINESTATE_MASK: {value: LineMask(LineState(value)) for value in range(256)},
    MessageCode.SET_MODEMSTATE_MASK: {value: ModemMask(ModemState(value)) for value in range(256)},
    MessageCode.PURGE_DATA: {1: Purge(True, False), 2: Purge(False, True), 3: Purge(True, True)},
}
# The meaning without a value.
_BARE: dict[MessageCode, Message] = {
    MessageCode.NOTIFY_LINESTATE: NotifyLine(None),
    MessageCode.NOTIFY_MODEMSTATE: NotifyModem(None),
    MessageCode.FLOWCONTROL_SUSPEND: Suspend(),
    MessageCode.FLOWCONTROL_RESUME: Resume(),
}
# The meaning of all other values.
_OTHERWISE: dict[MessageCode, Message] = {
    MessageCode.SET_DATASIZE: SetDataBits(None),
    MessageCode.SET_PARITY: SetParity(None),
    MessageCode.SET_STOPSIZE: SetStopBits(None),
    MessageCode.FLOWCONTROL_SUSPEND: Suspend(),
    MessageCode.FLOWCONTROL_RESUME: Resume(),
}
_PAYLOADS: dict[Message, bytes] = {
    **{message: bytes([code]) for code, message in _BARE.items()},
    **{message: bytes([code, value]) for code, values in _BYTES.items() for value, message in values.items()},
}


def encode(message: Message, sender: int) -> bytes:
    """Return the payload of `message`, where `sender` is `SERVER` or `CLIENT`.

    Raises `ValueError` for a value that RFC 2217 cannot express.
    """
    match message:
        case Signature(text):
            payload = bytes([MessageCode.SIGNATURE]) + text
        case SetBaud(baud) if baud is None or 0 < baud <= MAX_BAUD:
            payload = bytes([MessageCode.SET_BAUDRATE]) + (baud or 0).to_bytes(4)
        case _ if message in _PAYLOADS:
            payload = _PAYLOADS[message]
        case _:
            raise ValueError(f"RFC 2217 cannot say {message}")
    return bytes([sender + payload[0]]) + payload[1:]


def decode(payload: bytes, sender: int) -> Message | None:
    """Return the message in a payload from `sender` (`SERVER` or `CLIENT`); None if the payload has no meaning."""
    try:
        code = MessageCode(payload[0] - sender)
    except (IndexError, ValueError):
        return None
    value = payload[1:]
    if code is MessageCode.SIGNATURE:
        return Signature(value)
    if code is MessageCode.SET_BAUDRATE:
        return SetBaud(int.from_bytes(value[:4]) or None) if len(value) >= 4 else None
    if not value:
        return _BARE.get(code)
    return _BYTES.get(code, {}).get(value[0]) or _OTHERWISE.get(code)
