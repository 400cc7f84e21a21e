"""Text files without a schema, over Flight and SQL: all of the file decides, and what could not be read is told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.client import AsyncFastFlightClient, FastFlightClient
from fastflight.device import Inventory
from fastflight.errors import IncompleteWarning
from fastflight.service.choices import Mode
from fastflight.service.requests import FILE_SUMMARY, DeviceFile, TextKeys
from fastflight.sources import DeviceFiles, FileCache

from .conftest import BoardServer, board_server

# Whole numbers in the first 30 kB, one fraction at the end; the header again; a line that is none.
LOG = b"t,temp\n" + b"".join(b"%d,20\n" % t for t in range(4000)) + b"t,temp\n4000,20.5\n1,2,3\n4001,21\n"


@pytest.fixture
def log(board: BoardServer) -> BoardServer:
    (board.folder / "log.csv").write_bytes(LOG)
    return board


@pytest.mark.parametrize("columns", [None, ["t"], ["temp"]])
def test_the_rows_are_the_same_whatever_columns_are_read(log: BoardServer, columns: list[str] | None) -> None:
    got = log.get(type="device.file", device="demo", path="/log.csv", columns=columns)
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


@pytest.mark.parametrize(("how", "mode", "keeps"), [("sync", "async", True), ("async", "sync", False)])
def test_a_client_that_waits_for_a_whole_file_learns_how_far_it_is(
    tmp_path: Path, mode: Mode, how: str, keeps: bool
) -> None:
    """A file that the server does not keep is read once, and only its size is known before."""
    (tmp_path / "board").mkdir()
    (tmp_path / "board" / "log.csv").write_bytes(LOG)
    # About a second for the file.
    url = f"sim:?files={tmp_path / 'board'}&telemetry=0&baud=230400"
    seen: list[tuple[int, int, int | None]] = []

    def report(rows: int, size: int, total: int | None) -> None:
        seen.append((rows, size, total))

    async def aread(location: str) -> pa.Table:
        async with AsyncFastFlightClient(location) as client:
            async with await client.read("demo", "/log.csv", mode=mode, progress=report) as stream:
                return await stream.to_arrow()

    cache = FileCache(tmp_path / "cache", max_bytes=10_000_000 if keeps else 0)
    with board_server({"demo": url}, tmp_path / "board", cache) as board, pytest.warns(IncompleteWarning):
        if how == "async":
            table = asyncio.run(aread(board.location))
        else:
            with FastFlightClient(board.location) as client:
                table = client.read("demo", "/log.csv", mode=mode, progress=report).to_arrow()
    assert table.num_rows == 4002
    before = [each for each in seen if not each[0]]
    assert before[0] == (0, 0, len(LOG)) and all(total == len(LOG) for _, _, total in before)
    sizes = [size for _, size, _ in before]
    # It never goes back. The same number may come twice.
    assert sizes == sorted(sizes) and (len({*sizes}) > 2 if keeps else sizes == [0])
    assert seen[-1][0] == 4002


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
        rows = pa.Table.from_batches([batch for batches in reading for batch in batches], reading.schema)
    assert rows.column(1).to_pylist() == temperatures
