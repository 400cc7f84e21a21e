"""do_action: a table of names, each with the model of its body and what it does.

The body of an `Action` is JSON, validated by its model; its results are JSON objects. The few actions that Flight
itself defines have protobuf bodies: a `RawAction` takes and gives bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from fastflight.errors import RequestError, nearest
from fastflight.service import Catalog, decode, encode, wire
from fastflight.service.action import Action, Body
from fastflight.service.ledger import Ledger

# Flight.proto: enum CancelStatus, of CancelFlightInfoResult's only field.
CANCELLING = b"\x08\x02"
NOT_CANCELLABLE = b"\x08\x03"
# Both requests hold one message, as field 1, length-delimited.
FIELD_1 = 0x0A
# A varint of a length: 5 bytes say more than gRPC carries.
MAX_LENGTH_BYTES = 5


class Nothing(Body):
    """The body of an action that needs none: empty, or `{}`."""


@dataclass(frozen=True, slots=True)
class RawAction:
    """`run` takes the body as it is and gives the results' bytes."""

    name: str
    description: str
    run: Callable[[bytes], Iterable[bytes]]


class Actions:
    """The actions of one server, by name."""

    def __init__(self, actions: Iterable[Action | RawAction]) -> None:
        self._actions: dict[str, Action | RawAction] = {}
        for action in actions:
            if action.name in self._actions:
                raise ValueError(f"two actions called {action.name}")
            self._actions[action.name] = action

    def types(self) -> list[flight.ActionType]:
        """For list_actions."""
        return [flight.ActionType(action.name, _details(action)) for action in self._actions.values()]

    def results(self, name: str, body: bytes) -> Iterator[bytes]:
        """Carry `name` out; its results as they come."""
        if name not in self._actions:
            raise RequestError("no such action", where=wire.shortened(name), hint=nearest(name, self._actions))
        return _results(self._actions[name], body)


def own_actions(ledger: Ledger, catalog: Catalog) -> list[Action | RawAction]:
    """What every server can do, whatever it serves."""

    def health(_: Nothing) -> Iterator[Mapping[str, Any]]:
        yield {"status": "draining" if ledger.draining else "serving"}

    def stats(_: Nothing) -> Iterator[Mapping[str, Any]]:
        yield ledger.stats()

    def cancel(body: bytes) -> Iterator[bytes]:
        info = _deserialize(flight.FlightInfo, body, "CancelFlightInfo")
        # In the server's own spelling: a client may have written the request in another.
        tickets = {encode(decode(endpoint.ticket.ticket, catalog)) for endpoint in info.endpoints}
        found = sum(ledger.cancel(ticket) for ticket in tickets)
        yield CANCELLING if found else NOT_CANCELLABLE

    def renew(body: bytes) -> Iterator[bytes]:
        endpoint = _deserialize(flight.FlightEndpoint, body, "RenewFlightEndpoint")
        decode(endpoint.ticket.ticket, catalog)
        yield endpoint.serialize()  # endpoints do not expire here

    return [
        Action("health", "Whether the server takes requests: status is serving or draining.", Nothing, health),
        Action("stats", "Streams, rows and bytes since the start, in all and by source.", Nothing, stats),
        RawAction("CancelFlightInfo", "End the running streams of a flight (protobuf, see Flight.proto).", cancel),
        RawAction("RenewFlightEndpoint", "Endpoints do not expire: gives the same one back (protobuf).", renew),
    ]


def _details(action: Action | RawAction) -> str:
    """The description; on the second line, the JSON schema of the body."""
    if isinstance(action, RawAction):
        return action.description
    return f"{action.description}\n{json.dumps(action.body.model_json_schema())}"


def _results(action: Action | RawAction, body: bytes) -> Iterator[bytes]:
    if isinstance(action, RawAction):
        yield from action.run(body)
        return
    content = wire.parse(body or b"{}", action.name)
    for result in action.run(wire.validate(action.body, content)):
        yield json.dumps(result, default=str).encode()


def _deserialize(kind: Any, body: bytes, where: str) -> Any:
    try:
        return kind.deserialize(_field_1(body))
    except (ValueError, pa.ArrowException):
        raise RequestError(f"the body is not a {where}Request", where=where) from None


def _field_1(body: bytes) -> bytes:
    """The content of field 1, which must be all there is."""
    if body[:1] != bytes([FIELD_1]):
        raise ValueError("no field 1")
    length = 0
    for i, byte in enumerate(body[1 : 1 + MAX_LENGTH_BYTES]):
        length |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            content = body[2 + i :]
            if len(content) != length:
                raise ValueError("more than field 1, or less")
            return content
    raise ValueError("no length")
