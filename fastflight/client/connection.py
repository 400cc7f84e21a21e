"""The Flight calls under both clients: open a stream, prepare a write, do an action.

An endpoint may name other servers: there is a channel to each that was followed, until the connection is closed.
"""

from __future__ import annotations

import contextlib
import copy
import json
import threading
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import flight

from fastflight.client import call
from fastflight.client.credentials import NONE, Credentials, options
from fastflight.client.failure import NotReached, typed_errors
from fastflight.client.interaction import Interaction
from fastflight.client.parallel import ParallelRowStream
from fastflight.client.progress import Report
from fastflight.client.stream import RowStream
from fastflight.client.upload import Heard, Upload
from fastflight.errors import ProtocolError, RequestError
from fastflight.service.requests import Request
from fastflight.service.wire import encode

# A peer that has gone without a word is noticed by what it does not answer. Asked so often and no more: a gRPC server
# takes two questions within five minutes in which it says nothing, and hangs up at the third. gRPC waits a minute for
# the answer.
KEEPALIVE_MS = 310_000
# Spelled as gRPC spells them; Arrow's documented names are ignored without a word. A table's batch may be of any
# size, and a server that was started again is found again within two seconds.
CHANNEL_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
]
# Flight.proto: the location that means the connection on which the endpoint was told.
REUSE = "arrow-flight-reuse-connection://?"


class ServerConnection:
    """One channel to the server at `location`. `timeout` is for actions; streams last as long as they last."""

    def __init__(self, location: str, timeout: float, credentials: Credentials = NONE) -> None:
        self.location = location
        self._timeout = timeout
        # What is shown in each call beside what the channel shows; for who passes on what others show.
        self._authorization = ""
        self._credentials = credentials
        self._client = _channel(location, credentials)
        self._following = threading.Lock()
        self._followed: dict[str, flight.FlightClient] = {}

    def showing(self, authorization: str) -> ServerConnection:
        """The same channel, for somebody who shows this in each call. It ends with this one, and follows nobody.

        `RequestError` where the channel is none on which a token may be shown.
        """
        Credentials(token="token").options(self.location)  # noqa: S106  # a stand-in: the location is looked at
        shown = copy.copy(self)
        shown._authorization = authorization
        return shown

    def stream(self, request: Request) -> RowStream:
        """The answer to a request, once its schema has come."""
        with typed_errors(self.location):
            reader = self._client.do_get(flight.Ticket(encode(request)), self._call_options())
        return RowStream(reader, self.location)

    def reader(self, request: Request) -> flight.FlightStreamReader:
        """The answer to a request as Flight gives it, for who passes it on."""
        with typed_errors(self.location):
            return self._client.do_get(flight.Ticket(encode(request)), self._call_options())

    def exchange(self, request: Request) -> tuple[flight.FlightStreamWriter, flight.FlightStreamReader]:
        """Both sides of an exchange, as Flight gives them."""
        descriptor = flight.FlightDescriptor.for_command(encode(request))
        with typed_errors(self.location):
            writer, reader = self._client.do_exchange(descriptor, self._call_options())
        return writer, reader

    def info(self, request: Request) -> flight.FlightInfo:
        """What the server knows of an answer."""
        descriptor = flight.FlightDescriptor.for_command(encode(request))
        with typed_errors(self.location):
            return self._client.get_flight_info(descriptor, self._call_options(self._timeout))

    def flights(self, criteria: bytes = b"") -> list[flight.FlightInfo]:
        """What the server lists."""
        with typed_errors(self.location):
            return list(self._client.list_flights(criteria, self._call_options(self._timeout)))

    def parallel_stream(self, request: Request, parallel: int, ordered: bool) -> ParallelRowStream:
        """The answer to a request by way of its endpoints, once the schema of the first has come."""
        endpoints = self.info(request).endpoints
        if not endpoints:
            raise ProtocolError("the flight has no endpoints", where=self.location)
        return ParallelRowStream([partial(self._endpoint, each) for each in endpoints], parallel, ordered)

    def interaction(self, request: Request) -> Interaction:
        """An exchange, once the device is there."""
        writer, reader = self.exchange(request)
        return Interaction(writer, reader, self.location)

    def upload(self, request: Request, source: Any, report: Report | None = None, heard: Heard | None = None) -> Upload:
        """A write of the rows in `source`, ready to run; `heard` is called with each message of the server."""
        return Upload(self._client, request, source, self.location, report, heard, self._authorization)

    def act(self, name: str, **body: Any) -> list[Any]:
        """The results of an action; arguments that are None are left to the server."""
        given = {key: value for key, value in body.items() if value is not None}
        return self.results(name, json.dumps(given).encode())

    def results(self, name: str, body: bytes, timeout: float | None = None) -> list[Any]:
        """The results of an action whose body is JSON already; `timeout` where it is not the connection's."""
        action = flight.Action(name, body)
        with typed_errors(self.location):
            results = self._client.do_action(action, self._call_options(timeout or self._timeout))
            bodies = [result.body.to_pybytes() for result in results]
        return call.results_of(bodies, self.location)

    def act_once(self, name: str, **body: Any) -> dict[str, Any]:
        """The one object that an action gives."""
        return call.single(self.act(name, **body), name, self.location)

    def close(self) -> None:
        with self._following:
            followed, self._followed = list(self._followed.values()), {}
        for client in (self._client, *followed):
            client.close()

    def _call_options(self, timeout: float | None = None) -> flight.FlightCallOptions:
        return options(timeout, self._authorization)

    def _endpoint(self, endpoint: flight.FlightEndpoint) -> RowStream:
        """The rows of an endpoint, from the first of its locations that is reached.

        Of one that was, nothing is asked again elsewhere, whatever came of it: it may be code that has begun to run.
        """
        told = [each.uri.decode(errors="replace") for each in endpoint.locations] or [self.location]
        locations = [each for each in told if self._may_follow(each)]
        if not locations:
            raise RequestError(
                "the rows are at another server, which is not shown what this one is",
                where=told[0],
                hint="Ask there, with a token for that server",
            )
        for location in locations[:-1]:
            with contextlib.suppress(NotReached):
                return self._stream_at(location, endpoint.ticket)
        return self._stream_at(locations[-1], endpoint.ticket)

    def _stream_at(self, location: str, ticket: flight.Ticket) -> RowStream:
        with typed_errors(location):
            reader = self._at(location).do_get(ticket, self._call_options())
        return RowStream(reader, location)

    def _may_follow(self, location: str) -> bool:
        if location in (self.location, REUSE):
            return True
        if self._authorization:
            return False
        return self._credentials == NONE or self._credentials.may_follow(self.location, location)

    def _at(self, location: str) -> flight.FlightClient:
        if location in (self.location, REUSE):
            return self._client
        with self._following:
            if location not in self._followed:
                self._followed[location] = _channel(location, self._credentials)
            return self._followed[location]


def _channel(location: str, credentials: Credentials) -> flight.FlightClient:
    options = credentials.options(str(location))
    try:
        return flight.FlightClient(location, generic_options=CHANNEL_OPTIONS, **options)
    except (pa.ArrowException, OSError, TypeError) as error:
        raise RequestError(
            "not the address of a server", where=str(location), hint=f"Give one as {call.DEFAULT_LOCATION}"
        ) from error
