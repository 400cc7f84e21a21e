"""WebSockets at a port, as a client of another library sees them, in front of both kinds of server."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from fastflight.app.compose import RunningServer, open_server
from fastflight.gateway.ws.channel import MAX_MESSAGE_BYTES
from fastflight.runtime.admission import Limits
from tests.support.servers import config, serving
from tests.support.waiting import read_until

SOON = 60.0
DAY_SECONDS = 86_400.0


class HandmadeLine:
    """A device that says what the test has it say. It is there from the first time that somebody opens its line."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(SOON)
        self._connection: socket.socket | None = None
        self.url = f"socket://127.0.0.1:{self._listener.getsockname()[1]}"

    def say(self, data: bytes) -> None:
        if self._connection is None:
            self._connection, _ = self._listener.accept()
        self._connection.sendall(data)

    def close(self) -> None:
        self._listener.close()
        if self._connection is not None:
            self._connection.close()


@dataclass
class Heard:
    """The text messages of a WebSocket until it was closed."""

    told: list[dict[str, Any]] = field(default_factory=list)
    code: int | None = None
    reason: str | None = None

    @property
    def trailer(self) -> dict[str, Any]:
        found: dict[str, Any] = self.told[-1]["trailer"]
        return found

    def hear(self, client: ClientConnection) -> Heard:
        try:
            while True:
                message = client.recv(SOON)
                if isinstance(message, str):
                    self.told.append(json.loads(message))
        except ConnectionClosed:
            self.code, self.reason = client.close_code, client.close_reason
            return self


@dataclass
class BoardAndLine:
    """A server with a simulated board, `demo`, and a `line`; `ws` and `http` lead to the gateway in question."""

    running: RunningServer
    line: HandmadeLine
    http: str

    @property
    def ws(self) -> str:
        return self.http.replace("http:", "ws:")


@contextmanager
def board_and_line() -> Iterator[BoardAndLine]:
    with ExitStack() as parts:
        line = HandmadeLine()
        parts.callback(line.close)
        devices = {"demo": "sim:?telemetry=0", "line": line.url}
        running = parts.enter_context(serving(devices, http=("127.0.0.1", 0)))
        assert running.http is not None
        with urllib.request.urlopen(f"{running.http}/devices/demo/info", timeout=SOON) as answer:  # opens its line
            assert answer.status == 200
        yield BoardAndLine(running, line, running.http)


@pytest.fixture(scope="module")
def served() -> Iterator[BoardAndLine]:
    with board_and_line() as served:
        yield served


def test_a_message_that_is_too_big(served: BoardAndLine) -> None:
    with connect(f"{served.ws}/ws/repl/demo") as client:
        client.recv(SOON)
        with pytest.raises(ConnectionClosedError):
            client.send(b"x" * (MAX_MESSAGE_BYTES + 1))
            while True:  # what the board says meanwhile comes first
                client.recv(SOON)
        assert client.close_code == 1009


def test_a_page_of_another_origin_is_refused(served: BoardAndLine) -> None:
    for path in ("/ws/fleet", "/ws/repl/demo", "/ws/none"):
        with pytest.raises(InvalidStatus) as raised, connect(served.ws + path, origin="http://evil.example"):  # type: ignore[arg-type]
            pass
        assert raised.value.response.status_code == 403
        assert json.loads(raised.value.response.body)["where"] == "Origin"
    with connect(f"{served.ws}/ws/repl/demo", origin=served.http) as client:  # type: ignore[arg-type]
        assert "ready" in str(client.recv(SOON))


def read_socket_until(client: ClientConnection, mark: bytes) -> bytes:
    """Read binary messages until `mark` has arrived; a text message is a failure."""

    def read() -> bytes:
        message = client.recv(SOON)
        assert isinstance(message, bytes), message
        return message

    return read_until(read, mark)


def test_what_is_typed_is_answered(served: BoardAndLine) -> None:
    with connect(f"{served.ws}/ws/repl/demo") as client:
        assert json.loads(client.recv(SOON)) == {"ready": {"device": "demo"}}
        client.send("\x03")
        read_socket_until(client, b">>> ")
        client.send("print(6 * 7)\r")
        read_socket_until(client, b"42\r\n")  # a prompt alone may be that of the board's start, or the one for Ctrl-C
        client.send(b"while True: pass\r\r\r")
        read_socket_until(client, b"\r\n... \r\n")
        client.send(b"\x03")
        read_socket_until(client, b"KeyboardInterrupt")


