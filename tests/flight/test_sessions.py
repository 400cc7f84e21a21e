"""Live sessions through a whole server, with plain `pyarrow.flight`: rows, gaps, ends, and who gives way to whom."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.transport.chunk_buffer import CHUNK_BYTES, KEPT_BYTES
from tests.support.servers import config

from .conftest import SOON, BoardServer, HandmadeDevice, Serve, command, ticket
from .session_messages import SESSION, TELEMETRY, messages, said

SENT = pa.schema([("data", pa.binary())])


def batch(*data: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array(data, pa.binary())], schema=SENT)


def test_telemetry_as_it_comes(talking: BoardServer) -> None:
    got = talking.get(**SESSION, format="jsonl", schema=TELEMETRY, limit_rows=5)
    assert got.error is None and got.trailer is not None and got.schema is not None
    assert got.schema.metadata[b"fastflight.path"] == b"async"
    assert json.loads(got.schema.metadata[b"fastflight.time"])["resolution_us"] >= 1
    rows = got.table.to_pylist()
    assert list(rows[0]) == ["seq", "time", "ms", "temperature"]
    assert [row["ms"] for row in rows] == sorted({row["ms"] for row in rows})
    assert (got.trailer["ended"], got.trailer["rows"], got.trailer["lost"]) == ("limit reached", 5, 0)
    again = talking.get(**SESSION, format="jsonl", schema=TELEMETRY, limit_rows=5, since_seq=rows[0]["seq"])
    assert again.table.to_pylist() == rows


def test_a_session_goes_on_where_another_ended(talking: BoardServer) -> None:
    first = talking.get(**SESSION, limit_rows=4)
    assert first.trailer is not None
    second = talking.get(**SESSION, limit_rows=4, since_seq=first.trailer["next_seq"])
    numbers = [number for got in (first, second) for number in got.table["seq"].to_pylist()]
    assert numbers == list(range(numbers[0], numbers[0] + 8))


def test_a_file_is_read_in_the_middle_of_a_session_and_no_row_is_lost(talking: BoardServer) -> None:
    reader = talking.client.do_get(ticket(**SESSION))
    stream = messages(reader)
    numbers = [row["seq"] for row in next(stream)[0]]
    assert talking.table(type="device.file", device="demo", path="/log.bin").num_rows
    after = talking.inventory.device("demo").tap.next_seq + 5
    while numbers[-1] < after:
        rows, note = next(stream)
        assert not note
        numbers += [row["seq"] for row in rows]
    reader.cancel()
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_slow_reader_sees_exactly_what_it_missed_and_holds_nobody_up(
    peer: HandmadeDevice, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastflight.server.answers.AHEAD_BYTES", 64 * 1024)
    board = serve(peer.url)
    # gRPC holds little for one that does not look how much the line could carry; else what chance has it, 4 MB or 38.
    steady = flight.FlightClient(board.location, generic_options=[("grpc.http2.bdp_probe", 0)])
    slow = steady.do_get(ticket(**SESSION))
    fast = messages(board.client.do_get(ticket(**SESSION)))
    piece = b"x" * 64 * 1024
    with peer.answer() as device:
        # More than is held for the slow one. The fast one is waited for, so that the tap need not.
        for _ in range(128):
            device.sendall(piece)
            received = 0
            while received < len(piece):
                rows, note = next(fast)
                assert not note, "the fast one missed something"
                received += sum(len(row["data"]) for row in rows)
    end = board.inventory.device("demo").tap.next_seq
    seen: list[int] = []
    gaps: list[dict[str, int]] = []
    trailer: dict[str, Any] = {}
    for rows, note in messages(slow):
        if "gap" in note:
            gaps.append(note["gap"])
            assert note["gap"]["first"] == (seen[-1] + 1 if seen else 0)
        elif note:
            trailer = note
        seen += [row["seq"] for row in rows]
    lost = [number for gap in gaps for number in range(gap["first"], gap["last"] + 1)]
    assert lost, "it was not slow enough"
    assert sorted(seen + lost) == list(range(end))
    assert (trailer["ended"], trailer["gaps"], trailer["lost"]) == ("device gone", len(gaps), len(lost))
    steady.close()


def test_what_is_no_longer_kept_is_a_gap(peer: HandmadeDevice, serve: Serve) -> None:
    board = serve(peer.url)
    tap = board.inventory.device("demo").tap
    for _ in range(KEPT_BYTES // CHUNK_BYTES + 10):
        tap.feed("rx", b".")
    first = tap.next_seq - KEPT_BYTES // (CHUNK_BYTES + 1)
    reader = board.client.do_get(ticket(**SESSION, since_seq=0, limit_rows=1))
    with peer.answer():
        rows, note = next(messages(reader))
    assert note["gap"].items() >= {"first": 0, "last": first - 1, "why": "not read in time"}.items()
    assert [row["seq"] for row in rows] == [first]


def test_a_session_goes_on_when_the_device_comes_back(
    peer: HandmadeDevice, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastflight.device.listening.FIRST_RETRY_SECONDS", 0.01)
    board = serve(peer.url)
    reader = board.client.do_get(ticket(**SESSION, format="lines", reconnect=True))
    stream = messages(reader)
    with peer.answer() as device:
        device.sendall(b"one\n")
        assert [row["text"] for row in next(stream)[0]] == ["one"]
    assert next(stream)[1]["gap"]["why"] == "line lost"
    with peer.answer() as device:
        device.sendall(b"two\n")
        assert [row["text"] for row in next(stream)[0]] == ["two"]
        reader.cancel()


def test_a_device_that_is_not_there_is_an_error(serve: Serve) -> None:
    got = serve("socket://127.0.0.1:9").get(**SESSION)
    assert isinstance(got.error, flight.FlightUnavailableError)
    assert got.schema is None


def test_what_is_put_is_sent_and_seen(talking: BoardServer) -> None:
    reader = talking.client.do_get(ticket(**SESSION, format="lines"))
    stream = messages(reader)
    next(stream)
    # A row of nothing is one that its sender waits for word of, as every other.
    sent = pa.table({"data": [b"print(40", b"", b" + 2)\r"]}, SENT)
    put = talking.put(sent, SESSION, chunk=1)
    assert put.error is None
    assert put.last == {"rows": 3, "bytes": 14, "done": True}
    assert any(row["text"] == "42" for rows, _ in stream for row in rows)
    reader.cancel()


@contextmanager
def exchange(board: BoardServer, **keys: Any) -> Iterator[tuple[Any, Any]]:
    writer, reader = board.client.do_exchange(command(**SESSION, **keys))
    writer.begin(SENT)
    try:
        yield writer, reader
    finally:
        writer.close()


def test_a_prompt_from_afar(board: BoardServer) -> None:
    with exchange(board) as (writer, reader):
        stream = messages(reader)
        writer.write_batch(batch(b"1+1\r"))
        assert said(stream, b"2\r\n>>> ").endswith(b"1+1\r\n2\r\n>>> ")
        busy = board.get(type="device.listing", device="demo")
        assert isinstance(busy.error, flight.FlightUnavailableError)
        assert "demo: in use by an interactive session (a REPL) for" in str(busy.error)
        assert re.search(r"Close it where it is open, or ask again in \d+ s", str(busy.error))
        watching = board.client.do_get(ticket(**SESSION, since_seq=0, limit_rows=1)).read_all()
        assert watching.num_rows == 1
        writer.done_writing()
        *_, (_, trailer) = stream
        assert (trailer["ended"], trailer["tx_bytes"]) == ("client ended", 4)
    assert board.inventory.device("demo").holder is None
    assert board.exec("print(3)") == "3\n"


def test_an_exchange_ends_when_the_device_is_gone(peer: HandmadeDevice, serve: Serve) -> None:
    board = serve(peer.url)
    answered: list[socket.socket] = []
    answering = threading.Thread(target=lambda: answered.append(peer.answer()))
    answering.start()
    with exchange(board) as (writer, reader):
        writer.write_batch(batch(b"hello"))
        answering.join()
        (device,) = answered
        assert device.recv(5) == b"hello"
        device.close()
        for _, note in messages(reader):
            if note:
                assert note["ended"] == "device gone"
                writer.done_writing()
    assert not board.inventory.device("demo").is_open


def test_a_client_that_leaves_gives_the_line_back(board: BoardServer) -> None:
    with flight.connect(board.location) as leaving:
        writer, reader = leaving.do_exchange(command(**SESSION))
        writer.begin(SENT)
        writer.write_batch(batch(b"1+1\r"))
        said(messages(reader), b"2\r\n")
        reader.cancel()
    assert board.exec("print(3)") == "3\n"


def test_only_bytes_can_be_sent(board: BoardServer) -> None:
    put = board.put(pa.table({"text": ["1+1"]}), SESSION)
    assert isinstance(put.error, pa.ArrowInvalid) and "data: binary" in str(put.error)
    null = board.put(pa.table({"data": [None]}, SENT), SESSION)
    assert isinstance(null.error, pa.ArrowInvalid) and "no data" in str(null.error)


def test_sessions_are_listed(board: BoardServer) -> None:
    (info,) = board.client.list_flights(b"demo/device.session")
    assert json.loads(info.descriptor.command)["type"] == "device.session"
    assert info.schema.names == ["seq", "time", "direction", "data"]
    asked = command(**SESSION, format="csv", schema={"a": "int64"})
    assert board.client.get_schema(asked).schema.names == ["seq", "time", "a"]


def test_what_a_bridges_client_does_is_seen(tmp_path: Path) -> None:
    from fastflight.app.compose import open_server

    settings = config({"demo": {"url": f"sim:?files={tmp_path}&telemetry=0", "bridge": {"socket": 0}}})
    with open_server(settings) as running, flight.connect(running.location) as client:
        reader = client.do_get(ticket(**SESSION))
        stream = messages(reader)
        assert said(stream, b">>> ")
        with socket.create_connection(("127.0.0.1", running.bridges["demo"].socket or 0), SOON) as tool:
            tool.sendall(b"6*7\r")
            sent = b""
            for rows, _ in stream:
                sent += b"".join(row["data"] for row in rows if row["direction"] == "tx")
                if any(b"42" in row["data"] for row in rows):
                    break
        assert sent == b"6*7\r"
        reader.cancel()
