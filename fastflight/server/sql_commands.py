"""The part of Flight SQL that the Flight server knows: which commands are Flight SQL's, and who answers them.

`server.flight_sql.FlightSql` answers them if the extra `sql` is installed. Without it `NoFlightSql` refuses them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa
import pyarrow.flight as flight

from fastflight.access.action import RawAction
from fastflight.access.identity import Identity
from fastflight.errors import Unsupported
from fastflight.server.incoming import Incoming

# How a message of Flight SQL begins: field 1 of an `Any`, its length, which is one byte for all names, and the name.
FIELD_1 = b"\n"
TYPE_URL = b"type.googleapis.com/arrow.flight.protocol.sql."
CREATE, CLOSE, CLOSE_SESSION = "CreatePreparedStatement", "ClosePreparedStatement", "CloseSession"
# Actions of Flight SQL that a server for reading does not have.
UNSUPPORTED_ACTIONS = (
    "BeginTransaction",
    "EndTransaction",
    "BeginSavepoint",
    "EndSavepoint",
    "CreatePreparedSubstraitPlan",
    "CancelQuery",
    "SetSessionOptions",
    "GetSessionOptions",
)


def is_flight_sql(command: bytes | None) -> bool:
    """Whether a command or ticket is a message of Flight SQL."""
    return command is not None and command[:1] == FIELD_1 and command[2 : 2 + len(TYPE_URL)] == TYPE_URL


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """How to answer a command. `ticket` is a request for a query, and the command itself for metadata.

    `schema` is None if the server must be asked for it. `read` makes the answer of a command for metadata. It calls its
    argument now and then, which raises when the client has left.
    """

    ticket: bytes
    schema: pa.Schema | None = None
    read: Callable[[Callable[[], None]], pa.Table] | None = None

    def info(self, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        """Return the flight, with one endpoint. The schema must be known."""
        return flight.FlightInfo(self.schema, descriptor, [flight.FlightEndpoint(self.ticket, [])], -1, -1)


class NoFlightSql:
    """Refuses all commands: the extra `sql` is not installed."""

    def resolve(self, command: bytes, identity: Identity) -> NoReturn:
        raise missing()

    def bind(self, command: bytes, owner: str, parameters: Incoming) -> NoReturn:
        raise missing()

    def actions(self) -> list[RawAction]:
        def refuse(body: bytes, identity: Identity) -> NoReturn:
            raise missing()

        names = (CREATE, CLOSE, CLOSE_SESSION, *UNSUPPORTED_ACTIONS)
        return [RawAction(name, "", refuse, listed=False) for name in names]


def missing() -> Unsupported:
    """Return the error of a server without the extra `sql`."""
    return Unsupported(
        "this server has no SQL: its extra `sql` is not installed",
        hint="Install the extra `sql` where the server runs, and start it again",
    )
