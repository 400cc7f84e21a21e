"""The benchmark's table as its readers see it, and a bare pyarrow server that gives the same batches.

A request for the table is `fastflight.service.requests.Mock`. From it follow the bytes that must arrive
(`expected_bytes`) and the pace beyond which no server can give it (`ceiling_mbps`); `read` reads an answer with plain
`pyarrow.flight`, and `check` refuses one that is not whole or took another path than asked.

`BarePeer` is what a Flight server costs without fastflight: the same generator handed to pyarrow, and nothing around
it. Run this file to start one in a process of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pyarrow as pa
import typer
from pyarrow import flight

from fastflight.errors import DataError, ProtocolError
from fastflight.service import Catalog, decode, encode
from fastflight.service.requests import Mock
from fastflight.sources import mock

MIB = 1024 * 1024
# What `check` is given for an answer of the bare peer, which knows no paths.
BARE = "bare"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class WrongPath(ProtocolError):
    """The server took another path than it was asked to: what was measured would be sold under a false name."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What arrived: rows and bytes as counted here; path and trailer as the server says, empty if it says nothing."""

    rows: int
    bytes: int
    path: str
    trailer: Mapping[str, Any]


class BarePeer(flight.FlightServerBase):  # type: ignore[misc]
    """A Flight server made of pyarrow alone.

    It answers with RecordBatchStream, where C++ asks for the next batch: pyarrow's other way, GeneratorStream, runs
    more Python for each batch. From 5,000 rows of 50 columns on they cannot be told apart.
    """

    def __init__(self, location: str) -> None:
        self._catalog = Catalog()
        self._catalog.add(mock.SOURCE)
        super().__init__(location)

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        request = decode(ticket.ticket, self._catalog)
        if not isinstance(request, Mock):
            raise TypeError(f"the catalog holds one type, and this is {type(request).__name__}")
        reading = mock.read(request)
        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(reading.schema, reading.batches))


def expected_bytes(request: Mock) -> int:
    """The bytes of all columns of all batches of the answer."""
    whole, rest = divmod(request.total_rows, request.rows_per_batch)
    size = whole * mock.batch(request.variant, request.rows_per_batch).nbytes if whole else 0
    return int(size + mock.batch(request.variant, rest).nbytes)


def ceiling_mbps(request: Mock) -> float:
    """MiB/s at which the source itself gives the table to one reader; infinite without a delay."""
    if not request.delay_per_row:
        return math.inf
    return expected_bytes(request) / MIB / (request.total_rows * request.delay_per_row)


def read(
    client: flight.FlightClient, request: Mock, opened: Callable[[flight.FlightStreamReader], None] = lambda _: None
) -> Answer:
    """Read the answer to its end. `opened` gets the stream first, so that another thread can cancel it."""
    stream = client.do_get(flight.Ticket(encode(request)))
    opened(stream)
    counter = _Counter()
    trailer: Mapping[str, Any] = {}
    while True:
        try:
            chunk = stream.read_chunk()
        except StopIteration:
            break
        counter.add(chunk.data)
        if chunk.app_metadata is not None:
            trailer = json.loads(chunk.app_metadata.to_pybytes())
    path: bytes = (stream.schema.metadata or {}).get(b"fastflight.path", b"")
    return Answer(counter.rows, counter.bytes, path.decode(), trailer)


def check(request: Mock, answer: Answer, mode: str) -> None:
    """Refuse an answer that is not the whole table (`DataError`), or did not take the path `mode` (`WrongPath`)."""
    if mode != BARE and answer.path != mode:
        raise WrongPath(f"asked for the path {mode!r}, answered on {answer.path!r}", hint="No result of it is kept")
    if answer.rows != request.total_rows:
        raise DataError(f"{answer.rows} rows came of {request.total_rows}")
    if answer.bytes != expected_bytes(request):
        raise DataError(f"{answer.bytes} bytes came of {expected_bytes(request)}")
    if mode != BARE and answer.trailer.get("rows") != answer.rows:
        raise DataError(f"{answer.rows} rows came, the server's trailer says {answer.trailer.get('rows')}")


class _Counter:
    """Rows and bytes of batches.

    `nbytes` is exact, and takes as long for 50 columns as reading 1,000 rows of them. The size of a batch's buffers is
    had for a hundredth of that: a batch with as many rows and as large buffers as an earlier one has as many bytes.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self._known: dict[tuple[int, int], int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        key = batch.num_rows, batch.get_total_buffer_size()
        size = self._known.get(key)
        if size is None:
            size = self._known[key] = batch.nbytes
        self.rows += batch.num_rows
        self.bytes += size


@app.command()
def main(
    server: Annotated[
        str, typer.Option("--server", metavar="URL", help="Where to listen; port 0: a free one.")
    ] = "grpc://127.0.0.1:0",
) -> None:
    """Serve the benchmark's table with pyarrow alone: the peer that the server is compared with."""
    peer = BarePeer(server)
    host = server.rpartition(":")[0]
    typer.echo(f"listening on {host}:{peer.port}; the benchmark's table, by pyarrow alone")
    try:
        peer.serve()
    except KeyboardInterrupt:
        peer.shutdown()


if __name__ == "__main__":
    app()
