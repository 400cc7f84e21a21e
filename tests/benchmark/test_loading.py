"""Processes that load servers: what they count, what they call a failure, and that they end."""

from __future__ import annotations

import math
import os
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyarrow import flight

from fastflight.errors import TransportError
from fastflight.service import encode
from fastflight.service.requests import Mock
from fastflight_benchmark.loading import ghz
from fastflight_benchmark.loading.calling import DO_ACTION, DO_GET, GET_FLIGHT_INFO, OPERATIONS
from fastflight_benchmark.loading.pool import MIB, MODULE, Burst, Loaders, Outcome
from fastflight_benchmark.loading.process import Load, from_json, to_json
from fastflight_benchmark.loading.reading import Answer, read
from fastflight_benchmark.peers import constant
from fastflight_benchmark.peers.constant import ConstantServer
from fastflight_benchmark.table import BarePeer
from tests.support.servers import FREE_PORT, serving

TABLE = Mock(rows_per_batch=100, total_rows=1000)
SMALL = encode(constant.REQUEST)


def outcome(began: float, ended: float, size: int = 0, error: str = "") -> Outcome:
    return Outcome(began, ended, Answer(1, size, "", first=began + 0.5), error)


def at(server: flight.FlightServerBase) -> str:
    return f"grpc://127.0.0.1:{server.port}"


def test_throughput_is_of_all_readers_from_the_first_request_to_the_last_byte() -> None:
    burst = Burst([outcome(10.0, 12.0, 3 * MIB), outcome(11.0, 14.0, 5 * MIB)])

    assert burst.seconds == 4.0
    assert burst.throughput_mbps == 2.0
    assert [one.latency_seconds for one in burst.outcomes] == [2.0, 3.0]
    assert [one.first_batch_seconds for one in burst.outcomes] == [0.5, 0.5]


def test_what_failed_carries_no_bytes_and_has_no_first_row() -> None:
    gone = Outcome(0.0, 1.0, error="gone")

    assert Burst([outcome(0.0, 2.0, 4 * MIB), gone, outcome(0.0, 1.0, MIB, "short")]).throughput_mbps == 2.0
    assert math.isnan(gone.first_batch_seconds)


def test_one_whose_starter_is_gone_ends_without_a_word() -> None:
    receiving, sending = os.pipe()
    os.close(receiving)
    with subprocess.Popen(
        [sys.executable, "-m", MODULE], stdin=subprocess.DEVNULL, stdout=sending, stderr=subprocess.PIPE
    ) as process:
        os.close(sending)
        assert process.communicate()[1] == b""
    assert process.returncode == 0


def test_readers_are_spread_over_processes_that_end_with_them() -> None:
    before = psutil.Process().children()  # what multiprocessing keeps of other tests
    with BarePeer(FREE_PORT) as peer:
        with Loaders(2) as loaders:
            first = loaders.read(at(peer), encode(TABLE), 1)
            second = loaders.read(at(peer), encode(TABLE), 3)
            children = [child for child in psutil.Process().children() if child not in before]
            assert len(children) == 2
        assert not any(child.is_running() for child in children)

    for burst, readers in ((first, 1), (second, 3)):
        answers = [one.answer for one in burst.outcomes]
        assert [(one.error, one.bytes) for one in burst.outcomes] == [("", 200_000)] * readers
        assert all(answer is not None and (answer.rows, answer.messages) == (1000, 10) for answer in answers)
        assert all(one.began <= one.began + one.first_batch_seconds <= one.ended for one in burst.outcomes)


def test_an_answer_is_told_whole_from_process_to_process() -> None:
    with BarePeer(FREE_PORT) as peer, flight.FlightClient(at(peer)) as client:
        answer = read(client, encode(TABLE))

    assert answer.schema is not None
    assert from_json(to_json(answer)) == answer


def test_a_server_that_is_gone_is_a_failure_of_each_request() -> None:
    with BarePeer(FREE_PORT) as peer:
        location = at(peer)
    load = Load()
    try:
        read_ = load.do({"do": "read", "location": location, "ticket": "", "count": 2, "at": 0.0})
    finally:
        load.close()

    assert [answer["error"].split(":")[0] for answer in read_["answers"]] == ["FlightUnavailableError"] * 2
    assert not any("answer" in answer for answer in read_["answers"])


