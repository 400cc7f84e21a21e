"""The messages of RFC 2217, the telnet option that controls a serial line over the network.

Client and server send the same messages with two sets of codes. The client sends a request; the server answers with
the value in force, which may differ from the requested one. A request with the value `None` is a question: it asks for
the value in force and changes nothing. `encode` returns the payload of a COM-PORT subnegotiation, `decode` reads one.

`decode` returns a question for a request whose value does not exist (nine data bits, a parity numbered 7): by the RFC,
the answer to a request that cannot be applied is the value in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any, Literal

# Added to the code of each message that the server sends.
SERVER = 100
CLIENT = 0

Parity = Literal["N", "O", "E", "M", "S"]
LineName = Literal["baud", "data_bits", "parity", "stop_bits"]
Name = LineName | Literal["flow", "inbound_flow", "sending_break", "dtr", "rts"]
LINE_NAMES: tuple[LineName, ...] = ("baud", "data_bits", "parity", "stop_bits")

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
class Setting:
    """Sets a property of the serial line.

    The value of `baud` is in bits per second, that of `stop_bits` 1, 1.5 or 2; `sending_break`, `dtr` and `rts` are on
    or off.
    """

    name: Name
    value: int | float | Parity | Flow | InboundFlow | None

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


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


Notice = NotifyLine | NotifyModem
Mask = LineMask | ModemMask
Message = Signature | Setting | Notice | Suspend | Resume | Mask | Purge


def _settings(name: Name, values: Mapping[int, Any]) -> dict[int, Message]:
    return {byte: Setting(name, value) for byte, value in values.items()}


# What each byte means, by the code of the message. Two messages have longer values, `SIGNATURE` and `SET_BAUDRATE`.
_BYTES: dict[MessageCode, dict[int, Message]] = {
    MessageCode.SET_DATASIZE: _settings("data_bits", {0: None, **{bits: bits for bits in DATA_BITS}}),
    MessageCode.SET_PARITY: _settings("parity", dict(enumerate((None, *PARITIES)))),
    MessageCode.SET_STOPSIZE: _settings("stop_bits", {0: None, 1: 1.0, 2: 2.0, 3: 1.5}),
    MessageCode.SET_CONTROL: {
        **_settings("flow", {0: None, **{flow: flow for flow in Flow}}),
        **_settings("sending_break", {4: None, 5: True, 6: False}),
        **_settings("dtr", {7: None, 8: True, 9: False}),
        **_settings("rts", {10: None, 11: True, 12: False}),
        **_settings("inbound_flow", {13: None, **{flow: flow for flow in InboundFlow}}),
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
    MessageCode.SET_DATASIZE: Setting("data_bits", None),
    MessageCode.SET_PARITY: Setting("parity", None),
    MessageCode.SET_STOPSIZE: Setting("stop_bits", None),
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
        case Setting("baud", baud) if baud is None or (isinstance(baud, int) and 0 < baud <= MAX_BAUD):
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
        return Setting("baud", int.from_bytes(value[:4]) or None) if len(value) >= 4 else None
    if not value:
        return _BARE.get(code)
    return _BYTES.get(code, {}).get(value[0]) or _OTHERWISE.get(code)
