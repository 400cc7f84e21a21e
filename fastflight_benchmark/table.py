"""The benchmark's table, and a bare pyarrow server that serves it.

A request for the table is a `fastflight.Mock`. `expected_bytes` returns how many bytes its answer must have.
`ceiling_mbps` returns the pace of the source, which no server can exceed. `check` refuses an answer that is incomplete,
has other columns, or took another path than requested.

`BarePeer` shows what a Flight server costs without fastflight: it hands the same generator to pyarrow, and does nothing
else. Run this file to start one in a process of its own.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Annotated

import pyarrow as pa
import typer
from pyarrow import flight

from fastflight.errors import DataError
from fastflight.service import Catalog, decode
from fastflight_benchmark import mock
from fastflight_benchmark.contenders import CONTENDERS
from fastflight_benchmark.engine import MIB, WrongPath
from fastflight_benchmark.loading.reading import Answer
from fastflight_benchmark.mock import Mock

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class BarePeer(flight.FlightServerBase):  # type: ignore[misc]
    """A Flight server made of pyarrow alone.

    It answers with RecordBatchStream, in which C++ asks for the next batch. pyarrow's other way, GeneratorStream, runs
    more Python code for each batch. Above 5,000 rows of 50 columns both are equally fast.
    """

    def __init__(self, location: str) -> None:
        self._catalog = Catalog()
        self._catalog.add(mock.SOURCE)
        # Schema and bytes of each table. Only the first flight info computes them.
        self._sizes: dict[tuple[str, int, int], tuple[pa.Schema, int]] = {}
        super().__init__(location)

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        reading = mock.SOURCE.read(self._decode(ticket.ticket))
        batches = chain.from_iterable(reading)
        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(reading.schema, batches))

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        request = self._decode(descriptor.command)
        endpoint = flight.FlightEndpoint(descriptor.command, [])
        key = request.variant, request.rows_per_batch, request.total_rows
        if key not in self._sizes:
            self._sizes[key] = mock.schema(request.variant), expected_bytes(request)
        schema, size = self._sizes[key]
        return flight.FlightInfo(schema, descriptor, [endpoint], request.total_rows, size)

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        return [b"{}"]

    def _decode(self, command: bytes) -> Mock:
        request = decode(command, self._catalog)
        if not isinstance(request, Mock):
            raise TypeError(f"the catalog holds one type, and this is {type(request).__name__}")
        return request


def expected_bytes(request: Mock) -> int:
    """Return the bytes of all columns of all batches of the answer."""
    return mock.SOURCE.describe(request).bytes


def ceiling_mbps(request: Mock) -> float:
    """Return the MiB/s at which the source gives the table to one reader; infinite without a delay."""
    if not request.delay_per_row:
        return math.inf
    return expected_bytes(request) / MIB / (request.total_rows * request.delay_per_row)


def check(request: Mock, answer: Answer, name: str) -> None:
    """Raise `DataError` if the answer is not the whole table, and `WrongPath` if `name` took another path."""
    contender = CONTENDERS[name]
    if answer.path != contender.path:
        raise WrongPath(
            f"{name} was asked for the path {contender.path!r}, and answered on {answer.path!r}",
            hint="Its result is not saved",
        )
    if answer.schema is not None and not answer.schema.equals(mock.schema(request.variant)):
        raise DataError(f"the answer has other columns than the table: {answer.schema.names[:8]}")
    if answer.rows != request.total_rows:
        raise DataError(f"{answer.rows} rows arrived, expected {request.total_rows}")
    if answer.bytes != expected_bytes(request):
        raise DataError(f"{answer.bytes} bytes arrived, expected {expected_bytes(request)}")
    if contender.has_trailer and answer.trailer.get("rows") != answer.rows:
        raise DataError(f"{answer.rows} rows arrived, the server's trailer says {answer.trailer.get('rows')}")


@app.command()
def main(
    server: Annotated[
        str, typer.Option("--server", metavar="URL", help="Where to listen; port 0: a free one.")
    ] = "grpc://127.0.0.1:0",
) -> None:
    """Serve the benchmark's table with pyarrow alone, as a peer for comparison."""
    peer = BarePeer(server)
    host = server.rpartition(":")[0]
    typer.echo(f"listening on {host}:{peer.port}; the benchmark's table, by pyarrow alone")
    try:
        peer.serve()
    except KeyboardInterrupt:
        peer.shutdown()


if __name__ == "__main__":
    app()
