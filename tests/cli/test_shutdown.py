"""SIGTERM to a real server with everything open that could keep it from ending: out in time, nothing half done.

Each row brings a server into trouble, tells it to end, and looks at what it left.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.client import FastFlightClient, Gap
from fastflight.log import StoreReader
from tests.support.servers import SECONDS, SERVE, TABLE, ServerProcess
from tests.support.waiting import until

# What it was told that streams get, and what it may take beyond, on a busy machine.
DRAIN, BEYOND = 0.5, 25.0
OLD = b"a,b\n1,2\n"
SCHEMA = pa.schema([("data", pa.binary())])
Check = Callable[[], None]


class Child(ServerProcess):
    """A server process that gives its streams little time to end."""

    def __init__(self, *options: str, command: Sequence[str] = SERVE) -> None:
        super().__init__("--drain", f"{DRAIN}", *TABLE, *options, command=command)

    def ended(self) -> int:
        """Its exit code, told to end and within its time."""
        code = self.end(seconds=DRAIN + BEYOND)
        self.read_until(f"stopping: open (streams|answers) have {DRAIN:g} s")
        return code


class Scene(contextlib.ExitStack):
    """A board's folder, clients that are left open until the server has ended, and what is looked at then."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.board = folder / "board"
        self.board.mkdir()
        (self.board / "old.csv").write_bytes(OLD)

    def client(self, child: Child) -> flight.FlightClient:
        client = flight.connect(child.location)
        self.callback(client.close)
        return client

    def connection(self, url: str, *lines: str) -> socket.socket:
        host, port = url.removeprefix("http://").split(":")
        connection = self.enter_context(socket.create_connection((host, int(port)), SECONDS))
        connection.sendall("".join(f"{line}\r\n" for line in lines).encode())
        return connection


def streams(scene: Scene, child: Child) -> Check:
    """Endless ones that are read, on both paths, and live ones."""
    ends: list[str] = []
    started = threading.Barrier(5)

    def read(**keys: object) -> None:
        with flight.connect(child.location) as client:
            reader = client.do_get(flight.Ticket(json.dumps(keys)))
            reader.read_chunk()
            started.wait(SECONDS)
            try:
                while True:
                    reader.read_chunk()
            except StopIteration:
                ends.append("by itself")
            except flight.FlightUnavailableError as error:
                ends.append("told" if "the server shuts down" in str(error) else str(error))

    slow = {"type": "mock", "rows_per_batch": 10, "total_rows": 1_000_000_000, "delay_per_row": 0.001}
    live = {"type": "device.session", "device": "demo"}
    asked = [{**keys, "mode": mode} for keys in (slow, live) for mode in ("sync", "async")]
    readers = [threading.Thread(target=read, kwargs=keys) for keys in asked]
    for reader in readers:
        reader.start()
    started.wait(SECONDS)

    def check() -> None:
        for reader in readers:
            reader.join(SECONDS)
        assert sorted(ends) == ["by itself", "by itself", "told", "told"]

    return check


def readers_that_do_not_read(scene: Scene, child: Child) -> Check:
    for mode in ("sync", "async"):
        asked = {"type": "mock", "mode": mode, "rows_per_batch": 10_000, "total_rows": 1_000_000_000}
        reader = scene.client(child).do_get(flight.Ticket(json.dumps(asked)))
        reader.read_chunk()
        scene.callback(lambda kept: None, reader)
    return lambda: None


def silent_writers(scene: Scene, child: Child) -> Check:
    writers = []
    for device, mode in (("demo", "sync"), ("other", "async")):
        asked = {"type": "device.file", "device": device, "path": "/old.csv", "format": "raw", "mode": mode}
        descriptor = flight.FlightDescriptor.for_command(json.dumps(asked))
        writer, reader = scene.client(child).do_put(descriptor, SCHEMA)
        writer.write_batch(pa.record_batch([pa.array([b"x" * 5000])], schema=SCHEMA))
        while "bytes" not in json.loads(reader.read().to_pybytes()):
            pass
        writers.append(writer)

    def check() -> None:
        for writer in writers:
            with pytest.raises(pa.ArrowException):
                writer.close()

    return check


