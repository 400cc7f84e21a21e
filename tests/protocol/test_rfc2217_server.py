"""The server's side of RFC 2217: what a client sends, what the caller is told, and what the client is sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.protocol.rfc2217 import (
    CLIENT,
    SERVER,
    Flow,
    LineMask,
    LineState,
    Message,
    ModemMask,
    ModemState,
    NotifyLine,
    NotifyModem,
    Purge,
    Resume,
    Setting,
    Signature,
    Suspend,
    encode,
)
from fastflight.protocol.rfc2217_server import Event, Rfc2217Server
from fastflight.protocol.telnet import Command, Negotiated, Option, TelnetCode, TelnetData

AGREEMENT = bytes([0xFF, TelnetCode.WILL, Option.COM_PORT])
STILL = {"dsr": False, "ri": False, "cd": False}


def wire(message: Message, sender: int = CLIENT) -> bytes:
    payload = encode(message, sender).replace(b"\xff", b"\xff\xff")
    return b"\xff\xfa\x2c" + payload + b"\xff\xf0"


@pytest.fixture
def server() -> Rfc2217Server:
    """One that has agreed, and has nothing left to say."""
    server = Rfc2217Server()
    server.feed(AGREEMENT)
    server.take()
    return server


def test_it_speaks_first() -> None:
    """pyserial's client waits to be asked for binary."""
    said = Rfc2217Server().take()
    for code, option in [
        (TelnetCode.WILL, Option.BINARY),
        (TelnetCode.WILL, Option.SUPPRESS_GO_AHEAD),
        (TelnetCode.WILL, Option.ECHO),
        (TelnetCode.DO, Option.BINARY),
        (TelnetCode.DO, Option.SUPPRESS_GO_AHEAD),
        (TelnetCode.DO, Option.COM_PORT),
    ]:
        assert bytes([0xFF, code, option]) in said
    assert len(said) == 18


def test_a_client_that_agrees_is_to_be_told_the_lines() -> None:
    server = Rfc2217Server()
    assert not server.agreed
    assert server.feed(AGREEMENT) == [Negotiated(Option.COM_PORT, ours=False, on=True), NotifyModem(None)]
    assert server.agreed
    # Agreeing for our side too is no second greeting, though some clients ask for it.
    events = server.feed(bytes([0xFF, TelnetCode.DO, Option.COM_PORT]))
    assert events == [Negotiated(Option.COM_PORT, ours=True, on=True)]


def test_settings_are_the_callers_to_apply(server: Rfc2217Server) -> None:
    assert server.feed(b"a" + wire(Setting("baud", 9600)) + b"b") == [
        TelnetData(b"a"),
        Setting("baud", 9600),
        TelnetData(b"b"),
    ]
    assert server.take() == b""
    server.answer(Setting("baud", 4800))
    assert server.take() == wire(Setting("baud", 4800), SERVER)


@pytest.mark.parametrize(
    "request_", [Setting("baud", None), Setting("flow", Flow.HARDWARE), Setting("dtr", None), Purge(True, True)]
)
def test_questions_and_orders_are_the_callers_to_answer(server: Rfc2217Server, request_: Event) -> None:
    assert isinstance(request_, Setting | Purge)
    assert server.feed(wire(request_)) == [request_]
    assert not server.take()


def test_a_baud_rate_full_of_0xff_crosses_both_ways(server: Rfc2217Server) -> None:
    assert server.feed(wire(Setting("baud", 0x00FFFFFF))) == [Setting("baud", 0x00FFFFFF)]
    server.answer(Setting("baud", 0x00FFFFFF))
    assert server.take() == b"\xff\xfa\x2c\x65\x00\xff\xff\xff\xff\xff\xff\xff\xf0"


def test_the_signature(server: Rfc2217Server) -> None:
    assert server.feed(wire(Signature())) == []
    assert server.take() == wire(Signature(b"fastflight"), SERVER)
    assert server.feed(wire(Signature(b"minicom"))) == [Signature(b"minicom")]
    assert server.take() == b""


