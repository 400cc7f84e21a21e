"""WebSockets at a port, as a client of another library sees them, in front of both kinds of server."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from fastflight.app.compose import RunningServer, open_server
from fastflight.app.settings import ServeSettings
from fastflight.gateway.ws.channel import MAX_MESSAGE_BYTES
from fastflight.runtime.admission import Limits
from tests.support.servers import serving
from tests.support.waiting import read_until

SOON = 30.0


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
    """What came on a WebSocket until it was closed."""

    parts: list[bytes] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)
    code: int | None = None
    reason: str | None = None

    @property
    def table(self) -> pa.Table:
        return pa.ipc.open_stream(b"".join(self.parts)).read_all().replace_schema_metadata(None)

    @property
    def trailer(self) -> dict[str, Any]:
        found: dict[str, Any] = self.told[-1]["trailer"]
        return found

    def hear(self, client: ClientConnection) -> Heard:
        try:
            while True:
                message = client.recv(SOON)
                if isinstance(message, bytes):
                    self.parts.append(message)
                else:
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

    def get(self, **request: Any) -> pa.Table:
        with flight.connect(self.running.location) as client:
            ticket = flight.Ticket(json.dumps({"type": "device.session", **request}))
            return client.do_get(ticket).read_all().replace_schema_metadata(None)

    def ticket(self, use: str, **request: Any) -> str:
        content = json.dumps({"type": "device.session", **request}).encode()
        with urllib.request.urlopen(f"{self.http}/tickets?for={use}", content) as answer:
            return str(json.load(answer)["ticket"])


@contextmanager
def board_and_line() -> Iterator[BoardAndLine]:
    with ExitStack() as parts:
        line = HandmadeLine()
        parts.callback(line.close)
        devices = {"demo": "sim:?telemetry=0", "line": line.url}
        running = parts.enter_context(serving(devices, http=("127.0.0.1", 0)))
        assert running.http is not None
        yield BoardAndLine(running, line, running.http)


@pytest.fixture(scope="module")
def served() -> Iterator[BoardAndLine]:
    with board_and_line() as served:
        for device in ("demo", "line"):  # open the lines, and the way to the server
            with session(served.ws, device=device) as client:
                client.recv(SOON)
        served.line.say(b"\n")
        served.get(device="line", since_seq=0, limit_rows=1)
        yield served


@contextmanager
def session(url: str, query: str = "", **request: Any) -> Iterator[ClientConnection]:
    with connect(f"{url}/ws/session{query}") as client:
        client.send(json.dumps({"type": "device.session", **request}))
        yield client


def test_rows_are_those_of_do_get(served: BoardAndLine) -> None:
    with session(served.ws, device="line", format="lines", limit_rows=3) as client:
        first = client.recv(SOON)
        assert isinstance(first, bytes)
        served.line.say(b"a\nb\nc\n")
        live = Heard([first]).hear(client)
    assert (live.code, live.reason) == (1000, "limit reached")
    assert (live.table["text"].to_pylist(), live.trailer["rows"]) == (["a", "b", "c"], 3)
    same = {"device": "line", "since_seq": live.table["seq"][0].as_py(), "limit_rows": 1}
    with session(served.ws, **same) as client:
        again = Heard().hear(client)
    assert again.table == served.get(**same)
    with session(served.ws, "?as=json", **same) as client:
        columns, rows, trailer = Heard().hear(client).told
    assert [column["name"] for column in columns["columns"]] == ["seq", "time", "direction", "data"]
    assert rows["rows"][0] | {"time": ""} == {
        "seq": same["since_seq"],
        "time": "",
        "direction": "rx",
        "data": "YQpiCmMK",
    }
    assert trailer["trailer"]["ended"] == "limit reached"


def test_the_subprotocol_says_the_format(served: BoardAndLine) -> None:
    request = urllib.parse.quote(json.dumps({"type": "device.listing", "device": "demo"}))
    with connect(f"{served.ws}/ws/session?request={request}", subprotocols=["other", "json"]) as client:  # type: ignore[list-item]
        assert client.subprotocol == "json"
        heard = Heard().hear(client)
    assert (heard.parts, heard.code, heard.reason) == ([], 1000, "finished")
    assert "/readings.csv" in [row["path"] for told in heard.told for row in told.get("rows", [])]


def test_what_is_wrong_is_told_and_is_the_close_code(served: BoardAndLine) -> None:
    for content, code, where in [
        ("{", 4400, "request"),
        ('{"type": "device.session", "device": "dem"}', 4404, "dem"),
        ('{"type": "device.file", "device": "demo", "path": "/none.csv"}', 4404, "demo:/none.csv"),
        ('{"type": "device.session", "device": "demo", "row": 1}', 4400, "row"),
    ]:
        with connect(f"{served.ws}/ws/session") as client:
            client.send(content)
            heard = Heard().hear(client)
        (told,) = heard.told
        assert heard.code == code
        assert where in told["error"]["text"]
        assert str(heard.reason) in told["error"]["text"]


def test_a_session_takes_one_request(served: BoardAndLine) -> None:
    with session(served.ws, device="demo") as client:
        client.recv(SOON)
        client.send("{}")
        heard = Heard().hear(client)
    assert (heard.code, heard.told[-1]["error"]["what"]) == (4400, "this WebSocket takes no more messages")


def test_a_message_that_is_too_big(served: BoardAndLine) -> None:
    with connect(f"{served.ws}/ws/repl/demo") as client:
        client.recv(SOON)
        with pytest.raises(ConnectionClosedError):
            client.send(b"x" * (MAX_MESSAGE_BYTES + 1))
            while True:  # what the board says meanwhile comes first
                client.recv(SOON)
        assert client.close_code == 1009


def test_a_page_of_another_origin_is_refused(served: BoardAndLine) -> None:
    for path in ("/ws/session", "/ws/repl/demo", "/ws/none"):
        with pytest.raises(InvalidStatus) as raised, connect(served.ws + path, origin="http://evil.example"):  # type: ignore[arg-type]
            pass
        assert raised.value.response.status_code == 403
        assert json.loads(raised.value.response.body)["where"] == "Origin"
    with connect(f"{served.ws}/ws/repl/demo", origin=served.http) as client:  # type: ignore[arg-type]
        assert "ready" in str(client.recv(SOON))


def test_a_ticket_opens_one_socket_for_its_request(served: BoardAndLine) -> None:
    ticket = served.ticket("session", device="demo", limit_seconds=0)
    with connect(f"{served.ws}/ws/session?ticket={ticket}") as client:
        assert Heard().hear(client).trailer["ended"] == "limit reached"
    for path in (
        f"/ws/session?ticket={ticket}",
        f"/ws/repl/line?ticket={served.ticket('session', device='line')}",
    ):
        with pytest.raises(InvalidStatus) as raised, connect(served.ws + path):
            pass
        assert raised.value.response.status_code == 403
    for path in (
        f'/ws/session?ticket={served.ticket("session", device="line")}&request={{"type":"mock"}}',
        f"/ws/repl/demo?ticket={served.ticket('repl', device='line')}",
    ):
        try:
            with connect(served.ws + path) as client:
                assert Heard().hear(client).code == 4403
        except InvalidStatus as refused:
            assert refused.response.status_code == 403
    with connect(f"{served.ws}/ws/repl/demo?ticket={served.ticket('repl', device='demo')}") as client:
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
        settings = ServeSettings(
            "grpc://127.0.0.1:0",
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
    with board_and_line() as served, session(served.ws, device="line") as client:
        client.recv(SOON)
        served.line.say(b"x\n")
        client.recv(SOON)
        served.line.close()
        heard = Heard().hear(client)
    assert (heard.code, heard.reason, heard.trailer["ended"]) == (1000, "device gone", "device gone")


def test_the_end_of_the_server() -> None:
    with ExitStack() as clients:
        with board_and_line() as served:
            live = clients.enter_context(session(served.ws, device="line"))
            live.recv(SOON)
            typing = clients.enter_context(connect(f"{served.ws}/ws/repl/demo"))
            typing.recv(SOON)
        heard, heard_typing = Heard().hear(live), Heard().hear(typing)
    assert (heard.code, heard.trailer["ended"]) == (1001, "server draining")
    assert (heard_typing.code, heard_typing.trailer["ended"]) == (1001, "server draining")


def test_one_that_does_not_read_loses_rows_and_harms_nobody() -> None:
    """Every block is said when the good one has the block before: only the other one can miss any."""
    block, blocks = b"x" * 65_536, 256
    with board_and_line() as served, ExitStack() as clients:
        stalled = clients.enter_context(
            connect(f"{served.ws}/ws/session", max_queue=1, ping_interval=None, compression=None)
        )
        request = {"type": "device.session", "device": "line", "flush_ms": 0}
        stalled.send(json.dumps(request))
        good = clients.enter_context(session(served.ws, **request))
        rows = pa.ipc.open_stream(pa.BufferReader(_first(stalled))).schema
        _first(good)
        came = 0
        for number in range(blocks):
            served.line.say(block)
            while came < (number + 1) * len(block):
                message = good.recv(SOON)
                assert isinstance(message, bytes), message  # a note would tell of a gap
                came += sum(len(data) for data in _batch(message, rows).column("data").to_pylist())
        served.line.close()
        assert Heard().hear(good).trailer["gaps"] == 0
        following, missed = None, 0
        while True:
            message = stalled.recv(SOON)
            if isinstance(message, bytes) and len(message) > 8:
                seqs = _batch(message, rows).column("seq").to_pylist()
                assert following is None or not seqs or seqs[0] == following
                following = seqs[-1] + 1 if seqs else following
            elif isinstance(message, str) and "gap" in (note := json.loads(message).get("note", {})):
                assert note["gap"]["first"] == following
                following = note["gap"]["last"] + 1
                missed += 1
            elif isinstance(message, str):
                trailer = json.loads(message)["trailer"]
                break
        assert missed == trailer["gaps"] >= 1
        assert following == trailer["next_seq"]


def _first(client: ClientConnection) -> bytes:
    message = client.recv(SOON)
    assert isinstance(message, bytes)
    return message


def _batch(message: bytes, schema: pa.Schema) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(message), schema)
