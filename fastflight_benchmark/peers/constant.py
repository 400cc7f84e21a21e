"""A bare pyarrow server that has made all its answers in advance: what small requests cost in Flight itself.

Its answers are as large as fastflight's answers to `REQUEST`. It decodes and checks nothing; with a token, it checks
that each request carries it. With `--parse` it reads the JSON of each ticket and descriptor and answers with as many
rows as they ask for, which is the least that a server of more than one table does. Run this file to start one in a
process of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from pyarrow import flight

from fastflight import Mock
from fastflight.service import encode
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


class Accepted(flight.ServerMiddleware):  # type: ignore[misc]
    """The middleware of a call whose token was accepted."""


class TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses a request without the one token that there is: the least work for this in pyarrow."""

    NAME = "token_check"

    def __init__(self, token: str) -> None:
        self._wanted = f"Bearer {token}"

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, Sequence[str]]) -> Accepted:
        if headers.get("authorization", [""])[0] != self._wanted:
            raise flight.FlightUnauthenticatedError("no token, or a wrong one")
        return Accepted()


class ConstantServer(flight.FlightServerBase):  # type: ignore[misc]
    """Gives the same answer to all tickets, the same to all descriptors, and the same to all actions."""

    def __init__(self, location: str, token: str = "", pair: tuple[bytes, bytes] | None = None) -> None:
        """`token`: each request must carry it. `pair`: certificate and key, both PEM, for TLS."""
        self._table = table()
        self._info = info()
        self._results = [HEALTH]
        self._asks = bool(token)
        middleware = {TokenCheck.NAME: TokenCheck(token)} if token else None
        super().__init__(location, middleware=middleware, tls_certificates=[pair] if pair else None)

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        self._ask(context)
        return flight.RecordBatchStream(self._table)

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        self._ask(context)
        return self._info

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        return self._results

    def _ask(self, context: flight.ServerCallContext) -> None:
        if self._asks:
            context.get_middleware(TokenCheck.NAME)


class ParsingServer(ConstantServer):
    """Parses each request. Its table has no more rows than the answer to `REQUEST`."""

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        wanted = json.loads(ticket.ticket)
        return flight.RecordBatchStream(self._table.slice(0, wanted["total_rows"]))

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        rows = json.loads(descriptor.command)["total_rows"]
        endpoints = [flight.FlightEndpoint(descriptor.command, [])]
        return flight.FlightInfo(self._table.schema, descriptor, endpoints, rows, self._table.slice(0, rows).nbytes)


@app.command()
def main(
    server: Annotated[
        str, typer.Option("--server", metavar="URL", help="Where to listen; port 0: a free one.")
    ] = "grpc://127.0.0.1:0",
    token_file: Annotated[Path | None, typer.Option(help="The token that each request must show.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM), for TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    parse: Annotated[bool, typer.Option("--parse", help="Read what each request asks for.")] = False,
) -> None:
    """Answer every request with the same: the peer that small requests are compared with."""
    token = token_file.read_text().strip() if token_file else ""
    pair = (tls_cert.read_bytes(), tls_key.read_bytes()) if tls_cert and tls_key else None
    peer = (ParsingServer if parse else ConstantServer)(server, token, pair)
    typer.echo(f"listening on {server.rpartition(':')[0]}:{peer.port}; the same answer to all, by pyarrow alone")
    try:
        peer.serve()
    except KeyboardInterrupt:
        peer.shutdown()


if __name__ == "__main__":
    app()