def test_masks_are_acknowledged(server: Rfc2217Server) -> None:
    assert server.feed(wire(LineMask(LineState.BREAK))) == []
    assert server.take() == wire(LineMask(LineState.BREAK), SERVER)
    assert server.feed(wire(ModemMask(ModemState(0xF0)))) == [NotifyModem(None)]
    assert server.take() == wire(ModemMask(ModemState(0xF0)), SERVER)


def test_modem_lines_are_told_when_they_change(server: Rfc2217Server) -> None:
    server.notify_modem(cts=True, **STILL)
    assert server.take() == wire(NotifyModem(ModemState.CTS | ModemState.CTS_CHANGED), SERVER)
    server.notify_modem(cts=True, **STILL)
    assert server.take() == b""
    server.notify_modem(cts=False, **STILL)
    assert server.take() == wire(NotifyModem(ModemState.CTS_CHANGED), SERVER)
    server.notify_modem(cts=False, **STILL, force=True)
    assert server.take() == wire(NotifyModem(ModemState(0)), SERVER)


def test_a_ring_is_told_and_its_end_flagged(server: Rfc2217Server) -> None:
    server.notify_modem(cts=False, dsr=False, ri=True, cd=False)
    assert server.take() == wire(NotifyModem(ModemState.RI), SERVER)
    server.notify_modem(cts=False, dsr=False, ri=False, cd=False)
    assert server.take() == wire(NotifyModem(ModemState.RI_ENDED), SERVER)


def test_modem_lines_that_are_masked_are_not_told(server: Rfc2217Server) -> None:
    server.feed(wire(ModemMask(ModemState.CD)))
    server.take()
    server.notify_modem(cts=True, **STILL)
    assert server.take() == b""
    server.notify_modem(cts=False, dsr=False, ri=False, cd=True)
    assert server.take() == wire(NotifyModem(ModemState.CD), SERVER)


def test_a_client_that_did_not_agree_is_told_nothing_unasked() -> None:
    server = Rfc2217Server()
    server.take()
    server.notify_modem(cts=True, **STILL)
    server.notify_line(LineState.BREAK)
    assert server.take() == b""


def test_line_states_are_told_through_the_mask(server: Rfc2217Server) -> None:
    server.notify_line(LineState.BREAK)
    assert server.take() == b""
    server.feed(wire(LineMask(LineState.BREAK)))
    server.take()
    server.notify_line(LineState.BREAK | LineState.OVERRUN)
    assert server.take() == wire(NotifyLine(LineState.BREAK), SERVER)
    assert server.feed(wire(NotifyLine(None))) == [NotifyLine(None)]
    server.notify_line(LineState.OVERRUN, force=True)
    assert server.take() == wire(NotifyLine(LineState.OVERRUN), SERVER)


def test_flow_control_by_messages(server: Rfc2217Server) -> None:
    assert server.feed(wire(Suspend())) == [Suspend()]
    assert server.suspended
    assert server.feed(wire(Resume())) == [Resume()]
    assert not server.suspended
    server.suspend()
    server.resume()
    assert server.take() == wire(Suspend(), SERVER) + wire(Resume(), SERVER)


def test_a_telnet_break_is_passed_on(server: Rfc2217Server) -> None:
    assert server.feed(b"\xff\xf3") == [Command(TelnetCode.BREAK)]


def test_other_subnegotiations_are_skipped(server: Rfc2217Server) -> None:
    assert server.feed(b"\xff\xfa\x1f\x00\x50\x00\x18\xff\xf0x") == [TelnetData(b"x")]


@given(st.binary(), st.lists(st.integers(0, 200)))
def test_garbage_is_no_error_and_any_split_the_same(garbage: bytes, cuts: list[int]) -> None:
    data = garbage.join([wire(Setting("baud", 300)), AGREEMENT, wire(Suspend()), b"text", wire(Signature())])
    whole, parts = Rfc2217Server(), Rfc2217Server()
    expected = whole.feed(data)
    ends = sorted(min(cut, len(data)) for cut in cuts)
    pieces = [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]
    heard = [event for piece in pieces for event in parts.feed(piece)]
    assert text(heard) == text(expected)
    assert others(heard) == others(expected)
    assert parts.take() == whole.take()


def text(events: list[Event]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, TelnetData))


def others(events: list[Event]) -> list[Event]:
    return [event for event in events if not isinstance(event, TelnetData)]
