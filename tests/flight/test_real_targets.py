"""Read, write, list and execute by Flight on real MicroPython: a micro:bit, the VM in WebAssembly, the unix port.

`tests/board` has what is the same on every kind of board.

What each target can do is written down in `docs/targets.md`; the tests keep within it.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.simulator import samples
from tests.support.refusals import refused

from .conftest import BoardServer, Serve, command, sha256, ticket

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


@pytest.fixture
def virtual_machine(webassembly_without_raw_paste: str, serve: Serve) -> BoardServer:
    return serve(webassembly_without_raw_paste)


@pytest.fixture(params=["microbit", "webassembly_without_raw_paste", "unix_port"])
def real(request: pytest.FixtureRequest, serve: Serve) -> BoardServer:
    """Each of the targets."""
    return serve(request.getfixturevalue(request.param))


def test_a_table_there_and_back(real: BoardServer, mode: str) -> None:
    keys = {"type": "device.file", "device": "demo", "path": "/t.csv", "mode": mode}
    table = TABLE.slice(0, 12)
    put = real.put(table, keys, chunk=6)
    assert put.error is None
    assert [ack["rows"] for ack in put.acks] == [6, 12, 12]
    got = real.get(**keys)
    assert got.error is None and got.trailer is not None and got.schema is not None
    assert got.table.equals(table)
    assert got.schema.metadata[b"fastflight.path"].decode() == mode
    assert (got.trailer["bytes"], got.trailer["sha256"]) == (put.last["bytes"], put.last["sha256"])


def test_a_file_is_replaced_and_listed(real: BoardServer, mode: str) -> None:
    keys = {"type": "device.file", "device": "demo", "path": "/log.csv", "mode": mode}
    assert real.put(TABLE, keys).error is None
    size = real.put(TABLE.slice(0, 10), keys).last["bytes"]
    assert real.table(**keys).equals(TABLE.slice(0, 10))
    rows = real.table(type="device.listing", device="demo", path="/", mode=mode).to_pylist()
    assert [(row["kind"], row["size"]) for row in rows if row["path"] == "/log.csv"] == [("file", size)]
    # Nothing that a write leaves behind.
    assert not [row for row in rows if "fastflight" in row["path"]]
    assert ["demo", "/log.csv"] in [
        [part.decode() for part in info.descriptor.path] for info in real.client.list_flights(b"demo/log.csv")
    ]


def test_records_and_bytes(real: BoardServer, mode: str) -> None:
    record = {"format": "packed", "record": samples.RECORD.format, "columns": ["ms", "temperature", "light", "flags"]}
    keys = {"type": "device.file", "device": "demo", "path": "/log.bin", "mode": mode}
    content = samples.log()[: 90 * samples.RECORD.size]
    raw = pa.table({"offset": pa.array([0], pa.int64()), "data": pa.array([content], pa.binary())})
    assert real.put(raw, {**keys, "format": "raw"}).last["sha256"] == sha256(content)
    rows = list(zip(*real.table(**keys, **record).to_pydict().values(), strict=True))
    assert rows == list(samples.RECORD.iter_unpack(content))


def test_a_file_that_is_not_there(real: BoardServer, mode: str) -> None:
    keys = {"type": "device.file", "device": "demo", "path": "/none.csv", "mode": mode}
    got = real.get(**keys)
    assert isinstance(got.error, KeyError)
    assert "demo:/none.csv: no such file" in str(got.error)
    with refused(KeyError, code="device.file_missing", where="demo:/none.csv"):
        real.client.get_flight_info(command(**keys))
    assert real.exec("print(1 + 1)") == "2\n"


def test_a_reader_that_leaves_frees_the_device(real: BoardServer, mode: str) -> None:
    assert real.put(TABLE, {"type": "device.file", "device": "demo", "path": "/kept.csv"}).error is None
    code = "for i in range(2000):\n print('line', i)"
    reader = real.client.do_get(ticket(type="device.exec", device="demo", code=code, mode=mode))
    while not reader.read_chunk().data.num_rows:
        pass
    reader.cancel()
    assert real.exec("print('free')") == "free\n"
    # The same board as before, not one that was started anew.
    assert real.table(type="device.file", device="demo", path="/kept.csv").equals(TABLE)


def test_code_that_hangs(real: BoardServer, mode: str) -> None:
    code = "print('before')\nwhile True: pass"
    got = real.get(type="device.exec", device="demo", code=code, timeout=0.5, mode=mode)
    assert got.table["text"].to_pylist() == ["before"]
    assert isinstance(got.error, flight.FlightTimedOutError)
    # Nothing interrupts the virtual machine.
    stopped = real.exec("import sys; print(sys.platform)") != "webassembly\n"
    said = "the code wrote nothing for 0.5 s and " + ("was stopped" if stopped else "cannot be stopped")
    assert f"demo: {said}" in str(got.error)
    # The micro:bit was interrupted. Nothing interrupts the virtual machine: it was ended, and another one started.
    assert real.exec("print('next')") == "next\n"


def test_a_program_that_runs_is_left_alone(small_board: BoardServer, mode: str) -> None:
    reader = small_board.client.do_get(
        ticket(type="device.exec", device="demo", code="print('here')\nwhile True: pass", mode=mode)
    )
    while not reader.read_chunk().data.num_rows:
        pass
    (device,) = small_board.act("devices")
    assert device["holder"] == f"a device.exec request ({mode})"
    reader.cancel()
    assert small_board.table(type="device.listing", device="demo", mode=mode).num_rows == 0


@pytest.mark.parametrize("size", [2000, 8000, 40_000])
def test_code_that_does_not_fit(small_board: BoardServer, mode: str, size: int) -> None:
    keys = {"type": "device.file", "device": "demo", "path": "/log.csv", "mode": mode}
    assert small_board.put(TABLE, keys).error is None
    got = small_board.get(type="device.exec", device="demo", code="x = 1\n" * (size // 6), mode=mode)
    assert isinstance(got.error, flight.FlightServerError)
    # Where the smallest of them fails, while it is put together or when it is compiled, a few bytes of heap decide.
    assert re.match(r"demo: the board (has no memory for the code|ran out of memory)", str(got.error))
    assert small_board.table(**keys).equals(TABLE)


def test_a_board_that_never_comes_back_from_raw_paste_is_opened_anew(webassembly: str, serve: Serve, mode: str) -> None:
    board = serve(webassembly)
    keys = {"type": "device.file", "device": "demo", "path": "/t.csv", "mode": mode}
    assert board.put(TABLE, keys).error is None
    assert board.table(**keys).equals(TABLE)
    assert board.act("device.info", device="demo")[0]["raw_paste"] is False
    listed = board.table(type="device.listing", device="demo", mode=mode)
    assert "/t.csv" in listed["path"].to_pylist()
    assert board.table(type="device.exec", device="demo", code="print('x')", mode=mode)["text"].to_pylist() == ["x"]


def test_info(real: BoardServer) -> None:
    (info,) = real.act("device.info", device="demo")
    assert info["raw_paste"] is (info["platform"] == "linux")
    known = info["platform"] != "microbit"
    assert (info["storage_bytes"] is not None, info["storage_free"] is not None) == (known, known)


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


def test_no_room_for_a_copy_keeps_the_old_file(small_board: BoardServer, mode: str) -> None:
    keys = {"type": "device.file", "device": "demo", "path": "/log.csv", "mode": mode}
    assert small_board.put(TABLE, keys).error is None
    # It fits once, and this board replaces a file by copying.
    large = pa.table({"offset": [0], "data": [b"x" * 9000]})
    put = small_board.put(large, {**keys, "format": "raw"})
    assert isinstance(put.error, flight.FlightServerError)
    assert "demo:/log.csv: no space left on the board. Remove files" in str(put.error)
    assert small_board.table(**keys).equals(TABLE)
    assert small_board.table(type="device.listing", device="demo")["path"].to_pylist() == ["/log.csv"]
    # As large a file as fits twice, over the old one.
    fits = pa.table({"offset": [0], "data": [b"x" * 6500]})
    assert small_board.put(fits, {**keys, "format": "raw"}).error is None
    assert small_board.table(type="device.listing", device="demo")["size"].to_pylist() == [6500]


def test_a_name_that_is_too_long(small_board: BoardServer, mode: str) -> None:
    keys = {"type": "device.file", "device": "demo", "path": "/" + "n" * 117 + ".csv", "mode": mode}
    put = small_board.put(TABLE.slice(0, 2), keys)
    assert isinstance(put.error, flight.FlightServerError)
    assert "n.csv: the board does not accept the name. Use a shorter name" in str(put.error)
    assert small_board.table(type="device.listing", device="demo", mode=mode).num_rows == 0


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
