"""The Flight server. Each handler decodes the request, dispatches it, adapts the result and maps errors.

The server serves from construction on. `close` ends it in bounded time: it admits no new work, gives running streams
time to end by themselves, and then ends the rest with UNAVAILABLE.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.flight as flight
import structlog

from fastflight.access.action import Action, RawAction
from fastflight.access.actions import Actions
from fastflight.access.authenticator import Authenticator, Tls
from fastflight.access.authority import Authority
from fastflight.access.identity import ANYBODY, Identity, unproven
from fastflight.concurrency import Shard, Shards
from fastflight.errors import Stopped, Unsupported
from fastflight.runtime.stream import ClosedOnFailure, Stream
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server import answers, exchanges, listing, uploads
from fastflight.server.actions import Cancels, own_actions, types
from fastflight.server.connections import cut
from fastflight.server.deadlines import Deadlines
from fastflight.server.incoming import Incoming
from fastflight.server.middleware import KEY, Authentication, Handshake, Headers, begin
from fastflight.server.sql_commands import NoFlightSql, SqlAnswer, is_flight_sql
from fastflight.server.status import MappedErrors, mapped_plainly
from fastflight.service import Catalog
from fastflight.service.requests import Doing, Request
from fastflight.service.resolve import RequestResolver, ResolvedRequest
from fastflight.service.source import DataSource

if TYPE_CHECKING:
    from fastflight.server.flight_sql import FlightSql

T = TypeVar("T")

log = structlog.get_logger(__name__)

DEFAULT_LOCATION = "grpc://127.0.0.1:8815"
# How long the sources of stopped streams may clean up.
STOP_SECONDS = 5.0
# How long clients of stopped streams have to read the error, before their connections are cut.
NOTICE_SECONDS = 2.0


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves the sources of `catalog` and the `actions` at `location`. Async requests run on `shards`.

    A request for a device runs on the device's shard. `port` is the port that the server listens at. `close` also
    closes the shards. Pass a `registry` to share it with another edge. `state` replaces the actions that report the
    state of this process.

    With an `authenticator`, callers must prove their identity, and `authority` decides what they may have. Without it,
    everybody who reaches the port may do everything. With `tls`, the location must be `grpc+tls`. With `trace` or an
    `authenticator`, the server reads request ids and trace context from the headers of clients. `sql` answers the
    commands of Flight SQL; without it they are refused.
    """

    def __init__(
        self,
        catalog: Catalog,
        actions: Iterable[Action | RawAction] = (),
        *,
        shards: Shards,
        location: str = DEFAULT_LOCATION,
        registry: StreamRegistry | None = None,
        state: Iterable[Action] | None = None,
        authority: Authority | None = None,
        authenticator: Authenticator | None = None,
        tls: Tls | None = None,
        trace: bool = False,
        sql: FlightSql | None = None,
        cancels: Cancels | None = None,
    ) -> None:
        self._catalog = catalog
        self._shards = shards
        self._resolver = RequestResolver(catalog)
        self._registry = registry or StreamRegistry()
        self._authority = authority or Authority()
        self._sql: FlightSql | NoFlightSql = sql or NoFlightSql()
        own = own_actions(self._registry, catalog, shards, self._authority, state, cancels)
        self._actions = Actions([*own, *self._sql.actions(), *actions], self._authority)
        self._authenticator = authenticator
        by_certificate = tls is not None and tls.client_ca is not None
        self._authentication = None if authenticator is None else Authentication(authenticator, by_certificate)
        middleware: dict[str, flight.ServerMiddlewareFactory] | None = None
        if self._authentication is not None:
            middleware = {KEY: self._authentication}
        elif trace:
            middleware = {Headers.NAME: Headers()}
        # The middleware that has the trace of each call.
        self._trace_middleware = None if middleware is None else next(iter(middleware))
        super().__init__(
            location,
            # Arrow reports the name of a client's certificate only if there is no handler.
            auth_handler=None if authenticator is None or by_certificate else Handshake(),
            tls_certificates=None if tls is None else [(tls.chain, tls.key)],
            verify_client=by_certificate,
            root_certificates=None if tls is None else tls.client_ca,
            middleware=middleware,
        )
        self._deadlines = Deadlines(self._registry, self.port)
        self._deadlines.start()

    def list_flights(self, context: flight.ServerCallContext, criteria: bytes) -> list[flight.FlightInfo]:
        with MappedErrors():
            identity = self._identify(context)
            with self._call("list_flights", None, identity, context):
                return list(listing.flights(criteria, self._catalog, self._authority, identity))

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        with MappedErrors():
            return self._describe("get_flight_info", descriptor, context, SqlAnswer.info, listing.described)

    def get_schema(self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        with mapped_plainly():
            schema = self._describe("get_schema", descriptor, context, lambda sql, _: sql.schema, listing.schema)
            return flight.SchemaResult(schema)

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        with MappedErrors():
            identity = self._identify(context)
            if is_flight_sql(ticket.ticket):
                return self._sql_metadata(ticket.ticket, identity, context)
            resolved = self._restrict(identity, "read", self._resolver.of(ticket.ticket))
            stream = self._open(resolved, identity, context)
            with ClosedOnFailure(stream):  # afterwards the answer's generator closes the stream
                mode, read = resolved.source.function("read", resolved.request.mode)
                opening = partial(read, resolved.request)
                if mode == "sync":
                    opened = answers.sync_messages(opening, stream)
                else:
                    opened = answers.async_messages(opening, stream, self._shard_of(resolved.request))
                with answers.closing_on_error(opened[1]):
                    return flight.GeneratorStream(*opened)

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        if is_flight_sql(descriptor.command):
            with self._stream_of("read", descriptor, context) as (_, _, stream):
                self._sql.bind(descriptor.command, stream.identity, Incoming(reader, stream, "do_put"))
            return
        with self._stream_of("write", descriptor, context) as (source, request, stream):
            uploads.take(source, request, stream, reader, writer, self._shard_of(request))

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        with self._stream_of("exchange", descriptor, context) as (source, request, stream):
            exchanges.talk(source, request, stream, reader, writer, self._shard_of(request))

    def list_actions(self, context: flight.ServerCallContext) -> list[flight.ActionType]:
        with MappedErrors():
            self._identify(context)
            return types(self._actions)

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[pa.Buffer]:
        with MappedErrors():
            identity = self._identify(context)
            call = self._actions.call(action.type, action.body.to_pybytes(), identity)
            with contextlib.nullcontext() if call.at_once else self._call(action.type, call.device, identity, context):
                # All results, before the first is sent: a client that does not read must hold no place and no device.
                results = list(call.results())
            for result in results:
                yield pa.py_buffer(result)

    def close(self, timeout: float = 5.0) -> bool:
        """Shut down: streams have `timeout` seconds to end, then are ended with UNAVAILABLE. The shards are closed.

        A client that does not read its answer does not get that error: its connection is cut. Return False if a handler
        still runs after that; it ends with its source, or with the process.
        """
        self._deadlines.close()
        self._registry.drain()
        if not self._registry.wait_empty(timeout):
            self._registry.stop_all()
            if not self._registry.wait_empty(NOTICE_SECONDS):
                log.warning("connections are cut", connections=cut(self.port), streams=self._registry.stats()["open"])
                self._registry.wait_empty(STOP_SECONDS)
        # Flight's shutdown waits for every handler, without a limit.
        stopping = threading.Thread(target=self.shutdown, name="flight-shutdown", daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS)
        if stopping.is_alive():  # a call that is not a stream may wait for its client, so all connections are cut
            log.warning("connections are cut", connections=cut(self.port), streams=0)
            stopping.join(NOTICE_SECONDS)
        self._shards.close()
        return not stopping.is_alive()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _stream_of(
        self, doing: Doing, descriptor: flight.FlightDescriptor, context: flight.ServerCallContext
    ) -> Iterator[tuple[DataSource[Any], Request, Stream]]:
        """Open a stream for a descriptor; it is closed at the end of the block, however that ends."""
        with MappedErrors():
            identity = self._identify(context)
            if is_flight_sql(descriptor.command):
                answer = self._sql.resolve(descriptor.command, identity)
                if answer.read is not None:
                    raise Unsupported("this command of Flight SQL can only be read", hint="Use get_flight_info")
                descriptor = flight.FlightDescriptor.for_command(answer.ticket)
            resolved = self._restrict(identity, doing, listing.resolve(descriptor, self._resolver))
            stream = self._open(resolved, identity, context)
            with ClosedOnFailure(stream):
                yield resolved.source, resolved.request, stream
            stream.close("finished")

    def _describe(
        self,
        name: str,
        descriptor: flight.FlightDescriptor,
        context: flight.ServerCallContext,
        of_sql: Callable[[SqlAnswer, flight.FlightDescriptor], T],
        of_source: Callable[[ResolvedRequest, flight.FlightDescriptor], T],
    ) -> T:
        """Return what `of_source` makes of a request and its descriptor.

        For a command of Flight SQL whose schema is known, that is what `of_sql` makes of its answer.
        """
        identity = self._identify(context)
        self._registry.refuse_while_draining()
        if is_flight_sql(descriptor.command):
            answer = self._sql.resolve(descriptor.command, identity)
            if answer.schema is not None:
                return of_sql(answer, descriptor)
            descriptor = flight.FlightDescriptor.for_command(answer.ticket)
        resolved = self._restrict(identity, "describe", listing.resolve(descriptor, self._resolver))
        with self._call(name, resolved.device, identity, context):
            return of_source(resolved, descriptor)

    def _sql_metadata(
        self, ticket: bytes, identity: Identity, context: flight.ServerCallContext
    ) -> flight.FlightDataStream:
        answer = self._sql.resolve(ticket, identity)
        if answer.read is None:
            raise Unsupported("this command is not a ticket", hint="get_flight_info returns the ticket")
        with self._call("do_get", None, identity, context):
            return flight.RecordBatchStream(answer.read(partial(_check_connected, context)))

    def _identify(self, context: flight.ServerCallContext) -> Identity:
        """Begin a call: give it a request id and identify the caller.

        Raise `Unauthenticated` for a caller without a valid proof; for do_action return `NOBODY` instead.
        """
        begin(context, self._trace_middleware)
        return ANYBODY if self._authentication is None else self._authentication.identity(context)

    def _restrict(self, identity: Identity, doing: Doing, resolved: ResolvedRequest) -> ResolvedRequest:
        """Return the request reduced to what `identity` may have. Raise as `Authority.authorize` does."""
        if identity is ANYBODY:
            return resolved
        return resolved.allowed(self._authority.authorize(identity, resolved.request, doing))

    def _call(
        self, name: str, device: str | None, identity: Identity, context: flight.ServerCallContext
    ) -> AbstractContextManager[None]:
        """Return a context for a call that is no stream, but may take as long as its `device` takes."""
        return self._registry.call(
            name, device, context.is_cancelled, partial(client_name, identity, context), context.peer()
        )

    def _shard_of(self, request: Request) -> Shard:
        return self._shards.of(request.belongs_to)

    def _open(self, resolved: ResolvedRequest, identity: Identity, context: flight.ServerCallContext) -> Stream:
        has_left = context.is_cancelled if identity is ANYBODY else partial(self._has_left, identity, context)
        stream = self._registry.open(resolved, has_left, partial(client_name, identity, context), context.peer())
        if identity is not ANYBODY:
            stream.identity = identity.name
        return stream

    def _has_left(self, identity: Identity, context: flight.ServerCallContext) -> bool:
        """Whether a stream's client has left. Raise `Unauthenticated` if its token was revoked or has expired."""
        if self._authenticator is not None and not self._authenticator.still(identity):
            raise unproven()
        return bool(context.is_cancelled())


def _check_connected(context: flight.ServerCallContext) -> None:
    """Raise `Stopped` if the client has left."""
    if context.is_cancelled():
        raise Stopped("the client has left")


def client_name(identity: Identity, context: flight.ServerCallContext) -> str:
    """Return the client's name for admission and the log: the proven name, else its address without the port."""
    return str(context.peer()).rpartition(":")[0] if identity is ANYBODY else identity.name