def test_a_process_that_dies_ends_the_measurement() -> None:
    others = psutil.Process().children()  # the boards of servers that serve whole modules of tests
    with pytest.raises(TransportError, match="has ended"), Loaders(1) as loaders:
        with BarePeer(FREE_PORT) as peer:
            loaders.read(at(peer), encode(TABLE), 1)
            for child in psutil.Process().children():
                if child not in others:
                    child.kill()
                    child.wait()
            loaders.read(at(peer), encode(TABLE), 1)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_small_requests_are_made_and_checked_one_after_the_other(operation: str) -> None:
    payload = constant.ACTION.encode() if operation == DO_ACTION else SMALL
    with serving() as ours, ConstantServer(FREE_PORT) as bare, Loaders(1) as loaders:
        for location, path in ((ours.location, "async"), (at(bare), "")):
            calls = loaders.call(location, operation, payload, rows=10, path=path, connections=2, seconds=0.05)

            assert calls.errors == Counter()
            assert len(calls.latencies) >= 2
            assert sum(calls.latencies) <= 2 * calls.seconds


def test_an_answer_that_is_not_the_one_asked_for_is_an_error_and_has_no_time() -> None:
    with ConstantServer(FREE_PORT) as bare, Loaders(1) as loaders:
        other_path = loaders.call(at(bare), DO_GET, SMALL, rows=10, path="sync", connections=1, seconds=0.02)
        other_rows = loaders.call(at(bare), GET_FLIGHT_INFO, SMALL, rows=11, path="", connections=1, seconds=0.02)

    assert list(other_path.errors) == ["WrongAnswer: the answer is (10, ''), expected (10, 'sync')"]
    assert list(other_rows.errors) == ["WrongAnswer: the answer is 10, expected 11"]
    assert not other_path.latencies
    assert not other_rows.latencies


class Empty(flight.FlightServerBase):  # type: ignore[misc]
    """Sends batches without rows around the only one that has some."""

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        full = pa.record_batch({"a": [1, 2]})
        return flight.GeneratorStream(full.schema, iter([full.slice(0, 0), full, full.slice(0, 0)]))


def test_batches_without_rows_are_no_messages() -> None:
    with Empty(FREE_PORT) as server, flight.FlightClient(at(server)) as client:
        answer = read(client, b"")

    assert (answer.rows, answer.messages) == (2, 1)


REPORT = """{"count": 3, "total": 500000000, "statusCodeDistribution": {"OK": 2, "Unavailable": 1}, "details": [
  {"latency": 1000000, "status": "OK"}, {"latency": 9000000, "status": "Unavailable"}, {"latency": 2000000,
  "status": "OK"}]}"""


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for ghz is a shell script")
def test_ghz_is_told_what_to_send_and_its_report_is_read(tmp_path: Path) -> None:
    program, told = tmp_path / "ghz", tmp_path / "told"
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {told}\ncat <<'EOF'\n{REPORT}\nEOF\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

    report = ghz.load(program, "grpc://127.0.0.1:9", DO_GET, b"ticket", connections=4, seconds=0.5)

    assert ghz.latencies(report) == [0.001, 0.002]
    assert ghz.errors(report) == Counter({"ghz: Unavailable": 1})
    arguments = told.read_text().split()
    assert arguments[-1] == "127.0.0.1:9"
    assert {"--call=arrow.flight.protocol.FlightService/DoGet", "--connections=4", "--duration=0.5s"} <= set(arguments)


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for ghz is a shell script")
def test_a_ghz_that_fails_is_an_error_with_its_reason(tmp_path: Path) -> None:
    program = tmp_path / "ghz"
    program.write_text("#!/bin/sh\necho 'no such method' >&2\nexit 1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

    with pytest.raises(TransportError, match="ghz failed: no such method"):
        ghz.load(program, "grpc://127.0.0.1:9", DO_GET, b"ticket", connections=1, seconds=0.1)
