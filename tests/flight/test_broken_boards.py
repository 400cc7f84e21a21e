"""Boards that break off, fall silent or are busy, by plain Flight: a typed error, and a server that lives on.

After each, the same server answers the next request, and the file that was there is whole.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.flight as flight
import pytest

from fastflight.device.unread_input import BUDGET_BYTES
from fastflight.simulator import samples

from .conftest import BoardServer, Serve, command, simulated, ticket

FILE = {"type": "device.file", "device": "demo"}
OLD = b"n\n1\n2\n3\n"
TABLE = pa.table({"n": pa.array(range(5000), pa.int64())})
# What no message may hold: paths of the host, and parts of a traceback of ours.
TELLTALE = ("Traceback", '.py"', "site-packages", str(Path(__file__).parents[2]), str(Path.home()), "pytest-of")

# How each status reaches a client of pyarrow.
UNAVAILABLE = flight.FlightUnavailableError
TIMED_OUT = flight.FlightTimedOutError
INTERNAL = flight.FlightInternalError


def refused(error: BaseException | None, kind: type[Exception] | tuple[type[Exception], ...], *said: str) -> None:
    """Check an error's class and text."""
    assert isinstance(error, kind), repr(error)
    text = str(error)
    for part in said:
        assert part in text
    for part in TELLTALE:
        assert part not in text


@pytest.fixture
def board(board: BoardServer) -> Iterator[BoardServer]:
    """The simulated board; at the end it must still answer, and hold `/old.csv` as it was."""
    (board.folder / "old.csv").write_bytes(OLD)
    yield board
    assert board.table(**FILE, path="/old.csv")["n"].to_pylist() == [1, 2, 3]
    assert (board.folder / "old.csv").read_bytes() == OLD
    assert not list(board.folder.rglob("*fastflight*"))


READ_FAULTS = {
    "exit-after-tx": (UNAVAILABLE, ("demo",)),
    "reset-after-tx": (INTERNAL, ("demo", "the board was reset", "power supply")),
}


@pytest.fixture
def faulty(serve: Serve, tmp_path: Path) -> Callable[[str], BoardServer]:
    """A simulated board with a fault, and an old file of 10,000 readings."""

    def start(options: str) -> BoardServer:
        samples.write_samples(str(tmp_path / "board"))
        (tmp_path / "board" / "old.csv").write_bytes(OLD)
        return serve(simulated(tmp_path, options))

    return start


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("mode", "fault", "after"), [("async", "exit-after-tx", 400_000), ("sync", "reset-after-tx", 20_000)]
)
def test_a_board_that_breaks_off_while_it_is_read(
    faulty: Callable[[str], BoardServer], mode: str, fault: str, after: int
) -> None:
    board = faulty(f"fault={fault}={after}")
    whole = pa.Table.from_pandas(pa.csv.read_csv(board.folder / "readings.csv").to_pandas(), preserve_index=False)
    keys = {**FILE, "path": "/readings.csv", "format": "csv", "schema": {"time": "string", "battery": "float64"}}
    got = board.get(**keys, mode=mode, batch_rows=500)
    kind, said = READ_FAULTS[fault]
    refused(got.error, kind, *said)
    assert got.trailer is None
    assert got.schema is not None or after < 50_000
    if got.schema is not None:
        rows = got.table.num_rows
        assert 0 <= rows < 10_000
        assert rows or after < 400_000
        assert got.table["battery"].to_pylist() == whole["battery"].to_pylist()[:rows]
    _lives_on(board)


def _lives_on(board: BoardServer) -> None:
    """The next request is answered, and nothing on the board has changed."""
    assert board.act("health") == [{"status": "serving"}]
    assert board.exec("print('next')") == "next\n"
    assert (board.folder / "readings.csv").read_bytes() == samples.readings()
    assert (board.folder / "old.csv").read_bytes() == OLD


def test_a_board_that_breaks_off_while_it_is_described(faulty: Callable[[str], BoardServer]) -> None:
    # Past what opening the board takes, and before the end of a look into a file.
    board = faulty("fault=unplug-after-rx=1680")
    kinds = (UNAVAILABLE, INTERNAL)
    with pytest.raises(kinds) as raised:
        board.client.get_flight_info(flight.FlightDescriptor.for_path("demo", "/readings.csv"))
    refused(raised.value, kinds, "demo")
    assert board.act("file.stat", device="demo", path="/old.csv")[0]["size"] == len(OLD)
    _lives_on(board)


