"""A device that only prints lines (`?kind=lines`): its lines go everywhere, and it is sent what clients send it.

The device is a TCP port that prints JSON lines, and keeps every byte that it is sent. Nothing may be sent to it by the
server itself, whatever is asked. The first test asks everything that there is: each request type and each action, with
and without `interrupt`, each path of the gateway and its WebSockets, SQL, the ports of a bridge, and the commands.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from typer.testing import CliRunner
from websockets.sync.client import connect

from fastflight import FastFlightClient
from fastflight.app.running import RunningServer
from fastflight.cli.main import app
from fastflight.errors import BusyError, IncompleteWarning, RequestError
from fastflight.service import requests
from tests.support.printing_board import HOST, Connection, PrintingBoard
from tests.support.servers import PROGRAM, serving
from tests.support.waiting import until

ONLY_PRINTS = "this device only prints lines"
SECONDS = 30.0
# The values of the keys that requests and actions need.
VALUES = {
    "device": "log", "devices": "*", "name": "log", "path": "/main.py", "to": "/other.py", "code": "print(1)",
    "query": "select * from log.rows", "sql": "select * from log.rows", "url": "sim:",
}  # fmt: skip
DATA = pa.record_batch({"data": pa.array([b"set 1\n"], pa.binary())})
ROWS = pa.record_batch({"n": [1]})
# Actions that end the device, or change what another test of the same server needs.
ENDS = {"device.remove"}
COMMANDS = """
ls log; ls -r log; cat log:/main.py; head log:/main.py; get log:/main.py; put {file} log:/main.py;
cp {file} log:/main.py; cp log:/main.py {folder}/copy.py; sync {folder} log:/; collect log:/data.csv -o {folder};
edit log:/main.py; rm log:/main.py; mkdir log:/lib; mv log:/main.py /other.py; hash log:/main.py; df log; rtc log;
rtc log --set; reset log; reset --hard log; soft-reset log; bootloader log; agent install log; agent remove log;
deploy {folder} --devices log --healthy ok; exec log print(1); run {file} log; eval log 1
"""
READS = ["info log", "devices", "devices --json", "stats", "recordings", "tail log -n 2", "replay log -n 2"]


PORTS = ("socket", "rfc2217", "viewers")


class Logger(PrintingBoard):
    """Prints a JSON line at each tick, and keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = b""
        self._printed = 0

    def tick(self) -> None:
        self._printed += 1
        line = json.dumps({"n": self._printed, "temperature": 20.5}).encode() + b"\r\n"
        for connection in list(self.connections):
            self.print(connection, line)

    def received(self, connection: Connection, data: bytes) -> None:
        self.heard += data

    def heard_until(self, mark: bytes) -> bytes:
        """Wait until the last bytes that it was sent are `mark`, and return all."""
        until(lambda: self.heard.endswith(mark))
        return self.heard


@pytest.fixture
def logger() -> Iterator[Logger]:
    with Logger() as board:
        yield board


@contextlib.contextmanager
def served(board: Logger, tmp_path: Path, options: str = "?kind=lines") -> Iterator[RunningServer]:
    device = {"url": f"socket://{HOST}:{board.port}{options}", "record": True, "bridge": dict.fromkeys(PORTS, 0)}
    folder = {"folder": str(tmp_path / "recordings")}
    with serving({"log": device}, http=(HOST, 0), recordings=folder) as server:
        yield server


def body(needed: Mapping[str, Any], *, interrupt: bool) -> dict[str, Any]:
    """A body with what the JSON schema `needed` requires, and `interrupt` if it can have that."""
    keys = {name: VALUES[name] for name in needed.get("required", ()) if name != "type"}
    return keys | ({"interrupt": interrupt} if "interrupt" in needed["properties"] else {})


