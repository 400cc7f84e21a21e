"""The Flight calls that both clients use: open a stream, prepare a write, do an action.

Endpoints may name other servers. The connection opens a channel to each other server that it uses. `close` closes all
of them.

Modules that only some calls need are imported inside these calls, so that a command that lists a folder starts in half
the time.
"""

from __future__ import annotations

import contextlib
import json
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import flight

from fastflight.client import answers
from fastflight.client.credentials import NONE, Credentials, options
from fastflight.client.failure import NotReached, typed_errors
from fastflight.client.progress import Report
from fastflight.client.stream import RowStream
from fastflight.client.validation import ABOUT_ROWS, validating, whole
from fastflight.errors import ProtocolError, RequestError
from fastflight.service.requests import DeviceFile, Request
from fastflight.service.wire import encode
from fastflight.tables import format_of

if TYPE_CHECKING:
    from fastflight.client.endpoint import Endpoint
    from fastflight.client.interaction import Interaction
    from fastflight.client.parallel import ParallelRowStream
    from fastflight.client.upload import Upload

# gRPC pings the peer at this interval, to notice when it is gone. Not more often: a gRPC server accepts two pings
# within five minutes in which it sends nothing, and closes the connection at the third. gRPC waits a minute for the
# answer.
KEEPALIVE_MS = 310_000
# These are gRPC's own names; the names in Arrow's documentation are silently ignored. Messages may have any size, and
# gRPC waits no longer than two seconds between attempts to connect to a server that was restarted.
CHANNEL_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
]
# Flight.proto: this location means the connection over which the endpoint was received.
REUSE = "arrow-flight-reuse-connection://?"


