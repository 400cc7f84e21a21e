"""The messages of RFC 2217 on the wire."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.protocol.rfc2217 import (
    CLIENT,
    DATA_BITS,
    MAX_BAUD,
    SERVER,
    Flow,
    InboundFlow,
    LineMask,
    LineState,
    Message,
    ModemMask,
    ModemState,
    NotifyLine,
    NotifyModem,
    Parity,
    Purge,
    Resume,
    SetBaud,
    SetBreak,
    SetDataBits,
    SetDtr,
    SetFlow,
    SetInboundFlow,
    SetParity,
    SetRts,
    SetStopBits,
    Signature,
    Suspend,
    decode,
    encode,
)

WIRE: list[tuple[Message, bytes]] = [
    (Signature(), b"\x00"),
    (Signature(b"fastflight"), b"\x00fastflight"),
    (SetBaud(None), b"\x01\x00\x00\x00\x00"),
    (SetBaud(115200), b"\x01\x00\x01\xc2\x00"),
    (SetBaud(MAX_BAUD), b"\x01\xff\xff\xff\xff"),
    (SetDataBits(None), b"\x02\x00"),
    *[(SetDataBits(bits), bytes([2, bits])) for bits in DATA_BITS],
    (SetParity(None), b"\x03\x00"),
    *[(SetParity(parity), bytes([3, number])) for number, parity in enumerate(get_args(Parity), 1)],
    (SetStopBits(None), b"\x04\x00"),
    (SetStopBits(1.0), b"\x04\x01"),
    (SetStopBits(2.0), b"\x04\x02"),
    (SetStopBits(1.5), b"\x04\x03"),
    (SetFlow(None), b"\x05\x00"),
    (SetFlow(Flow.NONE), b"\x05\x01"),
    (SetFlow(Flow.XON_XOFF), b"\x05\x02"),
    (SetFlow(Flow.HARDWARE), b"\x05\x03"),
    (SetBreak(None), b"\x05\x04"),
    (SetBreak(True), b"\x05\x05"),
    (SetBreak(False), b"\x05\x06"),
    (SetDtr(None), b"\x05\x07"),
    (SetDtr(True), b"\x05\x08"),
    (SetDtr(False), b"\x05\x09"),
    (SetRts(None), b"\x05\x0a"),
    (SetRts(True), b"\x05\x0b"),
    (SetRts(False), b"\x05\x0c"),
    (SetInboundFlow(None), b"\x05\x0d"),
    (SetInboundFlow(InboundFlow.NONE), b"\x05\x0e"),
    (SetInboundFlow(InboundFlow.XON_XOFF), b"\x05\x0f"),
    (SetInboundFlow(InboundFlow.HARDWARE), b"\x05\x10"),
    (SetFlow(Flow.DCD), b"\x05\x11"),
    (SetInboundFlow(InboundFlow.DTR), b"\x05\x12"),
    (SetFlow(Flow.DSR), b"\x05\x13"),
    (NotifyLine(None), b"\x06"),
    (NotifyLine(LineState.BREAK | LineState.DATA_READY), b"\x06\x11"),
    (NotifyModem(None), b"\x07"),
    (NotifyModem(ModemState.CD | ModemState.CTS | ModemState.CTS_CHANGED), b"\x07\x91"),
    (Suspend(), b"\x08"),
    (Resume(), b"\x09"),
    (LineMask(LineState.BREAK), b"\x0a\x10"),
    (ModemMask(ModemState(0xFF)), b"\x0b\xff"),
    (Purge(True, False), b"\x0c\x01"),
    (Purge(False, True), b"\x0c\x02"),
    (Purge(True, True), b"\x0c\x03"),
]


@pytest.mark.parametrize(("message", "payload"), WIRE)
def test_each_message_of_either_side(message: Message, payload: bytes) -> None:
    assert encode(message, CLIENT) == payload
    assert decode(payload, CLIENT) == message
    from_server = bytes([payload[0] + 100]) + payload[1:]
    assert encode(message, SERVER) == from_server
    assert decode(from_server, SERVER) == message
    assert decode(from_server, CLIENT) is None
    assert decode(payload, SERVER) is None


@pytest.mark.parametrize(
    ("payload", "question"),
    [(b"\x02\x09", SetDataBits(None)), (b"\x03\x06", SetParity(None)), (b"\x04\x04", SetStopBits(None))],
)
def test_a_value_that_does_not_exist_is_a_question(payload: bytes, question: Message) -> None:
    assert decode(payload, CLIENT) == question


@pytest.mark.parametrize(
    "payload", [b"", b"\x01", b"\x01\x00\x00\x00", b"\x02", b"\x05", b"\x05\x14", b"\x0c\x00", b"\x0d"]
)
def test_what_means_nothing(payload: bytes) -> None:
    assert decode(payload, CLIENT) is None


@pytest.mark.parametrize(
    "message",
    [
        SetBaud(-1),
        SetBaud(0),
        SetBaud(MAX_BAUD + 1),
        SetDataBits(9),
        SetDataBits(0),
        SetStopBits(3.0),
        Purge(False, False),
    ],
)
def test_what_cannot_be_said(message: Message) -> None:
    with pytest.raises(ValueError):
        encode(message, CLIENT)


@given(st.binary(max_size=8), st.sampled_from([CLIENT, SERVER]))
def test_whatever_is_understood_can_be_said_again(payload: bytes, sender: int) -> None:
    message = decode(payload, sender)
    if message is not None:
        assert decode(encode(message, sender), sender) == message
