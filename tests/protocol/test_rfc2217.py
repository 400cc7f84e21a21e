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
    Setting,
    Signature,
    Suspend,
    decode,
    encode,
)

WIRE: list[tuple[Message, bytes]] = [
    (Signature(), b"\x00"),
    (Signature(b"fastflight"), b"\x00fastflight"),
    (Setting("baud", None), b"\x01\x00\x00\x00\x00"),
    (Setting("baud", 115200), b"\x01\x00\x01\xc2\x00"),
    (Setting("baud", MAX_BAUD), b"\x01\xff\xff\xff\xff"),
    (Setting("data_bits", None), b"\x02\x00"),
    *[(Setting("data_bits", bits), bytes([2, bits])) for bits in DATA_BITS],
    (Setting("parity", None), b"\x03\x00"),
    *[(Setting("parity", parity), bytes([3, number])) for number, parity in enumerate(get_args(Parity), 1)],
    (Setting("stop_bits", None), b"\x04\x00"),
    (Setting("stop_bits", 1.0), b"\x04\x01"),
    (Setting("stop_bits", 2.0), b"\x04\x02"),
    (Setting("stop_bits", 1.5), b"\x04\x03"),
    (Setting("flow", None), b"\x05\x00"),
    (Setting("flow", Flow.NONE), b"\x05\x01"),
    (Setting("flow", Flow.XON_XOFF), b"\x05\x02"),
    (Setting("flow", Flow.HARDWARE), b"\x05\x03"),
    (Setting("sending_break", None), b"\x05\x04"),
    (Setting("sending_break", True), b"\x05\x05"),
    (Setting("sending_break", False), b"\x05\x06"),
    (Setting("dtr", None), b"\x05\x07"),
    (Setting("dtr", True), b"\x05\x08"),
    (Setting("dtr", False), b"\x05\x09"),
    (Setting("rts", None), b"\x05\x0a"),
    (Setting("rts", True), b"\x05\x0b"),
    (Setting("rts", False), b"\x05\x0c"),
    (Setting("inbound_flow", None), b"\x05\x0d"),
    (Setting("inbound_flow", InboundFlow.NONE), b"\x05\x0e"),
    (Setting("inbound_flow", InboundFlow.XON_XOFF), b"\x05\x0f"),
    (Setting("inbound_flow", InboundFlow.HARDWARE), b"\x05\x10"),
    (Setting("flow", Flow.DCD), b"\x05\x11"),
    (Setting("inbound_flow", InboundFlow.DTR), b"\x05\x12"),
    (Setting("flow", Flow.DSR), b"\x05\x13"),
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
    [
        (b"\x02\x09", Setting("data_bits", None)),
        (b"\x03\x06", Setting("parity", None)),
        (b"\x04\x04", Setting("stop_bits", None)),
    ],
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
        Setting("baud", -1),
        Setting("baud", 0),
        Setting("baud", MAX_BAUD + 1),
        Setting("data_bits", 9),
        Setting("data_bits", 0),
        Setting("stop_bits", 3.0),
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
