"""Text files without a schema, over Flight and SQL: all of the file decides, and what could not be read is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.client import FastFlightClient
from fastflight.device import Inventory
from fastflight.errors import IncompleteWarning
from fastflight.service.requests import FILE_SUMMARY, DeviceFile, TextKeys
from fastflight.sources import DeviceFiles

from .conftest import BoardServer

# Whole numbers in the first 30 kB, one fraction at the end; the header again; a line that is none.
LOG = b"t,temp\n" + b"".join(b"%d,20\n" % t for t in range(4000)) + b"t,temp\n4000,20.5\n1,2,3\n4001,21\n"


@pytest.fixture
def log(board: BoardServer) -> BoardServer:
    (board.folder / "log.csv").write_bytes(LOG)
    return board


@pytest.mark.parametrize("columns", [None, ["t"], ["temp"]])
def test_the_rows_are_the_same_whatever_columns_are_read(
    log: BoardServer, mode: str, columns: list[str] | None
) -> None:
    got = log.get(type="device.file", device="demo", path="/log.csv", mode=mode, columns=columns)
    assert (got.error, got.table.num_rows) == (None, 4002)
    types = {"t": pa.int64(), "temp": pa.float64()}
    assert {field.name: field.type for field in got.table.schema} == {name: types[name] for name in columns or types}
    assert got.trailer is not None
    assert {key: got.trailer[key] for key in ("rows", "rejected", "headers_skipped")} == {
        "rows": 4002,
        "rejected": 1,
        "headers_skipped": 1,
    }
    assert got.schema is not None
    summary = json.loads(got.schema.metadata[FILE_SUMMARY])
    assert (summary["rejected"], summary["headers_skipped"]) == (1, 1)


def test_what_is_described_is_what_is_read(log: BoardServer) -> None:
    descriptor = flight.FlightDescriptor.for_path("demo", "/log.csv")
    schema = log.table(type="device.file", device="demo", path="/log.csv").schema
    assert log.client.get_schema(descriptor).schema == schema
    assert log.client.get_flight_info(descriptor).schema == schema


def test_the_client_warns_of_a_single_line(log: BoardServer) -> None:
    with FastFlightClient(log.location) as client:
        with pytest.warns(IncompleteWarning, match="1 row rejected .*; 1 repeated header skipped"):
            assert client.read("demo", "/log.csv").to_arrow().num_rows == 4002


@pytest.mark.parametrize(
    ("said", "temperatures"),
    [({}, [2.5, 3.5]), ({"decimal": "."}, ["2,5", "3,5"]), ({"skip_rows": 1, "header": "none"}, [2.5, 3.5])],
    ids=["settings", "request", "both"],
)
def test_settings_say_how_a_file_is_written_unless_the_request_does(
    tmp_path: Path, said: dict[str, Any], temperatures: list[Any]
) -> None:
    (tmp_path / "log-1.csv").write_text("t|temp\n1|2,5\n2|3,5\n")
    settings = {"/log-1.csv": TextKeys(delimiter="|", decimal=",")}
    with Inventory({"demo": f"sim:?files={tmp_path}&telemetry=0"}) as inventory:
        files = DeviceFiles(inventory, keys_of=lambda device, path: settings.get(path))
        reading = files.read(DeviceFile(device="demo", path="/log-1.csv", **said))
        rows = pa.Table.from_batches([batch for lot in reading.all_lots() for batch in lot], reading.schema)
    assert rows.column(1).to_pylist() == temperatures