class ServerConnection:
    """A channel to the server at `location`. `timeout` (seconds) limits actions and lookups; streams have no limit."""

    def __init__(
        self, location: str, timeout: float = answers.DEFAULT_TIMEOUT, credentials: Credentials = NONE
    ) -> None:
        self.location = location
        self._timeout = timeout
        self._credentials = credentials
        self._client = self._connect(location)
        self._peers_lock = threading.Lock()
        # Clients of the other servers that endpoints name, by location.
        self._peers: dict[str, flight.FlightClient] = {}

    def stream(self, request: Request, report: Report | None = None) -> RowStream:
        """Send a request and return its answer when the schema has arrived.

        The schema of a text file comes when the server has all of it. Until then, `report` is called with the bytes
        that it has.
        """
        if report is not None and _is_read_whole(request):
            with self.stream(request.model_copy(update={"limit": 0})) as stream:
                for _, note in stream.pieces():
                    with validating(ABOUT_ROWS, self.location):
                        if note is not None and (progress := note.get("progress")):
                            report(0, whole(progress["bytes"]), whole(progress["size"]))
        with typed_errors(self.location):
            reader = self._client.do_get(flight.Ticket(encode(request)), self._call_options())
        return RowStream(reader, self.location)

    def info(self, request: Request) -> flight.FlightInfo:
        """Return what the server knows about the answer to a request: its schema and endpoints."""
        descriptor = flight.FlightDescriptor.for_command(encode(request))
        with typed_errors(self.location):
            return self._client.get_flight_info(descriptor, self._call_options(self._timeout))

    def flights(self, criteria: bytes = b"", timeout: float | None = None) -> list[flight.FlightInfo]:
        """Return the flights that the server lists. `timeout` (seconds) replaces that of the connection."""
        with typed_errors(self.location):
            return list(self._client.list_flights(criteria, self._call_options(timeout or self._timeout)))

    def parallel_stream(self, request: Request, parallel: int, ordered: bool) -> ParallelRowStream:
        """Read the endpoints of a request in parallel. Returns when the schema of the first has arrived."""
        from fastflight.client.parallel import ParallelRowStream

        endpoints = self._divided(request).endpoints
        return ParallelRowStream([partial(self.read_endpoint, each) for each in endpoints], parallel, ordered)

    def endpoints(self, request: Request) -> list[Endpoint]:
        """Return the endpoints of a request, each of which can be read by another process."""
        from fastflight.client.endpoint import endpoints_of

        return endpoints_of(self._divided(request), self.location, self._credentials)

    def read_endpoint(self, endpoint: flight.FlightEndpoint) -> RowStream:
        """Read an endpoint from the first of its locations that can be reached.

        Once a server was reached, no other one is tried, even if the call fails: the server may have begun to carry out
        the request, for example to run code, and a second server would do so again.
        """
        named = [each.uri.decode(errors="replace") for each in endpoint.locations] or [self.location]
        locations = [each for each in named if self._may_follow(each)]
        if not locations:
            raise RequestError(
                "the rows are at another server, which is not sent this server's credentials",
                where=named[0],
                hint="Ask there, with a token for that server",
            )
        for location in locations[:-1]:
            with contextlib.suppress(NotReached):
                return self._stream_at(location, endpoint.ticket)
        return self._stream_at(locations[-1], endpoint.ticket)

    def interaction(self, request: Request) -> Interaction:
        """Open an interactive session. Returns when the server has sent its schema."""
        from fastflight.client.interaction import Interaction

        descriptor = flight.FlightDescriptor.for_command(encode(request))
        with typed_errors(self.location):
            writer, reader = self._client.do_exchange(descriptor, self._call_options())
        return Interaction(writer, reader, self.location)

    def upload(self, request: Request, source: Any, report: Report | None = None) -> Upload:
        """Prepare a write of the rows in `source`. Nothing is sent until the caller calls `run` of the result."""
        from fastflight.client.upload import Upload

        return Upload(self._client, request, source, self.location, report)

    def act(self, name: str, /, **body: Any) -> list[Any]:
        """Do an action and return its results. Arguments that are None are not sent."""
        arguments = {key: value for key, value in body.items() if value is not None}
        return self.results(name, json.dumps(arguments).encode())

    def results(self, name: str, body: bytes, timeout: float | None = None) -> list[Any]:
        """Do an action with `body`, which is already JSON, and return its results, decoded.

        `timeout` (seconds) replaces that of the connection.
        """
        action = flight.Action(name, body)
        with typed_errors(self.location):
            results = self._client.do_action(action, self._call_options(timeout or self._timeout))
            bodies = [result.body.to_pybytes() for result in results]
        return answers.results_of(bodies, self.location)

    def act_once(self, name: str, /, **body: Any) -> dict[str, Any]:
        """Do an action that returns exactly one JSON object, and return that."""
        return answers.single(self.act(name, **body), name, self.location)

    def close(self) -> None:
        with self._peers_lock:
            peers, self._peers = list(self._peers.values()), {}
        for client in (self._client, *peers):
            client.close()

    def _connect(self, location: str) -> flight.FlightClient:
        """Return Flight's client for the server at `location`. A subclass may return one with the same methods."""
        options = self._credentials.options(str(location))
        try:
            return flight.FlightClient(location, generic_options=CHANNEL_OPTIONS, **options)
        except (pa.ArrowException, OSError, TypeError) as error:
            raise RequestError(
                "not the address of a server", where=str(location), hint=f"Give one as {answers.DEFAULT_LOCATION}"
            ) from error

    def _call_options(self, timeout: float | None = None) -> flight.FlightCallOptions:
        return options(timeout)

    def _divided(self, request: Request) -> flight.FlightInfo:
        """Return what the server knows about a request. Raises `ProtocolError` unless it names an endpoint."""
        info = self.info(request)
        if not info.endpoints:
            raise ProtocolError("the flight has no endpoints", where=self.location)
        return info

    def _stream_at(self, location: str, ticket: flight.Ticket) -> RowStream:
        with typed_errors(location):
            reader = self._client_at(location).do_get(ticket, self._call_options())
        return RowStream(reader, location)

    def _may_follow(self, location: str) -> bool:
        if location in (self.location, REUSE):
            return True
        return self._credentials == NONE or self._credentials.may_follow(self.location, location)

    def _client_at(self, location: str) -> flight.FlightClient:
        if location in (self.location, REUSE):
            return self._client
        with self._peers_lock:
            if location not in self._peers:
                self._peers[location] = self._connect(location)
            return self._peers[location]


def _is_read_whole(request: Request) -> bool:
    """Whether the server reads all of a file before it answers, unless its settings have a schema for the file."""
    if not isinstance(request, DeviceFile) or request.schema_ is not None or request.infer != "file":
        return False
    return request.limit is None and (request.format or format_of(request.path)) in ("csv", "jsonl")
