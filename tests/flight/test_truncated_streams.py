"""A stream that is cancelled or broken is an error to its client: never fewer rows with status OK."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from structlog.testing import capture_logs

from tests.flight.conftest import BoardServer, Serve, board_server, command, simulated

LINES = 40_000
# More than a client, the server and the system between them hold: who reads a part of it has not been sent the rest.
MANY = 400_000
REQUESTS: dict[str, dict[str, Any]] = {
    "mock": {"type": "mock", "rows_per_batch": 1000, "total_rows": MANY},
    "file": {"type": "device.file", "device": "demo", "path": "/long.csv", "batch_rows": 500},
    "fleet": {"type": "fleet.file", "devices": "demo", "path": "/long.csv", "batch_rows": 500},
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Failures are what this is about."""
    with capture_logs():
        yield


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def url_of_long(folder: Path) -> str:
    """A board with a file that takes a while."""
    (folder / "board").mkdir()
    rows = "".join(f"{number},{number * number % 9973}\n" for number in range(LINES))
    (folder / "board" / "long.csv").write_text("n,square\n" + rows)
    return simulated(folder)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardServer]:
    folder = tmp_path_factory.mktemp("long")
    with board_server({"demo": url_of_long(folder)}, folder / "board") as board:
        board.act("device.info", device="demo")
        yield board


def read(
    board: BoardServer, request: dict[str, Any], batches: int, disturb: Callable[[flight.FlightInfo], object]
) -> None:
    """Read so many batches, disturb the stream, and read the rest: all rows, or an error, or rows told as missing."""
    info = board.client.get_flight_info(command(**request))
    rows, trailer, error = 0, None, None
    try:
        reader = board.client.do_get(info.endpoints[0].ticket)
        for number in range(1 << 30):
            if number == batches:
                disturb(info)
            chunk = reader.read_chunk()
            rows += chunk.data.num_rows if chunk.data is not None else 0
            if chunk.app_metadata is not None:
                trailer = json.loads(chunk.app_metadata.to_pybytes())
    except StopIteration:
        pass
    except pa.ArrowException as raised:
        error = raised.with_traceback(None)  # which would keep the reader, and so the call, open
    if error is not None:
        assert trailer is None or trailer.get("failed"), "an answer that was whole has failed"
        return
    assert trailer is not None, f"{rows} rows, and status OK"
    assert trailer.get("failed") or trailer["rows"] == rows == (MANY if request["type"] == "mock" else LINES)
    assert request["type"] != "mock", "it ended before it was cancelled"


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("batches", [0, 1, 15])
def test_a_stream_that_is_cancelled_is_an_error(long: BoardServer, kind: str, mode: str, batches: int) -> None:
    def cancel(info: flight.FlightInfo) -> None:
        list(long.client.do_action(flight.Action("CancelFlightInfo", info.serialize())))

    read(long, {**REQUESTS[kind], "mode": mode}, batches, cancel)


@pytest.mark.parametrize("kind", ["file", "fleet"])
@pytest.mark.parametrize("batches", [0, 15])
def test_a_stream_whose_line_is_closed_is_an_error(
    serve: Serve, tmp_path: Path, kind: str, mode: str, batches: int
) -> None:
    board = serve(url_of_long(tmp_path))
    read(board, {**REQUESTS[kind], "mode": mode}, batches, lambda info: board.inventory.device("demo").close())
