"""Readers at once: what they count, what they call a failure, and what ends everything."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import flight

from fastflight.cli.compose import open_server
from fastflight.cli.settings import ServeSettings
from fastflight.service.requests import Mock
from fastflight_benchmark.burst import Burst, Outcome, Readers
from fastflight_benchmark.mock_data_service import MIB, WrongPath

FREE_PORT = "grpc://127.0.0.1:0"
TABLE = Mock(rows_per_batch=100, total_rows=1000, mode="async")


def test_throughput_is_of_all_readers_from_the_first_request_to_the_last_byte() -> None:
    burst = Burst([Outcome(10.0, 12.0, 3 * MIB), Outcome(11.0, 14.0, 5 * MIB)])

    assert burst.seconds == 4.0
    assert burst.throughput_mbps == 2.0
    assert [one.latency_seconds for one in burst.outcomes] == [2.0, 3.0]


def test_what_failed_carries_no_bytes() -> None:
    assert Burst([Outcome(0.0, 2.0, 4 * MIB), Outcome(0.0, 1.0, error="gone")]).throughput_mbps == 2.0


def test_all_readers_get_the_whole_table() -> None:
    with open_server(ServeSettings(FREE_PORT)) as server, Readers(3) as readers:
        first = readers.burst(server.location, TABLE, "async", 2)
        second = readers.burst(server.location, TABLE.model_copy(update={"mode": "sync"}), "sync", 3)

    assert [(one.bytes, one.error) for one in first.outcomes] == [(200_000, "")] * 2
    assert [(one.bytes, one.error) for one in second.outcomes] == [(200_000, "")] * 3


def test_a_server_that_is_gone_is_a_failure_of_each_request() -> None:
    with open_server(ServeSettings(FREE_PORT)) as server:
        location = server.location
    with Readers(2) as readers:
        burst = readers.burst(location, TABLE, "async", 2)

    assert [one.bytes for one in burst.outcomes] == [0, 0]
    assert all(one.error.startswith("FlightUnavailableError") for one in burst.outcomes)


class Short(flight.FlightServerBase):  # type: ignore[misc]
    """Ends after one row with status OK."""

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        return flight.RecordBatchStream(pa.table({"a": [1]}, metadata={"fastflight.path": "async"}))


def test_a_short_answer_is_a_failure() -> None:
    with Short(FREE_PORT) as server, Readers(1) as readers:
        burst = readers.burst(f"grpc://127.0.0.1:{server.port}", TABLE, "async", 1)

    assert burst.outcomes[0].error.startswith("DataError: 1 rows came of 1000")


def test_the_wrong_path_ends_the_run() -> None:
    with (
        open_server(ServeSettings(FREE_PORT)) as server,
        pytest.raises(WrongPath),
        Readers(2) as readers,
    ):
        readers.burst(server.location, TABLE.model_copy(update={"mode": "sync"}), "async", 2)
