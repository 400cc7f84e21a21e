"""A bare pyarrow server that does nothing: each request has an answer that was made before the first one came.

What small requests cost in Flight itself. Its answers are as large as fastflight's to `REQUEST`; it decodes nothing,
checks nothing, keeps no account. Run this file to start one in a process of its own.
"""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import typer
from pyarrow import flight

from fastflight.service import encode
from fastflight.service.requests import Mock
from fastflight.sources import mock

# The small table: ten rows of four columns.
REQUEST = Mock(total_rows=10, rows_per_batch=10, variant="simple")
# The action that answers at once and says the least.
ACTION = "health"
HEALTH = b'{"status":"serving"}'

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def table() -> pa.Table:
    """The answer to every ticket."""
    return pa.Table.from_batches([mock.batch(REQUEST.variant, REQUEST.total_rows)])


def info() -> flight.FlightInfo:
    """The answer to every descriptor."""
    ticket = encode(REQUEST)
    return flight.FlightInfo(
        mock.schema(REQUEST.variant),
        flight.FlightDescriptor.for_command(ticket),
        [flight.FlightEndpoint(ticket, [])],
        REQUEST.total_rows,
        table().nbytes,
    )


class ConstantServer(flight.FlightServerBase):  # type: ignore[misc]
    """Answers all tickets, descriptors and actions alike."""

    def __init__(self, location: str) -> None:
        self._table = table()
        self._info = info()
        self._results = [HEALTH]
        super().__init__(location)

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        return flight.RecordBatchStream(self._table)

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        return self._info

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        return self._results


@app.command()
def main(
    server: Annotated[
        str, typer.Option("--server", metavar="URL", help="Where to listen; port 0: a free one.")
    ] = "grpc://127.0.0.1:0",
) -> None:
    """Answer every request with the same: the peer that small requests are compared with."""
    peer = ConstantServer(server)
    typer.echo(f"listening on {server.rpartition(':')[0]}:{peer.port}; the same answer to all, by pyarrow alone")
    try:
        peer.serve()
    except KeyboardInterrupt:
        peer.shutdown()


if __name__ == "__main__":
    app()
