"""A front with two workers, as its clients see it; and what becomes of the processes."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import structlog.testing
from pyarrow import flight

from fastflight.bridge import Ports
from fastflight.cli.compose import RunningServer, open_server
from fastflight.cli.settings import BridgeSettings, ServeSettings, settings_of
from fastflight.cli.workers import pool, share
from fastflight.client import FastFlightClient
from fastflight.concurrency import Governor
from fastflight.errors import FastFlightError, RequestError, TransportClosed, TransportError
from fastflight.service.requests import DeviceFile, Mock, Mode

BOTH: tuple[Mode, ...] = ("async", "sync")
TABLE = pa.table({"a": [1, 2, 3]})
# For processes that have to import all of it on a busy machine.
SECONDS = 120.0
# Of two workers, each has one of these.
DEVICES = {
    next(name for name in map("d{}".format, count()) if share.owner_of(name, 2) == number): "sim:" for number in (0, 1)
}
FIRST, SECOND = DEVICES


@pytest.fixture(scope="module")
def front() -> Iterator[RunningServer]:
    with open_server(ServeSettings("grpc://127.0.0.1:0", DEVICES, shards=1, workers=2)) as running:
        with FastFlightClient(running.location) as client:
            for name in DEVICES:
                client.info(name)  # connects to its worker, to which the front stays connected
        yield running


@pytest.fixture(scope="module")
def direct() -> Iterator[str]:
    """A server of one process, with devices of the same names."""
    with open_server(ServeSettings("grpc://127.0.0.1:0", DEVICES)) as running:
        with FastFlightClient(running.location) as client:
            for name in DEVICES:
                client.info(name)
        yield running.location


@pytest.fixture
def client(front: RunningServer) -> Iterator[FastFlightClient]:
    with FastFlightClient(front.location) as client:
        yield client


def until(true: Callable[[], object]) -> None:
    """Wait for what a process brings about."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_there(pid: int) -> bool:
    """Whether a process is, and has not ended unnoticed."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def had(listener: socket.socket, port: int) -> bool:
    """Whether a port is free now; `listener` has it then."""
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        return False
    listener.listen()
    return True


def test_every_device_has_one_owner() -> None:
    names = [f"board-{number}" for number in range(100)]
    bridges = {names[0]: BridgeSettings(Ports(rfc2217=0))}
    shares = share.shares(ServeSettings(devices=dict.fromkeys(names, "sim:"), bridges=bridges, shards=4, workers=3))
    assert sorted(name for each in shares for name in each.devices) == sorted(names)
    assert [set(each.bridges) for each in shares if names[0] in each.devices] == [{names[0]}]
    assert {(each.workers, each.shards, each.location) for each in shares} == {(1, 1, "grpc://127.0.0.1:0")}
    assert [share.decode(share.encode(each)) for each in shares] == shares


def test_the_owner_is_the_same_in_every_process() -> None:
    assert [share.owner_of(name, 4) for name in ("demo", "weather", "lab-1", "lab-2")] == [0, 2, 0, 2]


def test_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="--workers 2: what is recorded is kept by one process"):
        settings_of("grpc://127.0.0.1:0", ["a=sim:"], None, recordings=tmp_path, record=["a"], workers=2)


def test_a_worker_that_cannot_start_says_why() -> None:
    with pytest.raises(RequestError, match="serail"):
        open_server(ServeSettings("grpc://127.0.0.1:0", {"a": "serail:///dev/ttyACM0"}, workers=2))


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.parametrize("device", DEVICES)
def test_a_file_is_read_and_written_through_the_front(client: FastFlightClient, device: str, mode: Mode) -> None:
    written = client.write(device, "/t.csv", TABLE, mode=mode)
    stream = client.read(device, "/t.csv", mode=mode)
    assert stream.to_arrow().replace_schema_metadata(None).equals(TABLE)
    assert (stream.path, stream.summary["rows"], stream.summary["bytes"]) == (mode, 3, written.bytes)
    assert stream.summary["sha256"] == written.sha256 == client.hash(device, "/t.csv").digest
    client.remove(device, "/t.csv")


REFUSALS: list[Callable[[FastFlightClient, Mode], object]] = [
    lambda client, mode: client.read(FIRST, "/none.csv", mode=mode),
    lambda client, mode: client.read("nobody", "/none.csv", mode=mode),
    lambda client, mode: client.read(FIRST, "/readings.csv", format="packed", mode=mode),
    lambda client, mode: client.write(SECOND, "/no/such/folder/x.csv", TABLE, mode=mode),
    lambda client, mode: client.exec(FIRST, "1/0", mode=mode).to_arrow(),
    lambda client, mode: client.stat(SECOND, "/none.csv"),
    lambda client, mode: client.read_fleet("x*", "/none.csv", mode=mode),
    lambda client, mode: client.start_recording(FIRST),
]


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.parametrize("refused", REFUSALS)
def test_errors_are_those_of_one_process(
    client: FastFlightClient, direct: str, refused: Callable[[FastFlightClient, Mode], object], mode: Mode
) -> None:
    told = []
    with FastFlightClient(direct) as other:
        for each in (client, other):
            with pytest.raises(FastFlightError) as raised:
                refused(each, mode)
            told.append((type(raised.value), vars(raised.value)))
    assert told[0] == told[1]


@pytest.mark.parametrize("mode", BOTH)
def test_a_session_goes_both_ways(client: FastFlightClient, mode: Mode) -> None:
    with client.interact(SECOND, mode=mode) as repl:
        assert next(device for device in client.devices() if device.name == SECOND).holder
        repl.send("print(6 * 7)\r")
        assert repl.read_until(b"42")
    assert repl.rows.summary["ended"] == "client ended"
    assert client.info(SECOND)["name"] == SECOND


@pytest.mark.parametrize("mode", BOTH)
def test_a_stream_that_is_left_gives_the_device_back(client: FastFlightClient, mode: Mode) -> None:
    with client.exec(FIRST, "import time\nwhile True: print(1); time.sleep(0.01)", mode=mode) as stream:
        next(iter(stream))
    assert client.stat(FIRST, "/readings.csv").size
    until(lambda: [worker["stats"]["open"] for worker in client.stats()["workers"]] == [0, 0])


@pytest.mark.parametrize("mode", BOTH)
def test_the_fleet_is_that_of_all_workers(client: FastFlightClient, mode: Mode) -> None:
    table = client.read_fleet("*", "/readings.csv", mode=mode).to_arrow()
    assert Counter(table.column("device").to_pylist()) == dict.fromkeys(DEVICES, 10_000)
    with client.read_fleet("*", "/none.csv", schema={"a": "int64"}, mode=mode) as failing:
        assert failing.to_arrow().num_rows == 0
    assert sorted(each["device"] for each in failing.summary["failed"]) == sorted(DEVICES)


def test_endpoints_name_the_workers(client: FastFlightClient, front: RunningServer) -> None:
    workers = [worker["location"].encode() for worker in client.health()["workers"]]
    reuse = b"arrow-flight-reuse-connection://?"
    with flight.connect(front.location) as plain:
        info = plain.get_flight_info(flight.FlightDescriptor.for_path(SECOND, "/readings.csv"))
        assert [[each.uri for each in endpoint.locations] for endpoint in info.endpoints] == [[workers[1], reuse]]
        assert info.total_bytes == client.stat(SECOND, "/readings.csv").size
        command = b'{"type": "mock", "total_rows": 40, "rows_per_batch": 10, "endpoints": 4}'
        parts = plain.get_flight_info(flight.FlightDescriptor.for_command(command)).endpoints
        assert [part.locations[0].uri for part in parts] == [*workers, *workers]
        listed = [each.descriptor.path for each in plain.list_flights(b"d*/readings.csv")]
        assert sorted(listed) == [[name.encode(), b"/readings.csv"] for name in sorted(DEVICES)]


def test_what_is_read_in_parallel_is_read_at_the_workers(client: FastFlightClient) -> None:
    before = [worker["stats"]["started"] for worker in client.stats()["workers"]]
    mock = Mock(total_rows=40_000, endpoints=4)
    assert client.read_parallel(mock).to_arrow().num_rows == 40_000
    assert client.read_parallel(DeviceFile(device=FIRST, path="/readings.csv")).to_arrow().num_rows == 10_000
    # One more than the table's at the first: describing the file is no stream.
    after = [worker["stats"]["started"] for worker in client.stats()["workers"]]
    assert [b - a for a, b in zip(before, after, strict=True)] == [3, 2]
    assert client.stats()["sources"].get("mock", {"started": 0})["started"] == 0


def test_a_killed_worker_is_told_and_started_again() -> None:
    settings = ServeSettings("grpc://127.0.0.1:0", DEVICES, shards=1, workers=2)
    with open_server(settings) as running, FastFlightClient(running.location) as client:
        killed = client.health()["workers"][0]
        with client.session(FIRST) as stream, client.session(SECOND):
            os.kill(killed["pid"], signal.SIGKILL)
            with pytest.raises(TransportClosed, match="worker 0, which has this device, has ended") as raised:
                stream.to_arrow()
            assert raised.value.where == FIRST
            assert client.info(SECOND)["name"] == SECOND
        until(lambda: client.health()["workers"][0]["pid"] not in (None, killed["pid"]))
        again = client.health()["workers"][0]
        assert (again["location"], again["status"], again["restarts"]) == (killed["location"], "serving", 1)
        assert client.info(FIRST)["name"] == FIRST
        assert client.read_parallel(DeviceFile(device=FIRST, path="/readings.csv")).to_arrow().num_rows == 10_000


def test_a_worker_is_started_again_whatever_is_missing_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ServeSettings("grpc://127.0.0.1:0", DEVICES, shards=1, workers=2)
    popen, refusals = pool.subprocess.Popen, [BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))]
    has_it = threading.Event()

    def no_process(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        if refusals:
            raise refusals.pop()
        assert has_it.wait(SECONDS)
        process: subprocess.Popen[bytes] = popen(*args, **kwargs)
        return process

    with open_server(settings) as running, FastFlightClient(running.location) as client, socket.socket() as taken:
        killed = client.health()["workers"][0]
        monkeypatch.setattr("fastflight.cli.workers.pool.subprocess.Popen", no_process)
        os.kill(killed["pid"], signal.SIGKILL)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        until(lambda: had(taken, int(killed["location"].rpartition(":")[2])))
        has_it.set()
        until(lambda: client.health()["workers"][0]["pid"] not in (None, killed["pid"]))
        again = client.health()["workers"][0]
        assert not refusals and again["location"] != killed["location"]
        assert client.info(FIRST)["name"] == FIRST
        assert client.read_parallel(DeviceFile(device=FIRST, path="/readings.csv")).to_arrow().num_rows == 10_000


def test_a_worker_that_ends_while_it_speaks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    words = 'import sys; sys.stdin.readline(); sys.stdout.write(\'{"location": "grpc:\')'
    monkeypatch.setattr(pool, "COMMAND", (sys.executable, "-c", words))
    worker = pool.Worker(0, ServeSettings("grpc://127.0.0.1:0", {}), Governor())
    with pytest.raises(TransportError, match="worker 0 ended before it served"):
        worker.start()
    worker.join(SECONDS)


def test_a_worker_that_cannot_be_looked_after_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that has no process left has no thread, either: it is tried again later, and nothing stays of it."""

    def no_thread(timer: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("fastflight.cli.workers.pool.threading.Timer.start", no_thread)
    worker = pool.Worker(0, ServeSettings("grpc://127.0.0.1:0", {}), Governor())
    with pytest.raises(TransportError, match="worker 0 has no thread"):
        worker.start()
    assert worker._process is None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks Linux which processes there are")
def test_a_worker_that_hangs_is_killed_and_the_other_ends_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.cli.workers.pool.STOP_SECONDS", 0.5)
    settings = ServeSettings("grpc://127.0.0.1:0", DEVICES, shards=1, workers=2, drain_seconds=0.0)
    with structlog.testing.capture_logs() as log:
        with open_server(settings) as running, FastFlightClient(running.location) as client:
            hung, other = (worker["pid"] for worker in client.health()["workers"])
            session = client.session(FIRST)
            os.kill(hung, signal.SIGSTOP)
            running.close()
            with pytest.raises(FastFlightError):
                session.to_arrow()
    assert not any(map(is_there, (hung, other)))
    killed = [each for each in log if each["event"] == "a worker did not stop and is killed"]
    assert [each["worker"] for each in killed] == [0]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks Linux which processes there are")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_its_front(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "fastflight", "serve", "--server", "grpc://127.0.0.1:0", "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            location = process.stdout.readline().split()[2].rstrip(";")
            with FastFlightClient(location) as client:
                workers = [worker["pid"] for worker in client.health()["workers"]]
                session = client.session("demo")
                process.send_signal(number)
                if number == signal.SIGTERM:
                    session.to_arrow()
                    assert session.summary["ended"] == "server draining"
                    assert process.wait(SECONDS) == 0
                    assert not any(map(is_there, workers))
                else:
                    session.cancel()
                    until(lambda: not any(map(is_there, workers)))
        finally:
            process.kill()
