"""The server's side of RFC 2217: any client gets answers that a client understands, and a split changes nothing."""

from __future__ import annotations

from fastflight.protocol.rfc2217 import (
    CLIENT,
    SERVER,
    Flow,
    InboundFlow,
    LineState,
    NotifyLine,
    NotifyModem,
    Purge,
    SetBaud,
    SetBreak,
    SetDataBits,
    SetDtr,
    SetFlow,
    SetInboundFlow,
    SetParity,
    SetRts,
    SetStopBits,
    decode,
    encode,
)
from fastflight.protocol.rfc2217_server import Event, Rfc2217Server
from fastflight.protocol.telnet import Data, Option, Subnegotiation, Telnet
from tests.fuzz.material import Material, cut
from tests.fuzz.target import Target


def obey(server: Rfc2217Server, event: Event, lines: int) -> None:
    """Do as the client says, as the table in `rfc2217_server` has it."""
    match event:
        case SetBaud(baud):
            server.answer(SetBaud(baud or 9600))
        case SetDataBits(bits):
            server.answer(SetDataBits(bits or 8))
        case SetParity(parity):
            server.answer(SetParity(parity or "N"))
        case SetStopBits(size):
            server.answer(SetStopBits(size or 1.0))
        case SetFlow(flow):
            server.answer(SetFlow(flow or Flow.NONE))
        case SetInboundFlow(inbound):
            server.answer(SetInboundFlow(inbound or InboundFlow.NONE))
        case SetBreak(on):
            server.answer(SetBreak(bool(on)))
        case SetDtr(on):
            server.answer(SetDtr(bool(on)))
        case SetRts(on):
            server.answer(SetRts(bool(on)))
        case Purge():
            server.answer(event)
        case NotifyModem():
            server.notify_modem(
                cts=bool(lines & 1), dsr=bool(lines & 2), ri=bool(lines & 4), cd=bool(lines & 8), force=True
            )
        case NotifyLine():
            server.notify_line(LineState(lines), force=True)


def heard(pieces: list[bytes], lines: int) -> tuple[list[Event], bytes]:
    """All events, neighbouring data as one, and all that was sent."""
    server = Rfc2217Server()
    events: list[Event] = []
    sent = server.take()
    for piece in pieces:
        for event in server.feed(piece):
            if isinstance(event, Data) and events and isinstance(before := events[-1], Data):
                events[-1] = Data(before.data + event.data)
            else:
                events.append(event)
            obey(server, event, lines)
        server.notify_modem(cts=bool(lines & 16), dsr=False, ri=bool(lines & 32), cd=False)
        server.notify_line(LineState(lines & 0x13))
        sent += server.take()
    return events, sent


def run(data: bytes) -> None:
    material = Material(data)
    lines, pattern = material.byte(), material.byte()
    wire = material.rest()
    events, sent = heard([wire], lines)
    assert heard(cut(wire, pattern), lines)[0] == events
    for event in Telnet(frozenset(), frozenset()).feed(sent):
        if isinstance(event, Subnegotiation):
            assert event.option == Option.COM_PORT
            assert (said := decode(event.payload, SERVER)) is not None
            assert encode(said, SERVER) == event.payload
    if (message := decode(wire, CLIENT)) is not None:
        assert decode(encode(message, CLIENT), CLIENT) == message


TARGET = Target(
    run,
    seeds=(
        # What pyserial's client says when it opens a port.
        b"\x31\x00\xff\xfb\x2c\xff\xfd\x03\xff\xfb\x03\xff\xfd\x00\xff\xfb\x00\xff\xfa\x2c\x0a\x1e\xff\xf0",
        b"\x05\x02\xff\xfb\x2c\xff\xfa\x2c\x01\x00\x01\xc2\x00\xff\xf0\xff\xfa\x2c\x02\x08\xff\xf0\xff\xfa\x2c\x03\x01\xff\xf0",
        b"\x3f\x21\xff\xfa\x2c\x05\x08\xff\xf0\xff\xfa\x2c\x05\x0b\xff\xf0\xff\xfa\x2c\x0c\x03\xff\xf0text\xff\xff",
        b"\x00\x00\x00\x05\x01\x00\x00\x00\x00\x0b\xff",
        b"\x0f\x00\xff\xfa\x2c\x00\xff\xf0\xff\xfa\x2c\x08\xff\xf0\xff\xfa\x2c\x09\xff\xf0\xff\xfa\x2c\x06\xff\xf0\xff\xfa\x2c\x07\xff\xf0",
    ),
)