def ask_by_flight(location: str) -> None:
    """Send each request and each action, and read a part of each answer."""
    kinds = [each for each in vars(requests).values() if isinstance(each, type) and hasattr(each, "type")]
    assert len(kinds) >= 7
    with flight.connect(location) as client:
        list(client.list_flights())
        for interrupt in (False, True):
            for kind in kinds:
                request = body(kind.model_json_schema(), interrupt=interrupt) | {"type": kind.type}
                encoded = json.dumps(request).encode()
                command = flight.FlightDescriptor.for_command(encoded)
                with contextlib.suppress(flight.FlightError, pa.ArrowException, KeyError):
                    client.get_flight_info(command)
                with contextlib.suppress(flight.FlightError, pa.ArrowException, KeyError):
                    client.get_schema(command)
                with contextlib.suppress(flight.FlightError, pa.ArrowException, KeyError):
                    reader = client.do_get(flight.Ticket(encoded))
                    reader.read_chunk()
                    reader.cancel()
                if kind.type == "device.session":  # a terminal that types nothing
                    writer, reader = client.do_exchange(command)
                    writer.begin(DATA.schema)
                    assert reader.read_chunk().data is not None
                    writer.close()
                else:
                    with contextlib.suppress(flight.FlightError, pa.ArrowException, KeyError):
                        writer, _ = client.do_put(command, ROWS.schema)
                        writer.write_batch(ROWS)
                        writer.close()
            for action in client.list_actions():
                schema = action.description.partition("\n")[2]
                if schema and action.type not in ENDS:
                    content = json.dumps(body(json.loads(schema), interrupt=interrupt)).encode()
                    with contextlib.suppress(flight.FlightError, pa.ArrowException, KeyError):
                        list(client.do_action(flight.Action(action.type, content)))


def ask_by_http(http: str) -> None:
    with httpx.Client(base_url=http, timeout=SECONDS) as client:
        for path, methods in client.get("/openapi.json").json()["paths"].items():
            at = path.replace("{device}", "log").replace("/{path}", "/main.py").replace("{name}", "log")
            for method in methods:
                for query in ("", "?interrupt=1"):
                    with client.stream(method.upper(), at + query, json=VALUES if method == "post" else None):
                        pass
        for request in ({"type": "device.listing", "device": "log"}, {"type": "device.exec", **VALUES}):
            client.post("/stream", json=request)
        client.post("/sql", content="select * from log.rows")
        client.post("/actions/device.reset", json={"device": "log"})
    for name in ("fleet", "repl/log"):
        with connect(f"{http.replace('http', 'ws')}/ws/{name}") as opened:
            opened.recv(SECONDS)


def run(server: RunningServer, command: str, folder: Path) -> Any:
    file = folder / "main.py"
    file.write_text("print(1)\n")
    words = command.format(file=file, folder=folder).split()
    environment = {"FASTFLIGHT_SERVER": server.location, "COLUMNS": "120", "EDITOR": "true"}
    return CliRunner().invoke(app, words, env=environment, input="")


def run_with_input(server: RunningServer, *command: str, input: str = "") -> Any:
    """Run a command that needs a real standard input."""
    arguments = [*PROGRAM, *command, "--server", server.location]
    return subprocess.run(arguments, input=input, capture_output=True, text=True, timeout=SECONDS)


