"""Bridges beside a Flight server, in front of the same devices."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastflight.app.compose import RunningServer
from fastflight.client import FastFlightClient
from fastflight.errors import BusyError
from tests.support.servers import serving
from tests.support.waiting import read_until

SECONDS = 30.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    bridge = {"rfc2217": 0, "socket": 0, "viewers": 0}
    with serving({"demo": {"url": f"sim:?files={tmp_path}&telemetry=0", "bridge": bridge}}) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[FastFlightClient]:
    with FastFlightClient(server.location) as opened:
        yield opened


def tool(server: RunningServer, kind: str = "socket") -> socket.socket:
    stream = socket.create_connection(("127.0.0.1", getattr(server.bridges["demo"], kind)), SECONDS)
    stream.settimeout(SECONDS)
    return stream


def read_socket_until(stream: socket.socket, mark: bytes) -> bytes:
    return read_until(lambda: stream.recv(65536), mark)


def test_a_tool_and_requests_take_turns(server: RunningServer, client: FastFlightClient) -> None:
    assert lines(client, "print(1)") == ["1"]
    with tool(server) as stream:
        stream.sendall(b"\r\x03print(1+1)\r")
        read_socket_until(stream, b"\r\n2\r\n>>> ")
        host, port = stream.getsockname()
        with pytest.raises(BusyError, match=f"demo: in use by {host}:{port} \\(raw socket\\)"):
            client.exec("demo", "print(2)").to_arrow()
        assert [device.holder for device in client.devices()] == [f"{host}:{port} (raw socket)"]
        # Left in the raw REPL, with code half sent.
        stream.sendall(b"\x01print(")
        read_socket_until(stream, b"raw REPL; CTRL-B to exit\r\n>")
    assert lines(client, "print(3)") == ["3"]


def lines(client: FastFlightClient, code: str) -> list[str]:
    return [str(text) for text in client.exec("demo", code, interrupt=True).to_arrow()["text"].to_pylist()]


@pytest.mark.parametrize("kind", ["socket", "rfc2217"])
def test_a_tool_that_comes_while_a_request_runs_is_told_at_once(
    server: RunningServer, client: FastFlightClient, kind: str
) -> None:
    code = "import time\nprint('runs')\nwhile True: time.sleep(0.05)"
    batches = iter(client.exec("demo", code))
    next(batches)
    with tool(server, kind) as stream:
        assert b"fastflight: demo: in use by " in read_socket_until(stream, b"\r\n")
    batches.close()  # type: ignore[attr-defined]


def test_viewers_see_tools_and_not_requests(server: RunningServer, client: FastFlightClient) -> None:
    with tool(server, "viewers") as viewer:
        seen: list[bytes] = []
        watching = threading.Thread(target=lambda: seen.append(read_socket_until(viewer, b"by a tool")))
        watching.start()
        while watching.is_alive():
            lines(client, "print('by a request')")
            with tool(server) as stream:
                stream.sendall(b"\r\x03print('by a '+'tool')\r")
                read_socket_until(stream, b"by a tool")
        assert len(seen) == 1 and b"by a request" not in seen[0]
