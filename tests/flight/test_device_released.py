"""Whatever goes wrong with a request, the client gets an error and the device is free for the next request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from fastflight.gateway.backend import RAW
from fastflight.runtime import outgoing
from fastflight.server import answers, exchanges, incoming, uploads
from fastflight.simulator import samples
from fastflight.sources import content, device_exec, device_file, fleet_rows, following, modes, tree_rows
from tests.flight.conftest import BoardServer, board_server, command, simulated

# A request that waits for longer finds a device that nobody gives back.
LEASE_SECONDS = 2.0


class Injected(Exception):
    """Raised by the test at one step of a request."""


READS: dict[str, dict[str, Any]] = {
    "file": {"type": "device.file", "path": "/readings.csv"},
    "listing": {"type": "device.listing", "interrupt": True},
    "tree": {"type": "device.tree", "path": "/"},
    "exec": {"type": "device.exec", "code": "for i in range(3): print(i)"},
    "fleet": {"type": "fleet.file", "path": "/readings.csv"},
    "session": {"type": "device.session", "limit_seconds": 0.2},
}
Steps = list[tuple[Any, str]]
# What a request takes from its device to the first batch, and on to the end. One that does not come by a step succeeds.
OWN_STEPS: dict[str, Steps] = {
    "file": [(device_file.WholeRows, "batches"), (device_file.Spool, "afeed")],
    "listing": [],
    "tree": [(tree_rows.TreeRows, "feed")],
    "exec": [(device_exec.LineRows, "feed")],
    "fleet": [
        (fleet_rows.FleetRows, "begin"),
        (fleet_rows.FleetRows, "labelled"),
    ],
    "session": [(following.Following, "feed")],
}
SYNC_STEPS: Steps = [
    (answers, "Interruptible"),
]
ASYNC_STEPS: Steps = [
    (answers, "memory_of"),
]
STEPS: Steps = [
    (modes, "Reading"),
    (answers, "Outgoing"),
    (outgoing.Outgoing, "_begin"),
    (outgoing.Outgoing, "_messages"),
    (outgoing.Outgoing, "sent"),
    (outgoing.Outgoing, "trailer"),
]
WRITE_STEPS: Steps = [
    (content.FileContent, "start"),
    (tree_rows.TreeContent, "summary"),
    (content.FileContent, "summary"),
    (incoming, "vet_batch"),
    (uploads, "_each"),
    (uploads, "held_bytes"),
    (uploads, "_result"),
]
EXCHANGE_STEPS: Steps = [
    (following.Following, "feed"),
    (outgoing.Outgoing, "_messages"),
    (outgoing.Outgoing, "sent"),
    (incoming, "vet_batch"),
    (exchanges, "held_bytes"),
    (exchanges.threading.Thread, "start"),
    (exchanges, "_write"),
]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Each failure is logged with its traceback, which takes longer to print than the request."""
    with capture_logs():
        yield


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardServer]:
    """A board that is not waited for for long."""
    folder = tmp_path_factory.mktemp("impatient")
    samples.write_samples(str(folder / "board"))
    with board_server({"demo": simulated(folder)}, folder / "board", lease_seconds=LEASE_SECONDS) as board:
        board.act("device.info", device="demo")
        yield board


