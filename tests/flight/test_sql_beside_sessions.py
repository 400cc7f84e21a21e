"""Queries that reach their limits, beside a live session: it goes on, and no row of it is missing."""

from __future__ import annotations

import json
import threading

import pyarrow.flight as flight
import pytest

from fastflight.client import FastFlightClient
from fastflight.errors import QueryLimit
from tests.support.servers import serving

LIMITS = {"memory": 64 << 20, "seconds": 0.5, "rows": 1000, "queries": 2}
# By what the error says. On a busy computer the time may be over before the memory is.
HOSTILE = {
    "0.5 seconds": "select count(*) from range(10000000000000) where random() < 0",
    "bytes of memory|0.5 seconds": "select array_agg(range) from range(100000000)",
    "1,000 rows": "select * from range(1001)",
}
# The longest wait for rows of the session: a deadline for a broken one, far more than a working one takes.
PATIENCE_SECONDS = 60.0


def test_a_live_session_goes_on_beside_queries_that_reach_their_limits() -> None:
    numbers: list[int] = []
    came = threading.Event()

    def follow(reader: flight.FlightStreamReader) -> None:
        try:
            for chunk in reader:
                if chunk.data is not None and chunk.data.num_rows:
                    numbers.extend(chunk.data["seq"].to_pylist())
                    came.set()
        except flight.FlightCancelledError:
            pass  # the end of the test

    def wait_for_more() -> None:
        came.clear()
        assert came.wait(PATIENCE_SECONDS), "the session has stopped"

    with serving({"demo": "sim:?telemetry=50"}, sql=LIMITS) as server:
        with flight.connect(server.location) as client, FastFlightClient(server.location) as queries:
            reader = client.do_get(flight.Ticket(json.dumps({"type": "device.session", "device": "demo"}).encode()))
            following = threading.Thread(target=follow, args=(reader,))
            following.start()
            try:
                for limit, query in HOSTILE.items():
                    wait_for_more()
                    with pytest.raises(QueryLimit, match=limit):
                        queries.sql(query).to_arrow()
                wait_for_more()
            finally:
                reader.cancel()
                following.join()
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
