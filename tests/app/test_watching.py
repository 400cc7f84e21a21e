"""Crashes of a served board, as each edge shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastflight.client import FastFlightClient
from tests.support.servers import serving
from tests.support.waiting import until

MAIN = """
def read(n):
    raise ValueError("bad reading %d" % n)
read(3)
"""


def test_a_program_that_raises_is_a_crash_and_code_of_requests_is_none(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(MAIN)
    with (
        serving({"demo": f"sim:?files={tmp_path}"}, recordings={"folder": tmp_path / "recordings"}) as server,
        FastFlightClient(server.location) as client,
    ):
        crash = until(lambda: client.sql("select * from fastflight.crashes").to_arrow().to_pylist())[0]
        assert (crash["device"], crash["error"]) == ("demo", "ValueError: bad reading 3")
        assert crash["place"] == "main.py:3 in read" and crash["text"].startswith("Traceback")
        with pytest.raises(Exception, match="ZeroDivisionError"):
            list(client.exec("demo", "1/0"))
        client.reset("demo")
        assert until(lambda: client.devices()[0].crashes == crash["count"] + 1)
        assert client.devices()[0].crash == "ValueError: bad reading 3 at main.py:3 in read"
        assert "ZeroDivisionError" not in str(client.sql("select * from fastflight.crashes").to_arrow().to_pylist())
    # The next server knows them.
    with (
        serving({"other": "sim:"}, recordings={"folder": tmp_path / "recordings"}) as server,
        FastFlightClient(server.location) as client,
    ):
        assert client.sql("select count from fastflight.crashes where device = 'demo'").to_arrow().to_pylist()
