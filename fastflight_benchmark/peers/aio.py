"""A Flight service on `grpc.aio`, without Arrow's server. It shows the cost of gRPC on one event loop.

A generic gRPC server on one asyncio loop answers Flight's methods with bytes. It encodes each batch of the table once,
as the FlightData message that Arrow would send, and sends the same message every time. It runs fastflight's async
source, so a delay is the same sleep. With `--constant`, all answers are those of `peers.constant`, encoded in advance.
The same Flight clients read it. It is a reference and not a complete server: it does not decode small requests, and has
no limits, statistics or errors.

Run this file to start one in a process of its own.
"""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import AsyncIterator
from typing import Annotated, Any

import grpc  # type: ignore[import-untyped]
import pyarrow as pa
import typer
from pyarrow import flight

from fastflight import Mock
from fastflight.service import Catalog, decode
from fastflight.sources import mock
from fastflight_benchmark.peers import constant, wire

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

# How long running calls may go on after SIGTERM.
GRACE_SECONDS = 0.5


@functools.lru_cache(8)
def encoded(variant: str, rows: int) -> bytes:
    """Return the encoded message of a batch of the table."""
    return wire.frame(mock.batch(variant, rows))


class Table:
    """The benchmark's table, at the pace of its source."""

    def __init__(self) -> None:
        self._catalog = Catalog()
        self._catalog.add(mock.SOURCE)

    async def do_get(self, ticket: bytes, context: Any) -> AsyncIterator[bytes]:
        request = decode(flight.Ticket.deserialize(ticket).ticket, self._catalog)
        if not isinstance(request, Mock):
            raise TypeError(f"the catalog holds one type, and this is {type(request).__name__}")
        reading = await mock.aread(request)
        yield wire.frame(reading.schema)
        async for lot in reading.all_lots():
            for batch in lot:
                assert isinstance(batch, pa.RecordBatch)
                yield encoded(request.variant, batch.num_rows)

    def handlers(self) -> dict[str, grpc.RpcMethodHandler]:
        return {"DoGet": grpc.unary_stream_rpc_method_handler(self.do_get)}


class Constant:
    """The answers of `peers.constant`."""

    def __init__(self) -> None:
        table = constant.table()
        self._frames = [wire.frame(table.schema), *(wire.frame(batch) for batch in table.to_batches())]
        self._info: bytes = constant.info().serialize()
        self._result = flight.Result(constant.HEALTH).serialize()

    async def do_get(self, ticket: bytes, context: Any) -> AsyncIterator[bytes]:
        for frame in self._frames:
            yield frame

    async def get_flight_info(self, descriptor: bytes, context: Any) -> bytes:
        return self._info

    async def do_action(self, action: bytes, context: Any) -> AsyncIterator[bytes]:
        yield self._result

    def handlers(self) -> dict[str, grpc.RpcMethodHandler]:
        return {
            "DoGet": grpc.unary_stream_rpc_method_handler(self.do_get),
            "GetFlightInfo": grpc.unary_unary_rpc_method_handler(self.get_flight_info),
            "DoAction": grpc.unary_stream_rpc_method_handler(self.do_action),
        }


@app.command()
def main(
    server: Annotated[
        str, typer.Option("--server", metavar="URL", help="Where to listen; port 0: a free one.")
    ] = "grpc://127.0.0.1:0",
    same_answer: Annotated[
        bool, typer.Option("--constant", help="Give the same small answer to all requests.")
    ] = False,
) -> None:
    """Serve the benchmark's table by grpc.aio, with batches that were encoded in advance."""
    asyncio.run(_serve(server, Constant() if same_answer else Table()))


async def _serve(location: str, service: Table | Constant) -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(wire.SERVICE, service.handlers()),))
    scheme, _, address = location.partition("://")
    port = server.add_insecure_port(address)
    await server.start()
    typer.echo(f"listening on {scheme}://{address.rpartition(':')[0]}:{port}; encoded answers, by grpc.aio alone")
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await server.stop(GRACE_SECONDS)


if __name__ == "__main__":
    app()
