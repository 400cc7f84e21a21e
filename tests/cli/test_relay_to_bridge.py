"""The relay beside bridges: a page's way to a board, which is seen where everything on its line is."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from websockets.sync.client import ClientConnection, connect

from fastflight.app.compose import open_server
from fastflight.app.recording_settings import RecordingSettings
from fastflight.app.settings import BridgeSettings, ServeSettings
from fastflight.bridge import Ports
from fastflight.client import FastFlightClient
from fastflight.errors import RequestError
from fastflight.protocol.relay import Opened, RelayConnection, RelayData


def read_stream_until(ws: ClientConnection, side: RelayConnection, mark: bytes) -> bytes:
    found = b""
    while mark not in found:
        message = ws.recv(timeout=30)
        assert isinstance(message, bytes)
        for event in side.feed(message):
            assert isinstance(event, RelayData | Opened)
            found += bytes(event.data) if isinstance(event, RelayData) else b"opened"
    return found


def test_a_stream_to_a_bridge_is_a_session_of_its_device(tmp_path: Path) -> None:
    devices = {"demo": f"sim:?files={tmp_path}&telemetry=0"}
    bridges = {"demo": BridgeSettings(Ports(socket=0))}
    here = ("127.0.0.1", 0)
    settings = ServeSettings("grpc://127.0.0.1:0", devices, bridges, http=here, relay=("127.0.0.1:*",))
    with open_server(settings) as running, FastFlightClient(running.location) as client:
        assert running.http is not None
        client.info("demo")
        side = RelayConnection(accepts=False)
        with connect(running.http.replace("http", "ws") + "/relay") as ws:
            ws.send(side.open(1, f"localhost:{running.bridges['demo'].socket}"))
            read_stream_until(ws, side, b"opened")
            typed = b"\r\x03print(6*7)\r"
            ws.send(side.data(1, len(typed)) + typed)
            read_stream_until(ws, side, b"\r\n42\r\n>>> ")
            rows = {"tx": b"", "rx": b""}
            for batch in client.session("demo", since_seq=0, flush_ms=0):
                for row in batch.to_pylist():
                    rows[row["direction"]] += row["data"]
                if b"\r\n42\r\n" in rows["rx"]:
                    break
            assert typed in rows["tx"]


class Counter:
    """A target that counts for whoever asks, a line at a time."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                with sock, sock.makefile("rb") as lines:
                    for number, _ in enumerate(lines):
                        sock.sendall(b'{"n": %d}\n' % number)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def asked(url: str, target: str, times: int) -> None:
    """One stream to `target`, on which so many lines are asked for and had."""
    side = RelayConnection(accepts=False)
    with connect(url.replace("http", "ws") + "/relay") as ws:
        ws.send(side.open(1, target))
        read_stream_until(ws, side, b"opened")
        for number in range(times):
            ws.send(side.data(1, 5) + b"next\n")
            read_stream_until(ws, side, b'{"n": %d}\n' % number)


def test_a_target_that_is_a_device_is_read_as_its_session_and_recorded(tmp_path: Path) -> None:
    counter = Counter()
    devices = {"plc": f"relay://{counter.address}"}
    kept = RecordingSettings(tmp_path, ("plc",))
    settings = ServeSettings("grpc://127.0.0.1:0", devices, http=("127.0.0.1", 0), recordings=kept)
    try:
        with open_server(settings) as running, FastFlightClient(running.location) as client:
            assert running.http is not None
            asked(running.http, counter.address, 3)
            asked(running.http, counter.address.replace("127.0.0.1", "localhost"), 2)
            rows = client.session("plc", since_seq=0, format="jsonl", schema={"n": "int64"}, limit_rows=5).to_arrow()
            assert rows["n"].to_pylist() == [0, 1, 2, 0, 1]
            sent = client.session("plc", since_seq=0, limit_rows=10).to_arrow()
            assert [row["data"] for row in sent.to_pylist() if row["direction"] == "tx"] == [b"next\n"] * 5
            # It has no line: nobody can ask it anything but through the relay.
            with pytest.raises(RequestError, match="read-only"):
                client.info("plc")
            assert [device.name for device in client.devices()] == ["plc"]
            (recording,) = client.recordings()
        with open_server(replace(settings, recordings=RecordingSettings(tmp_path, ()))) as running:
            with FastFlightClient(running.location) as client:
                again = client.recording(recording.name, format="jsonl", schema={"n": "int64"}).to_arrow()
                # Whether a recording's first line is whole is not known: it is set aside, as of any device.
                assert again["n"].to_pylist() == [1, 2, 0, 1]
    finally:
        counter.close()


def test_a_target_that_is_none_is_said_before_anything_is_served() -> None:
    settings = ServeSettings("grpc://127.0.0.1:0", http=("127.0.0.1", 0), relay=("everywhere",))
    with pytest.raises(RequestError, match="everywhere: not HOST:PORT"), open_server(settings):
        pass