def stalled_http(scene: Scene, child: Child) -> Check:
    """An upload that stops, a request that is never whole, an answer that nobody reads, and WebSockets."""
    by_itself = child.location.startswith("http")
    url = child.location if by_itself else child.read_until(r"listening on (http://\S+)")
    here = f"Host: {url.removeprefix('http://')}"
    upload = ("PUT /devices/demo/files/old.csv HTTP/1.1", here, "Content-Type: application/octet-stream")
    scene.connection(url, *upload, "Content-Length: 100000", "", "x" * 1000)
    scene.connection(url, "GET /devices HTTP/1.1")
    body = json.dumps({"type": "mock", "rows_per_batch": 10_000, "total_rows": 1_000_000_000})
    answer = scene.connection(url, "POST /stream HTTP/1.1", here, f"Content-Length: {len(body)}", "", body)
    assert answer.recv(12) == b"HTTP/1.1 200"
    upgrade = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
    key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
    for path in ("/ws/fleet", "/ws/repl/demo", "/ws/tcp?host=127.0.0.1&port=9"):
        opened = scene.connection(url, f"GET {path} HTTP/1.1", here, *upgrade, key, "")
        assert opened.recv(12) == b"HTTP/1.1 101"
    return lambda: None


def boards_that_are_gone(scene: Scene, child: Child) -> Check:
    """One that takes the connection and says nothing, one that hangs up, one that cannot be connected to."""
    clients = [
        threading.Thread(target=_asked, args=(child.location, name), daemon=True)
        for name in ("hung", "unplugged", "unreachable")
    ]
    for client in clients:
        client.start()

    def check() -> None:
        for client in clients:
            client.join(SECONDS)
            assert not client.is_alive()

    return check


def _asked(location: str, device: str) -> None:
    with flight.connect(location) as client, contextlib.suppress(pa.ArrowException):
        asked = {"type": "device.file", "device": device, "path": "/a.csv"}
        client.do_get(flight.Ticket(json.dumps(asked))).read_all()


def tool_at_a_bridge(scene: Scene, child: Child) -> Check:
    """One that goes on sending, and a viewer that only looks on."""
    ports = child.read_until(r"sharing shared at (.+)")
    port, viewers = (re.search(kind + r"socket://(\S+?)(?:,|$)", ports) for kind in ("(?<!viewers at )", "viewers at "))
    assert port is not None and viewers is not None
    tool, viewer = (scene.connection(found[1]) for found in (port, viewers))
    heard: dict[str, bytes] = {}
    at_work = threading.Event()

    def work() -> None:
        with contextlib.suppress(OSError):  # it was hung up on
            while data := _exchanged(tool, b"\r\n"):
                heard["tool"] = heard.get("tool", b"")[-1000:] + data
                at_work.set()

    def look_on() -> None:
        heard["viewer"] = b"".join(iter(lambda: viewer.recv(65536), b""))

    threads = [threading.Thread(target=each) for each in (work, look_on)]
    for thread in threads:
        thread.start()
    assert at_work.wait(SECONDS)

    def check() -> None:
        for thread in threads:
            thread.join(SECONDS)
        for last in heard.values():
            assert last.endswith(b"\r\nfastflight: the bridge is closing\r\n"), last[-100:]
        assert len(heard) == 2

    return check


def _exchanged(tool: socket.socket, data: bytes) -> bytes:
    tool.sendall(data)
    return tool.recv(65536)


# Those of a row share a server, and have nothing else in common.
TROUBLES: dict[str, tuple[tuple[Callable[[Scene, Child], Check], ...], tuple[str, ...]]] = {
    "streams, readers that do not read, boards that are gone": (
        (streams, readers_that_do_not_read, boards_that_are_gone),
        ("--device", "hung={hung}", "--device", "unplugged={unplugged}", "--device", "unreachable={unreachable}"),
    ),
    "silent writers, a tool at a bridge": ((silent_writers, tool_at_a_bridge), ("--fleet", "{fleet}")),
    "stalled http": ((stalled_http,), ("--http", "0", "--relay-allow", "127.0.0.1:9")),
}
FLEET = """
[devices.shared]
url = "sim:?telemetry=0"
bridge = { socket = 0, viewers = 0 }
"""


