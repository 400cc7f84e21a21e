"""A bare pyarrow server with prepared answers. It shows what small requests cost in Flight itself.

Its answers are as large as fastflight's answers to `REQUEST`. It decodes and checks nothing, except that each request
carries the token, if there is one. With `--parse` it reads the JSON of each ticket and descriptor and answers with the
requested number of rows: a server with more than one table has to do at least this. Run this file to start one in a
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
# The action with the smallest answer.
ACTION = "health"
HEALTH = b'{"status":"serving"}'

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def table() -> pa.Table:
    """Return the answer to every ticket."""
    return pa.Table.from_batches([mock.batch(REQUEST.variant, REQUEST.total_rows)])


def info() -> flight.FlightInfo:
    """Return the answer to every descriptor."""
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
    """Refuses a request without the token. pyarrow has no cheaper way to do this."""

    NAME = "token_check"

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}"

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, Sequence[str]]) -> Accepted:
        if headers.get("authorization", [""])[0] != self._expected:
            raise flight.FlightUnauthenticatedError("no token, or a wrong one")
        return Accepted()


class ConstantServer(flight.FlightServerBase):  # type: ignore[misc]
    """Gives one answer to all tickets, one to all descriptors, and one to all actions."""

    def __init__(self, location: str, token: str = "", pair: tuple[bytes, bytes] | None = None) -> None:
        """`token`: each request must carry it. `pair`: certificate and key, both PEM, for TLS."""
        self._table = table()
        self._info = info()
        self._results = [HEALTH]
        self._checks_token = bool(token)
        middleware = {TokenCheck.NAME: TokenCheck(token)} if token else None
        super().__init__(location, middleware=middleware, tls_certificates=[pair] if pair else None)

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        self._require_token(context)
        return flight.RecordBatchStream(self._table)

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        self._require_token(context)
        return self._info

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        return self._results

    def _require_token(self, context: flight.ServerCallContext) -> None:
        if self._checks_token:
            context.get_middleware(TokenCheck.NAME)


class ParsingServer(ConstantServer):
    """Parses each request. Its table has no more rows than the answer to `REQUEST`."""

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        rows = json.loads(ticket.ticket)["total_rows"]
        return flight.RecordBatchStream(self._table.slice(0, rows))

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
    token_file: Annotated[Path | None, typer.Option(help="The token that each request must carry.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM), for TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    parse: Annotated[bool, typer.Option("--parse", help="Parse the JSON of each request.")] = False,
) -> None:
    """Give the same answer to every request, as a peer for small requests."""
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
