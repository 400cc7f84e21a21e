"""The server's side of RFC 2217: any client gets answers that a client understands, and a split changes nothing."""

from __future__ import annotations

from dataclasses import astuple

from fastflight.protocol.rfc2217 import CLIENT, SERVER, LineState, NotifyLine, NotifyModem, Purge, decode, encode
from fastflight.protocol.rfc2217_server import Event, Rfc2217Server
from fastflight.protocol.telnet import Option, Subnegotiation, Telnet, TelnetData
from tests.campaigns.fuzz.material import Material, cut
from tests.campaigns.fuzz.target import Target
from tests.transport.rfc2217_peers import IN_FORCE


def obey(server: Rfc2217Server, event: Event, lines: int) -> None:
    """Do as the client says, as the table in `rfc2217_server` has it."""
    match event:
        case Purge():
            server.answer(event)
        case NotifyModem():
            server.notify_modem(
                cts=bool(lines & 1), dsr=bool(lines & 2), ri=bool(lines & 4), cd=bool(lines & 8), force=True
            )
        case NotifyLine():
            server.notify_line(LineState(lines), force=True)
        case _ if (usual := IN_FORCE.get(type(event))) is not None:
            # A question has no value of its own.
            server.answer(usual if None in astuple(event) else event)  # type: ignore[arg-type]


def heard(pieces: list[bytes], lines: int) -> tuple[list[Event], bytes]:
    """All events, neighbouring data as one, and all that was sent."""
    server = Rfc2217Server()
    events: list[Event] = []
    sent = server.take()
    for piece in pieces:
        for event in server.feed(piece):
            if isinstance(event, TelnetData) and events and isinstance(before := events[-1], TelnetData):
                events[-1] = TelnetData(before.data + event.data)
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
    modules=(
        "fastflight.protocol.rfc2217_server",
        "fastflight.protocol.rfc2217",
    ),
    seeds=(
        # What pyserial's client says when it opens a port.
        b"\x31\x00\xff\xfb\x2c\xff\xfd\x03\xff\xfb\x03\xff\xfd\x00\xff\xfb\x00\xff\xfa\x2c\x0a\x1e\xff\xf0",
        b"\x05\x02\xff\xfb\x2c\xff\xfa\x2c\x01\x00\x01\xc2\x00\xff\xf0\xff\xfa\x2c\x02\x08\xff\xf0\xff\xfa\x2c\x03\x01\xff\xf0",
        b"\x3f\x21\xff\xfa\x2c\x05\x08\xff\xf0\xff\xfa\x2c\x05\x0b\xff\xf0\xff\xfa\x2c\x0c\x03\xff\xf0text\xff\xff",
        b"\x00\x00\x00\x05\x01\x00\x00\x00\x00\x0b\xff",
        b"\x0f\x00\xff\xfa\x2c\x00\xff\xf0\xff\xfa\x2c\x08\xff\xf0\xff\xfa\x2c\x09\xff\xf0\xff\xfa\x2c\x06\xff\xf0\xff\xfa\x2c\x07\xff\xf0",
    ),
)
