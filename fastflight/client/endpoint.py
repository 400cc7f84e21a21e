"""`Endpoint`: one part of an answer, which any process can read.

`client.endpoints(request)` returns them all. An endpoint can be pickled, so Dask, Ray and process pools can send it to
a worker. It connects when it is read, and closes this connection at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import flight

from fastflight.client.connection import ServerConnection
from fastflight.client.credentials import Credentials

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One part of an answer. Can be pickled, with the client's credentials, and read as often as needed.

    `location` is the server that gave it. `ticket` and `locations` are those of the Flight endpoint; without
    `locations`, the rows are at `location`. `schema` is that of the whole answer.
    """

    location: str
    ticket: bytes
    locations: tuple[str, ...]
    schema: pa.Schema = field(repr=False, compare=False)
    credentials: Credentials = field(repr=False)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as they arrive."""
        endpoint = flight.FlightEndpoint(self.ticket, list(self.locations))
        with (
            closing(ServerConnection(self.location, credentials=self.credentials)) as connection,
            connection.read_endpoint(endpoint) as stream,
        ):
            yield from stream

    def to_arrow(self) -> pa.Table:
        """Read the rows into one table."""
        return pa.Table.from_batches(self, self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """Read the rows into one DataFrame."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame


def endpoints_of(info: flight.FlightInfo, location: str, credentials: Credentials) -> list[Endpoint]:
    """Return the endpoints of a flight that the server at `location` described."""
    return [
        Endpoint(
            location=location,
            ticket=endpoint.ticket.ticket,
            locations=tuple(each.uri.decode(errors="replace") for each in endpoint.locations),
            schema=info.schema,
            credentials=credentials,
        )
        for endpoint in info.endpoints
    ]