def test_a_second_one_is_told_who_has_the_line(served: BoardAndLine) -> None:
    with connect(f"{served.ws}/ws/repl/demo") as first:
        first.recv(SOON)
        with connect(f"{served.ws}/ws/repl/demo") as second:
            heard = Heard().hear(second)
        assert (heard.code, heard.told[0]["error"]["code"]) == (4503, "busy")
        assert heard.told[0]["error"]["holder"] in heard.told[0]["error"]["what"]
        first.send("\x03")
        read_socket_until(first, b">>> ")
    with connect(f"{served.ws}/ws/repl/demo") as third:
        assert "ready" in str(third.recv(SOON))


def test_an_idle_one_gives_way_to_a_request_and_a_busy_one_says_how_to_end_it() -> None:
    def listed(running: RunningServer) -> Any:
        with urllib.request.urlopen(f"{running.http}/devices/demo/files/", timeout=SOON) as answer:
            return json.load(answer)

    for idle_seconds, gives_way in ((1e-6, True), (600.0, False)):
        settings = config(
            {"demo": "sim:?telemetry=0"},
            http=("127.0.0.1", 0),
            limits=Limits(idle_seconds=idle_seconds),
        )
        with open_server(settings) as running, ExitStack() as clients:
            assert running.http is not None
            typing = clients.enter_context(connect(running.http.replace("http:", "ws:") + "/ws/repl/demo"))
            assert "ready" in str(typing.recv(SOON))
            if gives_way:
                assert "/readings.csv" in str(listed(running))
                heard = Heard().hear(typing)
                assert "somebody else asked for the device" in str(heard.told[-1])
                continue
            with pytest.raises(urllib.error.HTTPError) as refused:
                listed(running)
            with refused.value:
                error = json.load(refused.value)
            assert (refused.value.code, error["code"], error["where"]) == (503, "busy", "demo")
            assert error["holder"] == "an interactive session (a REPL)"
            assert error["hint"].startswith("Close it where it is open, or ask again in ")


def test_the_end_of_a_device() -> None:
    with board_and_line() as served, connect(f"{served.ws}/ws/repl/line") as client:
        assert "ready" in str(client.recv(SOON))
        served.line.say(b"x\n")
        assert client.recv(SOON) == b"x\n"
        served.line.close()
        heard = Heard().hear(client)
    assert (heard.code, heard.reason, heard.trailer["ended"]) == (1000, "device gone", "device gone")


def test_the_end_of_the_server() -> None:
    with ExitStack() as clients:
        with board_and_line() as served:
            typing = clients.enter_context(connect(f"{served.ws}/ws/repl/demo"))
            typing.recv(SOON)
        heard_typing = Heard().hear(typing)
    assert (heard_typing.code, heard_typing.trailer["ended"]) == (1001, "server draining")


def said(served: BoardAndLine, client: ClientConnection, line: bytes) -> tuple[float, dict[str, Any]]:
    """Say a line until a message of `/ws/plotjuggler/line` comes; return its time and values.

    The first lines after a line was opened have no time, and are no points.
    """
    while True:
        served.line.say(line)
        try:
            message = json.loads(client.recv(0.05))
        except TimeoutError:
            continue
        assert list(message) == ["timestamp", "line"], message
        return message["timestamp"], message["line"]


def test_rows_come_as_plotjuggler_takes_them_also_when_a_column_is_added() -> None:
    with board_and_line() as served, connect(f"{served.ws}/ws/plotjuggler/line") as client:
        moment, values = said(served, client, b'{"celsius": 21.5}\n')
        assert values == {"celsius": 21.5} and abs(moment - time.time()) < DAY_SECONDS
        while "open" not in values:
            _, values = said(served, client, b'{"celsius": 7.5, "open": true}\n')
        assert values == {"celsius": 7.5, "open": True}


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("none", "none"),
        ("demo?since_seconds=-1", "since_seconds"),
        ("demo?device=x", "device"),
        ("demo?colum=x", "colum"),
    ],
)
def test_rows_that_cannot_be_had_are_refused(served: BoardAndLine, path: str, where: str) -> None:
    try:
        with connect(f"{served.ws}/ws/plotjuggler/{path}") as client:
            error = json.loads(client.recv(SOON))["error"]
    except InvalidStatus as refused:
        error = json.loads(refused.response.body)
    assert where in error["where"] and error["hint"]
