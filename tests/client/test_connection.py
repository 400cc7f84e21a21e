"""A connection whose other end has gone without a word: who reads or writes by it is told, in the end."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import flight

from fastflight.client import FastFlightClient, connection
from fastflight.client.failure import typed, typed_errors
from fastflight.errors import TransportClosed
from tests.client.handmade_server import HandmadeServer
from tests.support.chaos import ChaosProxy


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[FastFlightClient]:
    """A client that has been answered, and whose bytes are swallowed from now on. It asks in a second."""
    sooner = {"grpc.keepalive_time_ms": 1000, "grpc.http2.ping_timeout_ms": 500}
    options = [*{**dict(connection.CHANNEL_OPTIONS), **sooner}.items()]
    monkeypatch.setattr(connection, "CHANNEL_OPTIONS", options)
    with HandmadeServer() as server, ChaosProxy("127.0.0.1", server.port) as proxy:
        with FastFlightClient(f"grpc://127.0.0.1:{proxy.port}") as client:
            assert client.read("demo", "/readings.csv").to_arrow().num_rows == 10
            proxy.strike("silence:out@0")
            yield client


def test_a_reader_of_a_half_open_connection_is_told(silent: FastFlightClient) -> None:
    with pytest.raises(TransportClosed, match="the server went away"):
        silent.read("demo", "/readings.csv")


def test_a_writer_to_a_half_open_connection_is_told(silent: FastFlightClient) -> None:
    with pytest.raises(TransportClosed, match="the server went away"):
        silent.write("demo", "/t.csv", pa.table({"a": [1]}))


def test_it_asks_no_more_often_than_servers_bear() -> None:
    # gRPC's servers hang up on who asks more often than every five minutes while they say nothing themselves.
    options = dict(connection.CHANNEL_OPTIONS)
    assert options["grpc.keepalive_time_ms"] > 300_000


@pytest.mark.parametrize(
    ("why", "says"),
    [(" (Unwrap failed (TSI_DATA_CORRUPTED))", "data was damaged on its way"), ("", "the connection was lost")],
)
def test_a_connection_that_ended_under_a_stream_is_told_as_such(why: str, says: str) -> None:
    # As gRPC has it where TLS finds a flipped bit in the middle of an answer.
    message = f"Flight RPC failed with message: Stream removed{why}. gRPC client debug context: UNKNOWN:Stream removed"
    error = typed(flight.FlightServerError(message), "grpc+tls://127.0.0.1:1")
    assert type(error) is TransportClosed and says in str(error)


def test_a_connection_that_is_closed_while_it_is_used_is_no_wrong_request() -> None:
    client = flight.connect("grpc://127.0.0.1:1")
    client.close()
    with pytest.raises(TransportClosed, match="closed meanwhile"), typed_errors("grpc://127.0.0.1:1"):
        client.do_get(flight.Ticket(b""))
