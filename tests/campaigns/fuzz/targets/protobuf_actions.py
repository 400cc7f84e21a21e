"""CancelFlightInfo and RenewFlightEndpoint, whose bodies Arrow reads in C++: an answer, or a `RequestError`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.flight as flight

from fastflight.access.action import RawAction
from fastflight.access.authority import Authority
from fastflight.access.identity import ANYBODY
from fastflight.concurrency import Shards
from fastflight.errors import RequestError, UnknownName
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server.actions import CANCELLING, NOT_CANCELLABLE, own_actions
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.protobuf import field
from tests.campaigns.fuzz.target import Target
from tests.campaigns.fuzz.targets.request import CATALOG

CANCEL, RENEW = (
    action
    for action in own_actions(StreamRegistry(), CATALOG, Shards(1), Authority(), ())
    if isinstance(action, RawAction)
)
TICKET = flight.Ticket(b'{"type":"mock","total_rows":5}')
ENDPOINT = flight.FlightEndpoint(TICKET, ["grpc://127.0.0.1:1", "arrow-flight-reuse-connection://?"])
INFO = flight.FlightInfo(pa.schema({"a": "int64"}), flight.FlightDescriptor.for_path("a", "b"), [ENDPOINT, ENDPOINT])


def run(data: bytes) -> None:
    material = Material(data)
    kind = material.byte()
    content = material.rest()
    body = field(1, content) if kind & 2 else content
    try:
        (answer,) = (RENEW if kind & 1 else CANCEL).run(body, ANYBODY)
    except (RequestError, UnknownName) as error:
        assert str(error)
        return
    assert kind & 1 or answer in (CANCELLING, NOT_CANCELLABLE)


TARGET = Target(
    run,
    seeds=(
        b"\x02" + INFO.serialize(),
        b"\x03" + ENDPOINT.serialize(),
        b"\x00" + field(1, INFO.serialize()),
        b"\x03" + field(1, field(1, TICKET.ticket)) + field(3, field(1, 1 << 62)),
        b"\x02" + field(3, field(1, field(1, TICKET.ticket))) + field(4, 1 << 63) + field(1, b"\xff\xff\xff\xff"),
        b"\x00\x0a\xff\xff\xff\xff\xff\x01",
    ),
    max_bytes=700,
)