def test_a_board_that_is_reset_before_it_answers_is_asked_again(faulty: Callable[[str], BoardServer]) -> None:
    board = faulty("fault=reset-after-rx=1730")
    request = command(**FILE, path="/readings.csv", infer="sample")
    info = board.client.get_flight_info(request)
    assert info.total_bytes == len(samples.readings())
    _lives_on(board)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent board is given up after half a second instead of 10 or 15."""
    monkeypatch.setattr("fastflight.device.transfer.download.STALL_SECONDS", 0.5)
    monkeypatch.setattr("fastflight.device.transfer.staging.WRITE_SECONDS", 0.5)
    monkeypatch.setattr("fastflight.device.transfer.link.NETWORK_SECONDS", 0.5)
    monkeypatch.setattr("fastflight.protocol.raw_paste.WINDOW_SECONDS", 0.5)
    monkeypatch.setattr("fastflight.protocol.raw_repl.ANSWER_SECONDS", 0.5)


@pytest.mark.usefixtures("impatient")
def test_a_board_that_falls_silent_while_it_is_read(faulty: Callable[[str], BoardServer]) -> None:
    # It gets no further than the code that would read.
    board = faulty("fault=stall-after-rx=1530")
    got = board.get(**FILE, path="/readings.csv", infer="sample")
    refused(got.error, TIMED_OUT, "demo: the program on the board does not end", "plugging it in again")
    _lives_on(board)


LARGE = pa.table({"n": pa.array(range(50_000), pa.int64())})
# `tests/device/test_faults.py` breaks off at more places, but has no board that stalls.
WRITE_FAULTS = {
    ("sync", "unplug-after-rx"): (UNAVAILABLE,),
    ("async", "stall-after-rx"): (TIMED_OUT, UNAVAILABLE),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("mode", "fault"), WRITE_FAULTS)
def test_a_board_that_breaks_off_while_it_is_written(
    faulty: Callable[[str], BoardServer], mode: str, fault: str
) -> None:
    # In the middle of the content: if it is not compressed, it takes some 2,000 answers.
    board = faulty(f"fault={fault}=12000")
    put = board.put(LARGE, {**FILE, "path": "/old.csv", "mode": mode, "deflate": False}, chunk=1000)
    refused(put.error, WRITE_FAULTS[mode, fault], "demo")
    assert not put.acks or "done" not in put.last
    _lives_on(board)


def test_a_busy_device_says_who_has_it(serve: Serve, tmp_path: Path) -> None:
    board = serve(simulated(tmp_path), lease_seconds=0.2)
    stay = "import time\nprint('here')\nwhile True: time.sleep(0.01)"
    reader = board.client.do_get(ticket(type="device.exec", device="demo", code=stay, mode="async"))
    while not reader.read_chunk().data.num_rows:
        pass
    for second in ("sync", "async"):
        got = board.get(**FILE, path="/readings.csv", mode=second)
        refused(got.error, UNAVAILABLE, "demo: in use by a device.exec request (async)", "Wait until it is done")
        put = board.put(TABLE, {**FILE, "path": "/readings.csv", "mode": second})
        refused(put.error, UNAVAILABLE, "in use by")
    with pytest.raises(flight.FlightUnavailableError) as raised:
        board.act("file.stat", device="demo", path="/readings.csv")
    refused(raised.value, UNAVAILABLE, "in use by")
    assert json.loads(raised.value.extra_info)["holder"] == "a device.exec request (async)"
    (device,) = board.act("devices")
    assert device["holder"] == "a device.exec request (async)"
    reader.cancel()


def test_what_is_asked_of_a_busy_board_reaches_it_hardly_ever(serve: Serve, tmp_path: Path) -> None:
    samples.write_samples(str(tmp_path / "board"))
    (tmp_path / "board" / "main.py").write_text("import time\nwhile True:\n print('row')\n time.sleep(0.01)\n")
    board = serve(simulated(tmp_path))
    sent = board.inventory.device("demo").tap.byte_counts
    asked = {
        "list_flights": lambda: list(board.client.list_flights()),
        "list_flights of a device": lambda: list(board.client.list_flights(b"demo/*")),
        "devices": lambda: board.act("devices"),
        "device.info": lambda: board.act("device.info", device="demo"),
        "file.stat": lambda: board.act("file.stat", device="demo", path="/log.bin"),
        "info": lambda: board.client.get_flight_info(flight.FlightDescriptor.for_path("demo", "log.csv")),
        "listing": lambda: board.get(type="device.listing", device="demo"),
    }
    reached = []
    for ask in (asked["list_flights"], *asked.values(), *asked.values(), *asked.values()):
        with contextlib.suppress(flight.FlightUnavailableError):
            ask()
        reached.append(sent["tx"])
    # The first finds out that nobody answers. The others use what is known, but for a byte after each pause.
    assert 0 < reached[-1] <= BUDGET_BYTES, reached
    assert len(set(reached)) <= 3, reached


def test_code_that_hangs(board: BoardServer, mode: str) -> None:
    got = board.get(type="device.exec", device="demo", code="print('a')\nwhile True: pass", timeout=1, mode=mode)
    refused(got.error, TIMED_OUT, "demo")
    assert got.table["text"].to_pylist() == ["a"]


def test_a_device_that_is_not_there(serve: Serve, mode: str) -> None:
    board = serve("serial:///dev/no-such-port")
    refused(board.get(**FILE, path="/x.csv", mode=mode).error, UNAVAILABLE, "demo: cannot open the serial port")
    refused(board.put(TABLE, {**FILE, "path": "/x.csv", "mode": mode}).error, UNAVAILABLE, "demo")
    # It is listed as a device, that can be listened to, without files.
    listed = {json.loads(info.descriptor.command)["type"] for info in board.client.list_flights(b"demo/*")}
    assert listed == {"device.listing", "device.session"}
    assert board.act("devices")[0]["open"] is False
