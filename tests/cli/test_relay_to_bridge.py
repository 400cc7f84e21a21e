"""The relay beside bridges: a page's way to a board, which is seen where everything on its line is."""

from __future__ import annotations

from pathlib import Path

import pytest
from websockets.sync.client import connect

from fastflight.app.compose import open_server
from fastflight.client import FastFlightClient
from fastflight.errors import RequestError
from tests.support.servers import config
from tests.support.waiting import read_until


def test_a_stream_to_a_bridge_is_a_session_of_its_device(tmp_path: Path) -> None:
    devices = {"demo": {"url": f"sim:?files={tmp_path}&telemetry=0", "bridge": {"socket": 0}}}
    settings = config(devices, http=("127.0.0.1", 0), relay={"allow": ["127.0.0.1:*"]})
    with open_server(settings) as running, FastFlightClient(running.location) as client:
        assert running.http is not None
        client.info("demo")
        port = running.bridges["demo"].socket
        with connect(f"{running.http.replace('http', 'ws')}/ws/tcp?host=localhost&port={port}") as ws:
            typed = b"\r\x03print(6*7)\r"
            ws.send(typed)
            read_until(lambda: ws.recv(30, decode=False), b"\r\n42\r\n>>> ")
            rows = {"tx": b"", "rx": b""}
            for batch in client.session("demo", since_seq=0, flush_ms=0):
                for row in batch.to_pylist():
                    rows[row["direction"]] += row["data"]
                if b"\r\n42\r\n" in rows["rx"]:
                    break
            assert typed in rows["tx"]


def test_a_target_that_is_none_is_said_before_anything_is_served() -> None:
    settings = config(http=("127.0.0.1", 0), relay={"allow": ["everywhere"]})
    with pytest.raises(RequestError, match="everywhere: not HOST:PORT"), open_server(settings):
        pass
