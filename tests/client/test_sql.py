"""`sql` of both clients: a stream of the result, parameters in order and by name, and errors with their class."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from fastflight.client import FastFlightClient
from fastflight.errors import RequestError
from tests.support.servers import serving

COUNT = 'select count(*) as n from demo."readings.csv"'


def test_a_query_is_read_as_a_file_is() -> None:
    with serving() as server, FastFlightClient(server.location) as client:
        assert client.sql(COUNT).to_arrow().to_pylist() == [{"n": 10_000}]
        with client.sql('select * from demo."readings.csv"') as stream:
            assert stream.schema.names[:2] == ["time", "temperature"]
            assert next(iter(stream)).num_rows
        values = [datetime(2026, 3, 1, 0, 1, tzinfo=UTC), Decimal("17.9")]
        (some,) = client.sql(f"{COUNT} where time < ? and temperature > ?", values).to_arrow()["n"].to_pylist()
        named = {"before": values[0], "above": values[1]}
        found = client.sql(f"{COUNT} where time < $before and temperature > $above", named)
        assert found.to_pandas()["n"].tolist() == [some] and 0 < some < 6
        with pytest.raises(RequestError, match="only reads"):
            client.sql("drop table demo.x")
        with pytest.raises(RequestError, match="bytes"):
            client.sql("select ?", [b"x"])
