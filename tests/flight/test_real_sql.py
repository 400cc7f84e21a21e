"""SQL over a real board that computes no digests: a micro:bit's firmware. Each query reads the file again."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fastflight.client import FastFlightClient
from tests.support.servers import serving

pytestmark = pytest.mark.firmware


def test_a_board_without_digests_sends_its_file_for_each_query(microbit: str) -> None:
    query = 'select sum(n) as total from demo."t.csv"'
    with serving({"demo": microbit}) as server, FastFlightClient(server.location) as client:
        for rows in (3, 5):  # the second content is found although nothing tells that it is another
            client.write("demo", "/t.csv", pa.table({"n": pa.array(range(rows), pa.int64())}))
            assert client.sql(query).to_arrow()["total"].to_pylist() == [sum(range(rows))]
            explained = client.sql(f"explain analyze {query}").to_arrow().to_pylist()
            (said,) = (row["explain_value"] for row in explained if row["explain_key"] == 'demo."t.csv"')
            assert "from: board without digests" in said and f"rows: {rows}," in said
