"""A schema that fits no row: others go on meanwhile, and the client hears of it early."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

from fastflight.client import FastFlightClient
from fastflight.concurrency import Shards
from fastflight.errors import IncompleteWarning
from fastflight.simulator import samples
from fastflight.sources.misfits import NOTE_ROWS

from .conftest import SOON, BoardServer, board_server, ticket
from .session_messages import SESSION, messages

WRONG = {"path": "/readings.csv", "schema": {"temperature": "timestamp[s]"}}
RIGHT = {"path": "/readings.csv", "schema": {"temperature": "double"}}


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardServer]:
    """Two boards of one shard: `demo`, and another that prints telemetry."""
    tmp_path = tmp_path_factory.mktemp("boards")
    samples.write_samples(str(tmp_path))
    with ExitStack() as stack:
        shards = stack.enter_context(Shards(2))
        other = next(f"other-{number}" for number in range(99) if shards.of(f"other-{number}") is shards.of("demo"))
        urls = {"demo": f"sim:?files={tmp_path}&telemetry=0", other: "sim:?telemetry=50"}
        started = stack.enter_context(board_server(urls, tmp_path))
        for name in urls:
            started.act("device.info", device=name)  # opens its line
        yield started


def other(boards: BoardServer) -> str:
    return next(name for name in boards.inventory.names() if name != "demo")


def notes(boards: BoardServer, **request: Any) -> list[dict[str, Any]]:
    """All messages beside the rows; the last is the trailer."""
    return [told for _, told in messages(boards.client.do_get(ticket(**request))) if told]


def test_reading_rows_leaves_the_loop_to_other_boards(boards: BoardServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """While pyarrow reads a block of rows, the session of another board of the same shard goes on."""
    session = messages(boards.client.do_get(ticket(**{**SESSION, "device": other(boards), "limit_rows": 10_000})))
    next(session)
    reading, gone_on = threading.Event(), threading.Event()
    read_csv = pyarrow.csv.read_csv

    def patient(*arguments: Any) -> Any:
        reading.set()
        assert gone_on.wait(SOON)
        return read_csv(*arguments)

    monkeypatch.setattr(pyarrow.csv, "read_csv", patient)
    rows: list[pa.Table] = []
    request = {"type": "device.file", "device": "demo", "mode": "async", **RIGHT}
    asking = threading.Thread(target=lambda: rows.append(boards.table(**request)))
    asking.start()
    try:
        assert reading.wait(SOON)
        for _ in range(5):
            next(session)
    finally:
        gone_on.set()
        asking.join()
    assert rows[0].num_rows == 10_000


def test_cells_that_do_not_fit_are_null_and_counted(boards: BoardServer) -> None:
    (trailer,) = notes(boards, type="device.file", device="demo", **WRONG)
    first = samples.readings().split(b"\n")[1].decode().split(",")[1]
    empty = len(re.findall(rb"(?m)^[^,]*,,", samples.readings()))  # where the sensor did not answer: null
    assert (trailer["rows"], trailer["rejected"]) == (10_000, 0)
    assert trailer["null_cells"] == {"temperature": 10_000 - empty}
    assert trailer["null_cell_reasons"] == {"temperature": f"column 'temperature': {first!r} is not timestamp[s]"}


def test_of_a_fleet_the_device_is_named(boards: BoardServer) -> None:
    (boards.folder / "torn.csv").write_text("a,b\n" + "1\n" * (2 * NOTE_ROWS))
    request = {"type": "fleet.file", "devices": "demo", "path": "/torn.csv", "schema": {"a": "int64"}}
    early, _ = notes(boards, **request)
    assert (early["device"], early["mostly_rejected"]["rows"] >= NOTE_ROWS) == ("demo", True)


def test_a_session_whose_lines_do_not_fit_says_so(boards: BoardServer) -> None:
    request = {**SESSION, "device": other(boards), "format": "csv", "schema": {"ms": "int64"}}
    stream = messages(boards.client.do_get(ticket(**request)))
    told = next(told for _, told in stream if told)
    assert told["mostly_rejected"]["rows"] > 1
    assert told["mostly_rejected"]["fitting"] == 0
    assert sorted(told["mostly_rejected"]) == ["fitting", "reason", "rows", "seq"]
    assert "the row has 4 cells, the header has 1" in told["mostly_rejected"]["reason"]


def test_a_short_file_of_which_nothing_fits_warns_at_its_end(boards: BoardServer) -> None:
    (boards.folder / "short.jsonl").write_text(json.dumps({"t": 1.5}) + "\n")
    with FastFlightClient(boards.location) as client:
        with pytest.warns(IncompleteWarning, match="column 't': 1.5 is not bool"):
            frame = client.read("demo", "/short.jsonl", schema={"t": "bool"}).to_pandas()
    assert frame["t"].isna().tolist() == [True]
