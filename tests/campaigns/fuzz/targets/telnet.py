"""Telnet: nothing is an error, a split changes nothing, and what is encoded comes back."""

from __future__ import annotations

from fastflight.protocol.telnet import Event, Option, Telnet, TelnetData
from tests.campaigns.fuzz.material import Material, cut
from tests.campaigns.fuzz.target import Target

OPTIONS = (Option.BINARY, Option.ECHO, Option.SUPPRESS_GO_AHEAD, Option.COM_PORT)
ALLOWED: tuple[frozenset[int], ...] = (
    frozenset(),
    frozenset({Option.BINARY}),
    frozenset(OPTIONS),
    frozenset(range(256)),
)


def side(choice: int) -> Telnet:
    telnet = Telnet(ALLOWED[choice & 3], ALLOWED[choice >> 2 & 3])
    for index, option in enumerate(OPTIONS):
        if choice >> 4 + index & 1:
            telnet.ask(option, ours=bool(choice & 1))
    return telnet


def joined(events: list[Event]) -> list[Event]:
    """The events with neighbouring data as one."""
    result: list[Event] = []
    for event in events:
        if isinstance(event, TelnetData) and result and isinstance(before := result[-1], TelnetData):
            result[-1] = TelnetData(before.data + event.data)
        else:
            result.append(event)
    return result


def run(data: bytes) -> None:
    material = Material(data)
    choice, pattern = material.byte(), material.byte()
    wire = material.rest()
    whole, parts = side(choice), side(choice)
    expected = whole.feed(wire)
    assert joined([event for piece in cut(wire, pattern) for event in parts.feed(piece)]) == expected
    assert parts.take() == whole.take()
    plain = Telnet(frozenset(), frozenset())
    back = joined([event for piece in cut(plain.encode(wire), pattern) for event in plain.feed(piece)])
    assert back == ([TelnetData(wire)] if wire else [])


TARGET = Target(
    run,
    modules=("fastflight.protocol.telnet",),
    seeds=(
        b"\x00\x00plain text\r\0and\r\nlines",
        b"\x0f\x13\xff\xfb\x00\xff\xfd\x00\xff\xfb\x2c\xff\xfd\x2cdata\xff\xff\xff",
        b"\xff\x31\xff\xfa\x2c\x01\x00\x00\x25\x80\xff\xf0\xff\xf3text\xff\xfa\x2c\x00\xff\xff\xff\xf0",
        b"\x0f\x02\xff\xfe\x01\xff\xfc\x03\xff\xfd\x01\xff\xfb\x03\xff\xfa\xff\xfb\x00",
    ),
)
