"""The Flight server: each handler decodes, dispatches, adapts and maps the error.

It serves from construction on. `close` ends it in bounded time: no new work, then a time for running streams to end by
themselves, then UNAVAILABLE for the rest.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import structlog

from fastflight.access.action import Action, RawAction
from fastflight.access.actions import Actions
from fastflight.access.authenticator import Authenticator, Tls
from fastflight.access.authority import Authority
from fastflight.access.identity import ANYBODY, Identity, unproven
from fastflight.concurrency import Shard, Shards
from fastflight.runtime.stream import Stream
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server import answers, exchanges, listing, uploads
from fastflight.server.actions import own_actions, types
from fastflight.server.connections import cut
from fastflight.server.deadlines import Deadlines
from fastflight.server.descriptions import Allowing, Descriptions
from fastflight.server.interruption import InContext
from fastflight.server.middleware import KEY, Authentication, Handshake, Headers, begin
from fastflight.server.status import mapped, mapped_plainly
from fastflight.service import Catalog
from fastflight.service.requests import Doing, Request
from fastflight.service.resolve import RequestResolver, ResolvedRequest
from fastflight.service.source import Source

log = structlog.get_logger(__name__)

DEFAULT_LOCATION = "grpc://127.0.0.1:8815"
# What streams that were told to stop get for it: their sources' clean-up.
STOP_SECONDS = 5.0
# What their clients get to be told, before it is taken that they do not listen.
TOLD_SECONDS = 2.0


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves the sources of `catalog` at `location`, and `actions`; async requests run on `shards`.

    A request for a device runs on the device's shard. `port` is the one it listens at. `close` also closes the shards.
    `registry` is given where another edge shares it, and `state`, the actions by which a server tells of itself, where
    there is more to tell than of this process.

    With an `authenticator` every call is made by somebody that it knows, who gets what `authority` lets them have;
    without one, by anybody who reaches the port. With `tls` the location is one of `grpc+tls`. With `trace`, or an
    `authenticator`, it takes request ids and trace context from clients.
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
    ) -> None:
        self._catalog = catalog
        self._shards = shards
        self._asking = RequestResolver(catalog)
        self._descriptions = Descriptions(catalog, self._asking)
        self._registry = registry or StreamRegistry()
        self._authority = authority or Authority()
        own = own_actions(self._registry, catalog, shards, self._authority, state)
        self._actions = Actions([*own, *actions], self._authority)
        self._authenticator = authenticator
        by_certificate = tls is not None and tls.client_ca is not None
        self._authentication = None if authenticator is None else Authentication(authenticator, by_certificate)
        middleware: dict[str, flight.ServerMiddlewareFactory] | None = None
        if self._authentication is not None:
            middleware = {KEY: self._authentication}
        elif trace:
            middleware = {Headers.NAME: Headers()}
        # The one that has the trace of each call.
        self._read_by = None if middleware is None else next(iter(middleware))
        super().__init__(
            location,
            # Arrow tells the name of a client's certificate only where there is no handler.
            auth_handler=None if authenticator is None or by_certificate else Handshake(),
            tls_certificates=None if tls is None else [(tls.chain, tls.key)],
            verify_client=by_certificate,
            root_certificates=None if tls is None else tls.client_ca,
            middleware=middleware,
        )
        self._deadlines = Deadlines(self._registry, self.port)
        self._deadlines.start()

    def list_flights(self, context: flight.ServerCallContext, criteria: bytes) -> Iterator[flight.FlightInfo]:
        with mapped():
            who = self._who(context)
            with self._call("list_flights", None, who, context):
                yield from InContext(listing.flights(criteria, self._catalog, self._authority, who))

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        with mapped():
            who = self._who(context)
            self._registry.refuse_while_draining()
            calling = partial(self._call, "get_flight_info", who=who, context=context)
            return self._descriptions.info(descriptor, calling, self._allow(who))

    def get_schema(self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        with mapped_plainly():
            who = self._who(context)
            self._registry.refuse_while_draining()
            calling = partial(self._call, "get_schema", who=who, context=context)
            return self._descriptions.schema(descriptor, calling, self._allow(who))

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        with mapped():
            who = self._who(context)
            asked = self._allowed(who, "read", self._asking.of(ticket.ticket))
            stream = self._open(asked, who, context)
            with stream.failing():  # once it is answered, the answer closes it
                if asked.request.mode == "sync":
                    opened = answers.sync_answer(stream)
                else:
                    opened = answers.async_answer(stream, self._shard_of(asked.request))
                with answers.closing_on_error(opened[1]):
                    return flight.GeneratorStream(*opened)

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        with self._asked("write", descriptor, context) as (source, request, stream):
            uploads.take(source, request, stream, reader, writer, self._shard_of(request))

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        with self._asked("exchange", descriptor, context) as (source, request, stream):
            exchanges.talk(source, request, stream, reader, writer, self._shard_of(request))

    def list_actions(self, context: flight.ServerCallContext) -> list[flight.ActionType]:
        with mapped():
            self._who(context)
            return types(self._actions)

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[pa.Buffer]:
        with mapped():
            who = self._who(context)
            call = self._actions.call(action.type, action.body.to_pybytes(), who)
            with contextlib.nullcontext() if call.at_once else self._call(action.type, call.device, who, context):
                # All of them: a client that takes none has neither a place for that nor a device.
                results = list(call.results())
            for result in results:
                yield pa.py_buffer(result)

    def close(self, timeout: float = 5.0) -> bool:
        """Shut down: streams have `timeout` seconds to end, then are ended with UNAVAILABLE. The shards are closed.

        A client that does not read its answer cannot be told so: its connection is cut. False when a handler is still
        there after that; it ends with its source, or with the process.
        """
        self._deadlines.close()
        self._registry.drain()
        if not self._registry.wait_empty(timeout):
            self._registry.stop_all()
            if not self._registry.wait_empty(TOLD_SECONDS):
                log.warning("connections are cut", connections=cut(self.port), streams=self._registry.stats()["open"])
                self._registry.wait_empty(STOP_SECONDS)
        # Flight's shutdown waits for every handler, without a limit.
        stopping = threading.Thread(target=self.shutdown, name="flight-shutdown", daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS)
        if stopping.is_alive():  # non-stream calls are not tracked, so all connections are cut
            log.warning("connections are cut", connections=cut(self.port), streams=0)
            stopping.join(TOLD_SECONDS)
        self._shards.close()
        return not stopping.is_alive()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _asked(
        self, doing: Doing, descriptor: flight.FlightDescriptor, context: flight.ServerCallContext
    ) -> Iterator[tuple[Source[Any], Request, Stream]]:
        """What a descriptor asks for, and the stream that it opens: over at the end of the block, however that ends."""
        with mapped():
            who = self._who(context)
            asked = self._allowed(who, doing, listing.asked_of(descriptor, self._asking))
            stream = self._open(asked, who, context)
            with stream.failing():
                yield asked.source, asked.request, stream
            stream.close("finished")

    def _who(self, context: flight.ServerCallContext) -> Identity:
        """Begin a call: give it a request id and identify the caller. `Unauthenticated`, but `NOBODY` for an action."""
        begin(context, self._read_by)
        return ANYBODY if self._authentication is None else self._authentication.identity(context)

    def _allowed(self, who: Identity, doing: Doing, asked: ResolvedRequest) -> ResolvedRequest:
        """What of a request `who` may have."""
        return asked if who is ANYBODY else asked.allowed(self._authority.authorize(who, asked.request, doing))

    def _allow(self, who: Identity) -> Allowing | None:
        """`_allowed` for descriptions; None for a caller without restrictions."""
        return None if who is ANYBODY else partial(self._allowed, who, "describe")

    def _call(
        self, name: str, device: str | None, who: Identity, context: flight.ServerCallContext
    ) -> AbstractContextManager[None]:
        """Around a call on `device` that is no stream, and may take as long as that does."""
        return self._registry.call(name, device, context.is_cancelled, partial(name_of, who, context), context.peer())

    def _shard_of(self, request: Request) -> Shard:
        return self._shards.of(request.belongs_to)

    def _open(self, asked: ResolvedRequest, who: Identity, context: flight.ServerCallContext) -> Stream:
        left = context.is_cancelled if who is ANYBODY else partial(self._left, who, context)
        stream = self._registry.open(asked, left, partial(name_of, who, context), context.peer())
        if who is not ANYBODY:
            stream.identity = who.name
        return stream

    def _left(self, who: Identity, context: flight.ServerCallContext) -> bool:
        """Whether a stream's client has gone. Raises `Unauthenticated` when what it began with holds no more."""
        if self._authenticator is not None and not self._authenticator.still(who):
            raise unproven()
        return bool(context.is_cancelled())


def name_of(who: Identity, context: flight.ServerCallContext) -> str:
    """Who asks, to admission: by name where that was proven, else the address without its port."""
    return str(context.peer()).rpartition(":")[0] if who is ANYBODY else who.name