def test_nothing_is_sent_to_a_device_that_only_prints(logger: Logger, tmp_path: Path) -> None:
    with served(logger, tmp_path) as server, FastFlightClient(server.location) as client:
        ask_by_flight(server.location)
        assert server.http is not None and not logger.heard
        ask_by_http(server.http)
        assert not logger.heard
        folder = tmp_path / "program"
        folder.mkdir()
        for command in COMMANDS.split(";"):
            result = run(server, command, folder)
            assert result.exit_code and ONLY_PRINTS in " ".join(result.output.split()), (command, result.output)
            assert run(server, f"{command} --interrupt", folder).exit_code, command
        for command in READS:
            result = run(server, command, folder)
            assert result.exit_code == 0, (command, result.output)
        assert ONLY_PRINTS in run_with_input(server, "mount", str(folder), "log").stderr
        assert '"temperature": 20.5' in run_with_input(server, "repl", "log").stdout
        url = f"socket://{HOST}:{logger.port}?kind=lines"
        for command in (f"doctor --device {url}", f"info --device {url}"):
            result = run(server, command, folder)
            assert result.exit_code == 0 and "lines" in result.output, result.output
        ports = server.bridges["log"]
        assert ports.socket is not None and ports.rfc2217 is not None and ports.viewers is not None
        for port in (ports.viewers, ports.rfc2217):
            with socket.create_connection((HOST, port), SECONDS) as bridged:
                assert bridged.recv(100)
        until(lambda: client.devices()[0].holder is None)
        with socket.create_connection((HOST, ports.socket), SECONDS) as bridged:
            assert bridged.recv(100)
            # What clients send on purpose is sent, and nothing else ever was.
            bridged.sendall(b"from a bridge\n")
            assert logger.heard_until(b"from a bridge\n") == b"from a bridge\n"
        until(lambda: client.devices()[0].holder is None)
        request = {"type": "device.session", "device": "log"}
        with flight.connect(server.location) as plain:
            writer, _ = plain.do_put(flight.FlightDescriptor.for_command(json.dumps(request).encode()), DATA.schema)
            writer.write_batch(DATA)
            writer.close()
        assert logger.heard_until(b"set 1\n") == b"from a bridge\nset 1\n"
        until(lambda: client.devices()[0].holder is None)
        assert run_with_input(server, "repl", "log", input="set 2\nset 3\n").returncode == 0
    until(lambda: not logger.connections)
    assert logger.heard == b"from a bridge\nset 1\nset 2\nset 3\n"


@pytest.mark.filterwarnings("ignore:log.rows. 1 row rejected")  # the recording may begin within a line
def test_its_lines_are_tables(logger: Logger, tmp_path: Path) -> None:
    with served(logger, tmp_path) as server, FastFlightClient(server.location) as client:
        (device,) = client.devices()
        assert (device.kind, device.url) == ("lines", f"socket://{HOST}:{logger.port}?kind=lines")
        assert client.info("log")["kind"] == "lines"
        assert client.sql("select kind from fastflight.devices").to_arrow().to_pydict() == {"kind": ["lines"]}
        until(lambda: client.recordings()[0].rows > 5)
        table = client.sql("select temperature from log.rows limit 3").to_arrow()
        assert table.column("temperature").to_pylist() == [20.5] * 3
        assert not [each for each in client.sql("show tables").to_arrow()["name"].to_pylist() if each.endswith(".py")]
        for refuse in (client.ls, client.reset):
            with pytest.raises(RequestError, match=f"log: {ONLY_PRINTS}"):
                refuse("log")


def test_a_device_that_prints_and_does_not_answer_is_asked_once(logger: Logger, tmp_path: Path) -> None:
    with served(logger, tmp_path, "") as server, FastFlightClient(server.location) as client:
        kinds = []
        for _ in range(4):
            with pytest.raises(BusyError, match=re.escape("add ?kind=lines to its address")):
                client.ls("log")
            with pytest.warns(IncompleteWarning, match="the files of log are not listed"):
                client.sql("show tables").to_arrow()
            kinds.append(client.devices()[0].kind)
        assert (logger.heard, set(kinds)) == (b"\x02", {"unknown"})


def test_a_device_that_prints_on_after_an_interrupt_only_prints(
    logger: Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastflight.protocol.raw_repl.ANSWER_SECONDS", 0.1)
    with served(logger, tmp_path, "") as server, FastFlightClient(server.location) as client:
        with pytest.raises(Exception, match="If it only prints, add"):
            client.ls("log", interrupt=True)
        heard = logger.heard
        assert client.devices()[0].kind == client.info("log")["kind"] == "lines"
        for _ in range(3):
            with pytest.raises(BusyError, match="has not stopped for Ctrl-C"):
                client.ls("log")
        assert logger.heard == heard
        # Another device may have the line next.
        logger.close(logger.connections[0])
        until(lambda: client.devices()[0].kind == "unknown")
