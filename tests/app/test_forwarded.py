"""Rows of another server, which this one passes on: those that would reveal its memory are refused."""

from __future__ import annotations

import struct
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from fastflight.app.forwarded import vetted
from fastflight.client.connection import ServerConnection
from fastflight.errors import ProtocolError
from fastflight.service.requests import DeviceFile

SCHEMA = pa.schema([("x", pa.string())])


class HostileServer(flight.FlightServerBase):  # type: ignore[misc]
    """Answers every request with one batch, which was never validated."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._batch = batch

    def do_get(self, context: Any, ticket: Any) -> flight.FlightDataStream:
        return flight.GeneratorStream(SCHEMA, iter([self._batch]))


def unchecked(*offsets: int, content: bytes = b"abcd") -> pa.RecordBatch:
    """Two texts at these offsets of a buffer of four bytes."""
    good = pa.RecordBatch.from_pydict({"x": ["a", "bcd"]}).serialize().to_pybytes()
    sent = good.replace(struct.pack("<3i", 0, 1, 4), struct.pack("<3i", *offsets)).replace(b"abcd", content)
    return pa.ipc.read_record_batch(pa.py_buffer(sent), SCHEMA)


def test_rows_that_are_sound_are_passed_on() -> None:
    with HostileServer(unchecked(0, 1, 4)) as server:
        with closing(ServerConnection(f"grpc://127.0.0.1:{server.port}")) as connection:
            stream = connection.stream(DeviceFile(device="demo", path="/a"))
            batch, note = next(vetted(stream))
            assert batch.to_pydict() == {"x": ["a", "bcd"]} and note is None
            stream.cancel()


@pytest.mark.parametrize(
    "batch", [unchecked(0, 4, 2), unchecked(0, 1, 4, content=b"\xff\xff\xff\xff")], ids=["lengths", "not UTF-8"]
)
def test_rows_of_another_server_are_validated(batch: pa.RecordBatch) -> None:
    with HostileServer(batch) as server:
        with closing(ServerConnection(f"grpc://127.0.0.1:{server.port}")) as connection:
            stream = connection.stream(DeviceFile(device="demo", path="/a"))
            with pytest.raises(ProtocolError, match="corrupt"):
                next(vetted(stream))
            stream.cancel()
