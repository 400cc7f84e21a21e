"""The relay's frames, for either side: events or a `RelayViolation`, the same ones however the bytes are split."""

from __future__ import annotations

from fastflight.protocol.relay import (
    MAX_STREAMS,
    MAX_UNANSWERED,
    Closed,
    Open,
    RelayConnection,
    RelayData,
    RelayViolation,
    violated,
)
from tests.campaigns.fuzz.material import Material, cut
from tests.campaigns.fuzz.target import Target

WINDOW = 64


def side(accepts: bool) -> RelayConnection:
    connection = RelayConnection(accepts=accepts, window_bytes=WINDOW)
    if not accepts:
        for stream in (1, 2, 3):
            connection.open(stream, "host:1")
        connection.close(3)
    return connection


def heard(pieces: list[bytes], accepts: bool, habits: int) -> tuple[list[object], bytes]:
    """The events, what was wrong at last, and what this side said: it opens, consumes, sends, ends and closes."""
    connection = side(accepts)
    found: list[object] = []
    said = bytearray()
    taken = 0
    try:
        for piece in pieces:
            for event in connection.feed(piece):
                found.append(RelayData(event.stream, bytes(event.data)) if isinstance(event, RelayData) else event)
                match event:
                    case Open(stream, _) if habits >> (stream & 3) & 1:
                        said += connection.opened(stream)
                    case Open(stream, target):
                        said += connection.close(stream, text=target)
                    case RelayData(stream, content):
                        taken += len(content)
                        said += connection.consumed(stream, len(content) if habits & 16 else 1)
                        if habits & 32 and connection.credit(stream):
                            said += connection.data(stream, 1) + b"x"
                    case Closed(stream, _, _) if stream:
                        said += connection.close(stream)
                assert connection.streams <= MAX_STREAMS + MAX_UNANSWERED
    except RelayViolation as error:
        said += violated(error)
        found.append(error.what)
    assert taken <= sum(map(len, pieces))
    return found, bytes(said)


def run(data: bytes) -> None:
    material = Material(data)
    accepts, habits, pattern = material.byte() & 1 == 0, material.byte(), material.byte()
    wire = material.rest()
    assert heard(cut(wire, pattern), accepts, habits) == heard([wire], accepts, habits)


OPEN = b"\x01\x00\x00\x01\x00\x00\x00\x0a\x00\x00\x00\x40host:1"
TARGET = Target(
    run,
    modules=("fastflight.protocol.relay",),
    seeds=(
        b"\x00\x1f\x00" + OPEN + b"\x03\x00\x00\x01\x00\x00\x00\x05hello" + b"\x04\x00\x00\x01\x00\x00\x00\x00",
        b"\x00\x32\x05" + OPEN + b"\x03\x00\x00\x01\x00\x00\x00\x01x" + b"\x05\x00\x00\x01\x00\x00\x00\x03end",
        b"\x01\x30\x21\x02\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00\x40\x03\x00\x00\x01\x00\x00\x00\x02ab",
        b"\x01\x00\x00\x05\x01\x00\x02\x00\x00\x00\x00\x06\x00\x00\x01\x00\x00\x00\x04\x7f\xff\xff\xff",
        b"\x00\x00\x07\x05\x07\x00\x00\x00\x00\x00\x03bye",
    ),
    max_bytes=160,
)
