"""The actions that every Flight server has, and the answer of list_actions.

Two of the actions, `CancelFlightInfo` and `RenewFlightEndpoint`, are defined by Flight itself and have protobuf bodies.
`access.actions.Actions` looks actions up and runs them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.flight as flight

from fastflight.access.action import Action, RawAction
from fastflight.access.actions import Actions
from fastflight.access.authority import Authority
from fastflight.access.identity import Identity
from fastflight.concurrency import Shards
from fastflight.errors import RequestError
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server.sql_commands import is_flight_sql
from fastflight.service import Catalog, decode, encode
from fastflight.sources.state_actions import state_actions

# Flight.proto: enum CancelStatus, of CancelFlightInfoResult's only field.
CANCELLING = b"\x08\x02"
NOT_CANCELLABLE = b"\x08\x03"
# Both requests hold one message: field 1, length-delimited.
FIELD_1 = 0x0A
# The length is a varint. Five bytes can give a larger length than any gRPC message has.
MAX_LENGTH_BYTES = 5
# Stops the streams of a ticket, of all identities (None) or of one, and returns how many there were.
Cancels: TypeAlias = Callable[[bytes, str | None], int]


def types(actions: Actions) -> list[flight.ActionType]:
    """Return the answer of list_actions."""
    listed = (action for action in actions if isinstance(action, Action) or action.listed)
    return [flight.ActionType(action.name, _details(action)) for action in listed]


def own_actions(
    registry: StreamRegistry,
    catalog: Catalog,
    shards: Shards,
    authority: Authority,
    state: Iterable[Action] | None = None,
    cancels: Cancels | None = None,
) -> list[Action | RawAction]:
    """Return the actions that every Flight server has, whatever it serves.

    `state` replaces the actions that report the state of this process, `cancels` is called in place of
    `registry.cancel`.
    """
    cancel_streams = cancels or registry.cancel

    def cancel(body: bytes, identity: Identity) -> Iterator[bytes]:
        info = _deserialize(flight.FlightInfo, body, "CancelFlightInfo")
        # The registry knows tickets in their canonical form; a client may have written the request in another.
        # Answers about the metadata of SQL are whole before they are sent, so none of them runs.
        sent = [endpoint.ticket.ticket for endpoint in info.endpoints if not is_flight_sql(endpoint.ticket.ticket)]
        tickets = {encode(decode(ticket, catalog)) for ticket in sent}
        owner = None if identity.may_admin() else identity.name
        cancelled = sum(cancel_streams(ticket, owner) for ticket in tickets)
        yield CANCELLING if cancelled else NOT_CANCELLABLE

    def renew(body: bytes, identity: Identity) -> Iterator[bytes]:
        endpoint = _deserialize(flight.FlightEndpoint, body, "RenewFlightEndpoint")
        if not is_flight_sql(endpoint.ticket.ticket):
            authority.authorize(identity, decode(endpoint.ticket.ticket, catalog), "read")
        yield endpoint.serialize()  # endpoints do not expire here

    return [
        *(state_actions(registry, shards) if state is None else state),
        RawAction("CancelFlightInfo", "End the running streams of a flight (protobuf, see Flight.proto).", cancel),
        RawAction("RenewFlightEndpoint", "Endpoints do not expire: gives the same one back (protobuf).", renew),
    ]


def _details(action: Action | RawAction) -> str:
    """Return the description, followed by a second line with the JSON schema of the body if that is JSON."""
    if isinstance(action, RawAction):
        return action.description
    return f"{action.description}\n{json.dumps(action.body.model_json_schema())}"


def _deserialize(kind: Any, body: bytes, where: str) -> Any:
    try:
        return kind.deserialize(_field_1(body))
    except (ValueError, pa.ArrowException):
        raise RequestError(f"the body is not a {where}Request", where=where) from None


def _field_1(body: bytes) -> bytes:
    """Return the content of field 1, which must be the only field."""
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