def disturbed(where: Any, name: str, patch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Have the step raise the first time; says whether a request came by it."""
    step = getattr(where, name)
    raised = False

    def fail(*args: Any, **kwargs: Any) -> Any:
        nonlocal raised
        if raised:
            return step(*args, **kwargs)
        raised = True
        raise Injected(name)

    patch.setattr(where, name, fail)
    return lambda: raised


def check(board: BoardServer, step: str, came_by: bool, error: Exception | None) -> None:
    """The request failed if it came by the step, and the device is free in either case."""
    assert (error is not None) == came_by, (step, error)
    assert board.exec("print(1)") == "1\n", step


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("kind", READS)
def test_a_read_that_fails_at_any_step_gives_the_device_back(impatient: BoardServer, kind: str, mode: str) -> None:
    target = {"devices": "demo"} if kind == "fleet" else {"device": "demo"}
    for where, name in [*OWN_STEPS[kind], *(SYNC_STEPS if mode == "sync" else ASYNC_STEPS), *STEPS]:
        with pytest.MonkeyPatch.context() as patch:
            came_by = disturbed(where, name, patch)
            got = impatient.get(**READS[kind], **target, mode=mode)
        check(impatient, name, came_by(), got.error)


@pytest.mark.parametrize("request_", [{"type": "device.file", "path": "/new.csv"}, {"type": "device.session"}])
def test_a_write_that_fails_at_any_step_gives_the_device_back(
    impatient: BoardServer, mode: str, request_: dict[str, Any]
) -> None:
    rows = pa.table({"data": pa.array([b"x = 1\r\n"], pa.binary())}, schema=RAW)
    table = rows if request_["type"] == "device.session" else pa.table({"a": [1, 2, 3]})
    for where, name in WRITE_STEPS:
        with pytest.MonkeyPatch.context() as patch:
            came_by = disturbed(where, name, patch)
            put = impatient.put(table, {**request_, "device": "demo", "mode": mode})
        check(impatient, name, came_by(), put.error)


def test_an_exchange_that_fails_at_any_step_gives_the_device_back(impatient: BoardServer, mode: str) -> None:
    request = command(type="device.session", device="demo", mode=mode)
    row = pa.record_batch([pa.array([b"\r\n"], pa.binary())], schema=RAW)
    for where, name in EXCHANGE_STEPS:
        with pytest.MonkeyPatch.context() as patch:
            came_by = disturbed(where, name, patch)
            error: Exception | None = None
            try:
                writer, reader = impatient.client.do_exchange(request)
                with writer:
                    writer.begin(RAW)
                    writer.write_batch(row)
                    writer.done_writing()
                    reader.read_all()
            except pa.ArrowException as raised:
                error = raised
        check(impatient, name, came_by(), error)


def interval_stream(unit: int) -> bytes:
    """An IPC stream with one interval column of a unit that pyarrow reads but cannot make: 0 is months, 1 is days."""
    message = bytearray(pa.schema([pa.field("i", pa.month_day_nano_interval())]).serialize().to_pybytes())
    at = message.rindex(b"\x02\x00")  # the unit in the flatbuffer's table `Interval`; 2 is months, days, nanoseconds
    message[at : at + 2] = unit.to_bytes(2, "little")
    return bytes(message) + b"\xff\xff\xff\xff\0\0\0\0"


@pytest.mark.parametrize(("unit", "type_"), [(0, "month_interval"), (1, "day_time_interval")])
def test_a_column_of_a_type_that_pyarrow_cannot_hold_is_refused_by_name(
    board: BoardServer, mode: str, unit: int, type_: str
) -> None:
    (board.folder / "i.arrow").write_bytes(interval_stream(unit))
    read = board.get(type="device.file", device="demo", path="/i.arrow", mode=mode)
    assert isinstance(read.error, pa.ArrowInvalid)
    assert f"column 'i' has the type {type_}" in str(read.error)
    schema = pa.ipc.open_stream(interval_stream(unit)).schema
    request = command(type="device.file", device="demo", path="/j.arrow", mode=mode)
    with pytest.raises(pa.ArrowInvalid, match=f"column 'i' has the type {type_}"):
        writer, acks = board.client.do_put(request, schema)
        writer.done_writing()
        acks.read()
        writer.close()
    assert not (board.folder / "j.arrow").exists()
    assert board.exec("print(1)") == "1\n"


def test_a_view_buffer_of_an_odd_length_is_no_fault(board: BoardServer, mode: str) -> None:
    """A buffer may be longer than its views."""
    views = pa.array([b"\r\n"], pa.binary_view()).buffers()[1].to_pybytes() + b"\0"
    column = pa.Array.from_buffers(pa.binary_view(), 1, [None, pa.py_buffer(views)])
    table = pa.table({"data": column})
    put = board.put(table, {"type": "device.file", "device": "demo", "path": "/v.arrow", "mode": mode})
    assert put.error is None, put.error
    assert board.exec("print(1)") == "1\n"
