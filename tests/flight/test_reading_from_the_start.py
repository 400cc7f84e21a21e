"""A server reads its lines from its start, so that what a board says has the time at which it said it."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fastflight import FastFlightClient
from fastflight.device import listening as device_listening
from fastflight.transport import Port
from tests.flight.conftest import SOON, BoardServer, HandmadeDevice, Serve, command, simulated, ticket
from tests.flight.session_messages import SESSION, messages
from tests.flight.test_recordings import RECORDING, recording
from tests.support.servers import serving
from tests.support.waiting import until


def received(client: FastFlightClient) -> int:
    """How many bytes the server has received of its device."""
    metrics = client.stats()["figures"]
    return sum(int(value) for labels, value in metrics["fastflight_device_bytes_total"] if labels["direction"] == "rx")


def all_that_waited(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Take the first `size` bytes for what had waited, however long they take."""
    monkeypatch.setattr("fastflight.transport.port_tap.BACKLOG_SECONDS", SOON)
    monkeypatch.setattr("fastflight.device.line.BACKLOG_SECONDS", SOON)
    monkeypatch.setattr("fastflight.transport.port_tap.MAX_BACKLOG_BYTES", size)


def test_what_a_board_said_before_anybody_asked_has_the_times_at_which_it_came(
    peer: HandmadeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_that_waited(monkeypatch, 0)
    with (
        serving({"demo": peer.url}) as server,
        FastFlightClient(server.location) as client,
    ):
        with peer.answer() as device:
            for number in range(5):
                before = received(client)
                device.sendall(b"row %d\n" % number)
                until(lambda: received(client) > before)  # noqa: B023 - called here
            with client.session("demo", format="lines", since_seq=0, limit_rows=5) as stream:
                rows = stream.to_arrow().to_pylist()
    assert [row["text"] for row in rows] == [f"row {number}" for number in range(5)]
    times = [row["time"] for row in rows]
    assert None not in times and len(set(times)) == len(times)


@pytest.mark.parametrize("seconds", [0, 0.02, 0.1])
def test_a_server_that_closes_while_it_opens_its_lines_leaves_nothing_behind(seconds: float) -> None:
    with serving():
        time.sleep(seconds)


def test_a_device_that_is_missing_does_not_stop_the_server_and_is_heard_as_soon_as_somebody_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_listening, "FIRST_RETRY_SECONDS", 3600.0)
    monkeypatch.setattr(device_listening, "LAST_RETRY_SECONDS", 3600.0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    devices = {"demo": f"socket://127.0.0.1:{port}", "other": "sim:?telemetry=50"}
    with serving(devices) as server, FastFlightClient(server.location) as client:
        with client.session("other", limit_rows=1) as rows:
            assert rows.to_arrow().num_rows == 1
        with pytest.raises(Exception, match="cannot connect"):
            client.session("demo", limit_rows=1).to_arrow()
        with socket.create_server(("127.0.0.1", port)) as back:
            stream = client.session("demo", format="lines", limit_rows=1)
            back.settimeout(SOON)
            device, _ = back.accept()
            with device:
                device.sendall(b"back\n")
                assert stream.to_arrow()["text"].to_pylist() == ["back"]


@pytest.mark.parametrize("format_", ["bytes", "lines"])
def test_what_had_waited_in_the_port_has_no_time(
    peer: HandmadeDevice, serve: Serve, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_that_waited(monkeypatch, len(b"old\n"))
    board = serve(peer.url)
    reader = board.client.do_get(ticket(**SESSION, format=format_, reconnect=True, limit_rows=2))
    with peer.answer() as device:
        device.sendall(b"old\n")
        stream = messages(reader)
        rows: list[dict[str, Any]] = []
        while not rows:
            rows += next(stream)[0]
        device.sendall(b"new\n")
        rows += [row for batch, _ in stream for row in batch]
    assert [row["seq"] for row in rows] == [0, 1]
    assert [row["time"] is None for row in rows] == [True, False]


@pytest.mark.parametrize("format_", ["bytes", "lines"])
def test_a_recording_keeps_what_had_waited_and_gives_it_no_time_either(
    peer: HandmadeDevice, tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_that_waited(monkeypatch, len(b"old\n"))
    with recording(tmp_path, peer.url) as (board, _):
        with peer.answer() as device:
            device.sendall(b"old\n")
            assert board.get(**SESSION, since_seq=0, limit_rows=1).error is None
            device.sendall(b"new\n")
            assert board.get(**SESSION, since_seq=1, limit_rows=1).error is None
        board.act("recording.stop", device="demo")
        got = board.get(**RECORDING, format=format_)
    assert got.error is None and got.trailer is not None
    assert got.trailer["gaps"] == 0
    assert [value is None for value in got.table["time"].to_pylist()] == [True, False]


def test_a_failure_of_ours_ends_a_session_with_its_name_and_the_line_is_read_again(
    talking: BoardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen = Port.alisten
    failures = [ValueError("a defect")]

    async def alisten(port: Port) -> None:
        if failures:
            raise failures.pop()
        await listen(port)

    monkeypatch.setattr(Port, "alisten", alisten)
    got = talking.get(**SESSION)
    assert got.trailer is not None and got.trailer["ended"] == "device gone"
    assert got.trailer["why"] == "the server failed to use the line (ValueError)"
    assert talking.get(**SESSION, limit_rows=1).error is None


def test_a_failure_of_ours_ends_an_exchange_with_its_name(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def alisten(*_: Any) -> None:
        raise ValueError("a defect")

    board = serve(simulated(tmp_path))
    assert board.exec("print(1)") == "1\n"
    monkeypatch.setattr(Port, "alisten", alisten)
    writer, reader = board.client.do_exchange(command(**SESSION))
    writer.begin(pa.schema([("data", pa.binary())]))
    trailer = next(note for _, note in messages(reader) if "ended" in note)
    writer.close()
    assert (trailer["ended"], trailer["why"]) == ("device gone", "the server failed to use the line (ValueError)")
    monkeypatch.undo()
    assert board.exec("print(2)") == "2\n"
