"""The Flight calls under both clients: open a stream, prepare a write, do an action."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyarrow import flight

from fastflight.client import call
from fastflight.client.failure import typed_errors
from fastflight.client.interaction import Interaction
from fastflight.client.progress import Report
from fastflight.client.stream import RowStream
from fastflight.client.upload import Upload
from fastflight.errors import RequestError
from fastflight.service.requests import Request
from fastflight.service.wire import encode

# Spelled as gRPC spells them; Arrow's documented names are ignored without a word. A table's batch may be of any
# size, and a server that was started again is found again within two seconds.
CHANNEL_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_reconnect_backoff_ms", 2000),
]


class Connection:
    """One channel to the server at `location`. `timeout` is for actions; streams last as long as they last."""

    def __init__(self, location: str, timeout: float) -> None:
        self.location = location
        self._options = flight.FlightCallOptions(timeout=timeout)
        try:
            self._client = flight.FlightClient(location, generic_options=CHANNEL_OPTIONS)
        except (pa.ArrowException, OSError, TypeError) as error:
            raise RequestError(
                "not the address of a server", where=str(location), hint=f"Give one as {call.DEFAULT_LOCATION}"
            ) from error

    def stream(self, request: Request) -> RowStream:
        """The answer to a request, once its schema has come."""
        with typed_errors(self.location):
            reader = self._client.do_get(flight.Ticket(encode(request)))
        return RowStream(reader, self.location)

    def interaction(self, request: Request) -> Interaction:
        """An exchange, once the device is there."""
        descriptor = flight.FlightDescriptor.for_command(encode(request))
        with typed_errors(self.location):
            writer, reader = self._client.do_exchange(descriptor)
        return Interaction(writer, reader, self.location)

    def upload(self, request: Request, source: Any, report: Report | None) -> Upload:
        """A write of the rows in `source`, ready to run."""
        return Upload(self._client, request, source, self.location, report)

    def act(self, name: str, **body: Any) -> list[Any]:
        """The results of an action; arguments that are None are left to the server."""
        given = {key: value for key, value in body.items() if value is not None}
        action = flight.Action(name, json.dumps(given).encode())
        with typed_errors(self.location):
            bodies = [result.body.to_pybytes() for result in self._client.do_action(action, self._options)]
        return call.results_of(bodies, self.location)

    def act_once(self, name: str, **body: Any) -> dict[str, Any]:
        """The one object that an action gives."""
        return call.single(self.act(name, **body), name, self.location)

    def close(self) -> None:
        self._client.close()
