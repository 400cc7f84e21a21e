"""A table on real MicroPython by Flight, and what is peculiar to a micro:bit, whose storage and heap are small.

`tests/board` has what is the same on every kind of board.

What each target can do is written down in `docs/targets.md`; the tests keep within it.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from tests.support.refusals import refused

from .conftest import BoardServer, Serve, sha256

pytestmark = pytest.mark.firmware

# About 1 KB as CSV.
TABLE = pa.table(
    {
        "n": pa.array(range(40), pa.int64()),
        "time": pa.array([1_772_323_200_000_000 + 10_000_000 * n for n in range(40)], pa.timestamp("us", tz="UTC")),
        "value": pa.array([None if n % 9 == 5 else n / 8 for n in range(40)], pa.float64()),
    }
)


@pytest.fixture
def small_board(microbit: str, serve: Serve) -> BoardServer:
    return serve(microbit)


@pytest.mark.parametrize(("mode", "size"), [("sync", 2000), ("async", 8000), ("sync", 40_000)])
def test_code_that_does_not_fit(small_board: BoardServer, mode: str, size: int) -> None:
    keys = {"type": "device.file", "device": "demo", "path": "/log.csv", "mode": mode}
    assert small_board.put(TABLE, keys).error is None
    got = small_board.get(type="device.exec", device="demo", code="x = 1\n" * (size // 6), mode=mode)
    assert isinstance(got.error, flight.FlightServerError)
    # Where the smallest of them fails, while it is put together or when it is compiled, a few bytes of heap decide.
    assert re.match(r"demo: the board (has no memory for the code|ran out of memory)", str(got.error))
    assert small_board.table(**keys).equals(TABLE)


def test_actions_of_a_board_without_folders(small_board: BoardServer) -> None:
    keys = {"type": "device.file", "device": "demo", "path": "/log.csv"}
    size = small_board.put(TABLE, keys).last["bytes"]
    (stat,) = small_board.act("file.stat", device="demo", path="/log.csv")
    assert stat == {"path": "/log.csv", "kind": "file", "size": size, "modified": None}
    for name, more in (("file.mkdir", {}), ("file.rename", {"to": "/b.csv"}), ("file.hash", {})):
        with pytest.raises(flight.FlightServerError, match="this board (has no|cannot)"):
            small_board.act(name, device="demo", path="/log.csv", **more)
    assert small_board.table(**keys).equals(TABLE)
    small_board.act("file.remove", device="demo", path="/log.csv")
    with refused(KeyError, code="device.file_missing", where="demo:/log.csv"):
        small_board.act("file.stat", device="demo", path="/log.csv")
    assert small_board.act("device.reset", device="demo")[0]["reset"] == "soft"
    assert small_board.exec("print(1 + 1)") == "2\n"


def test_a_name_that_is_too_long(small_board: BoardServer) -> None:
    keys = {"type": "device.file", "device": "demo", "path": "/" + "n" * 117 + ".csv"}
    put = small_board.put(TABLE.slice(0, 2), keys)
    assert isinstance(put.error, flight.FlightServerError)
    assert "n.csv: the board does not accept the name. Use a shorter name" in str(put.error)
    assert small_board.table(type="device.listing", device="demo").num_rows == 0


def test_a_new_file_may_take_most_of_the_storage(small_board: BoardServer) -> None:
    """With room for one copy and not for two."""
    content = bytes(range(256)) * 46
    keys = {"type": "device.file", "device": "demo", "path": "/big.bin", "format": "raw"}
    raw = pa.table({"offset": pa.array([0], pa.int64()), "data": pa.array([content], pa.binary())})
    assert small_board.put(raw, keys).last["sha256"] == sha256(content)
    full = small_board.put(raw, {**keys, "path": "/another"})
    assert "no space left" in str(full.error)
    rows = small_board.table(type="device.listing", device="demo", path="/").to_pylist()
    assert [(row["path"], row["size"]) for row in rows] == [("/big.bin", len(content))]
    assert "remove the old one first" in str(small_board.put(raw, keys).error)
    assert b"".join(small_board.table(**keys)["data"].to_pylist()) == content