@pytest.mark.parametrize("trouble", TROUBLES)
def test_it_is_out_in_time_and_nothing_is_half_done(trouble: str, tmp_path: Path) -> None:
    troubles, options = TROUBLES[trouble]
    with Scene(tmp_path) as scene:
        url = f"sim:?telemetry=10&files={scene.board}"
        devices = ["--device", f"demo={url}", "--device", f"other={url}"]
        given: dict[str, object] = {"fleet": tmp_path / "fleet.toml"}
        (tmp_path / "fleet.toml").write_text(FLEET)
        if boards_that_are_gone in troubles:
            given |= {name: f"socket://127.0.0.1:{port}" for name, port in _boards(scene).items()}
        child = Child(*devices, *(option.format(**given) for option in options))
        scene.callback(child.close)
        checks = [bring(scene, child) for bring in troubles]
        assert child.ended() == 0, child.lines
        for check in checks:
            check()
        assert {file.name: file.read_bytes() for file in scene.board.iterdir()} == {"old.csv": OLD}
        assert "Traceback" not in "".join(child.lines)


def _boards(scene: Scene) -> dict[str, int]:
    hung = scene.enter_context(socket.create_server(("127.0.0.1", 0)))
    unplugged = scene.enter_context(socket.create_server(("127.0.0.1", 0)))

    def hang_up() -> None:
        with contextlib.suppress(OSError):
            while True:
                unplugged.accept()[0].close()

    threading.Thread(target=hang_up, daemon=True).start()
    scene.callback(unplugged.shutdown, socket.SHUT_RDWR)
    # One that listens and has no room: who connects is not answered.
    full = scene.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    for _ in range(3):
        waiting = scene.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(full.getsockname())
    return {
        name: server.getsockname()[1]
        for name, server in {"hung": hung, "unplugged": unplugged, "unreachable": full}.items()
    }


def test_what_was_recorded_until_then_is_whole(tmp_path: Path) -> None:
    with contextlib.closing(
        Child("--device", "demo=sim:?telemetry=50", "--record", "demo", "--recordings", str(tmp_path))
    ) as child:
        with FastFlightClient(child.location) as client, client.session("demo") as rows:
            heard = b"".join(
                b"".join(batch.column("data").to_pylist()) for batch, _ in zip(rows, range(20), strict=False)
            )
        assert child.ended() == 0, child.lines
    stored = [item for item in StoreReader(tmp_path).log("demo").read() if not isinstance(item, Gap)]
    assert heard in b"".join(b"".join(item.batch.column("data").to_pylist()) for item in stored)


def test_a_second_signal_ends_it_at_once_and_the_first_has_it_say_that_it_drains() -> None:
    with contextlib.closing(Child("--drain", "600")) as child, flight.connect(child.location) as client:
        asked = {"type": "mock", "rows_per_batch": 10, "total_rows": 1_000_000_000, "delay_per_row": 0.001}
        reader = client.do_get(flight.Ticket(json.dumps(asked)))
        reader.read_chunk()
        child.process.send_signal(signal.SIGTERM)
        child.read_until("stopping: open streams have 600 s")
        with flight.connect(child.location) as other:
            until(lambda: json.loads(next(iter(_health(other))).body.to_pybytes())["status"] == "draining")
            with pytest.raises(flight.FlightUnavailableError, match="the server shuts down"):
                other.do_get(flight.Ticket(b'{"type": "mock"}')).read_all()
        assert reader.read_chunk().data.num_rows > 0
        child.process.send_signal(signal.SIGTERM)
        assert child.process.wait(SECONDS) == -signal.SIGTERM


def _health(client: flight.FlightClient) -> Iterator[flight.Result]:
    return client.do_action(flight.Action("health", b""))  # type: ignore[no-any-return]
