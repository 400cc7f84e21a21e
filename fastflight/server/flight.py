"""The Flight server: each handler decodes, dispatches, adapts and maps the error."""

from __future__ import annotations

import pyarrow.flight as flight

from fastflight.concurrency import Shard
from fastflight.server import answers
from fastflight.server.ledger import Ledger
from fastflight.server.status import mapped
from fastflight.service import Catalog, decode, encode

DEFAULT_LOCATION = "grpc://127.0.0.1:8815"


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves the sources of `catalog` at `location`; async requests run on `shard`."""

    def __init__(self, catalog: Catalog, *, shard: Shard, location: str = DEFAULT_LOCATION) -> None:
        self._catalog = catalog
        self._shard = shard
        self._ledger = Ledger()
        super().__init__(location)

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        with mapped():
            request = decode(ticket.ticket, self._catalog)
            source = self._catalog.source_of(request)
            stream = self._ledger.open(request.type, encode(request), context.is_cancelled)
            try:
                if request.mode == "sync":
                    return answers.sync_answer(source, request, stream)
                return answers.async_answer(source, request, stream, self._shard)
            except BaseException:
                stream.close("failed")
                raise
