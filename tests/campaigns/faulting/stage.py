"""The stage of a campaign: two simulated boards, their lines, a server that records one of them, and its clients.

    board `files`  --+                                +--  client (Flight)
                     |--  line  --  server (serve)  --|--  browser (HTTP, WebSocket)
    board `talker` --+
                                         a TCP target  --  the server's relay

A chaos proxy stands between any two that are connected by a socket; `proxies` has them by the name of the hop. A line
is one of `LINES`. `repair` starts again what has ended, as an operator or a service manager would.

TLS and a token can guard the server's port and its gateway's.

The server's clock can be set, and its recordings lie on a small disk. If the system does not allow that, `missing` says
so, and no disk is filled.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from pyarrow import flight

from fastflight.app.config import DRAIN_SECONDS
from fastflight.app.process import END_SECONDS
from fastflight.client import FastFlightClient
from fastflight.errors import FastFlightError
from fastflight_benchmark.simulated import SimulatedBoard
from tests.campaigns.faulting.guard import OPEN, guarded
from tests.campaigns.faulting.portname import PortName
from tests.campaigns.faulting.program import Program
from tests.campaigns.faulting.talker import PROGRAM
from tests.campaigns.faulting.target import relay_target
from tests.support.chaos import ChaosProxy
from tests.support.clock import SettableClock
from tests.support.small_disk import SmallDisk
from tests.support.targets import TargetMissing

HOST = "127.0.0.1"
# How a device is reached: the schemes of device URLs.
SOCKET, RFC2217, SERIAL = LINES = ("socket", "rfc2217", "serial")
FILES, TALKER = BOARDS = ("files", "talker")
CLIENT_SERVER, BROWSER_GATEWAY, RELAY_TARGET = "client - server", "browser - gateway", "relay - target"
SERVER_BOARD, TOOL_BRIDGE, BRIDGE_BOARD = "server - board", "tool - bridge", "bridge - board"
# For all that a stage records in an hour, several times over; what is left of it is memory that can be had.
DISK_BYTES = 32 * 1024 * 1024
# What is recorded is promised after so long.
SYNC_MS = 100
FLEET = """\
[recordings]
folder = "recordings"
sync_ms = {sync}
max_days = 1

[devices.files]
url = "{files}"

[devices.talker]
url = "{talker}"
record = true
"""
# None of the calls made here takes longer, but for streams.
CALL_SECONDS = 30.0


class Stage:
    """The whole stage, while the context lasts. `line` is how the server reaches its boards."""

    def __init__(self, folder: Path, line: str, *, tls: bool = False, seed: int = 0) -> None:
        self.folder = folder
        self.line = line
        self.boards = {name: self._board(name) for name in BOARDS}
        self.proxies: dict[str, ChaosProxy] = {}
        self.guard = guarded(folder, HOST) if tls else OPEN
        # What cannot be done here, by name, and why.
        self.missing: list[str] = []
        self.flaws: list[str] = []
        self.disk: SmallDisk | None = None
        self._seed = seed
        self._ports: dict[str, PortName] = {}
        self._bridges: dict[str, Program] = {}
        self._parts = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as parts:
            for name, board in self.boards.items():
                board.folder.mkdir(parents=True, exist_ok=True)
                if name == TALKER:
                    (board.folder / "main.py").write_text(PROGRAM)
                board.start()
                parts.callback(board.stop)
            urls = {name: self._lay(name, parts) for name in BOARDS}
            fleet = self.folder / "fleet.toml"
            fleet.write_text(FLEET.format(sync=SYNC_MS, **urls))
            self._proxy(RELAY_TARGET, parts.enter_context(relay_target()), parts)
            try:
                self.disk = parts.enter_context(SmallDisk(self.folder / "recordings", DISK_BYTES))
            except TargetMissing as missing:
                self.missing.append(str(missing))
            self._clock = parts.enter_context(SettableClock(self.folder))
            environment = {**os.environ, **self._clock.environment}
            own = f"{self.guard.scheme}://{HOST}"
            serving = ["serve", "--server", f"{own}:0", "--fleet", str(fleet), "--http", "0", *self.guard.serving]
            serving += ["--relay-allow", f"{HOST}:{self.proxies[RELAY_TARGET].port}"]
            listening = [rf"listening on {re.escape(own)}:(\d+)", rf"listening on https?://{HOST}:(\d+)"]
            self.server = Program("server", serving, listening, self.folder / "server.log", environment)
            self._proxy(CLIENT_SERVER, 1, parts)
            self._proxy(BROWSER_GATEWAY, 1, parts)
            self._serve()
            parts.callback(lambda: self.server.kill())
            self._parts = parts.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parts.close()

    def location_of(self, hop: str) -> str:
        """Return the address for a Flight client behind the proxy of a hop."""
        return f"{self.guard.scheme}://{HOST}:{self.proxies[hop].port}"

    @property
    def location(self) -> str:
        """The server's own address, without a proxy."""
        return f"{self.guard.scheme}://{HOST}:{self._port}"

    def client(self, hop: str | None = None) -> FastFlightClient:
        """Return an authenticated client, behind the proxy of a hop or behind none."""
        location = self.location if hop is None else self.location_of(hop)
        return FastFlightClient(location, timeout=CALL_SECONDS, credentials=self.guard.credentials)

    def promised(self) -> int:
        """Return up to which number the server reports the talker's rows as stored; 0 if it does not answer."""
        with contextlib.suppress(Exception), self.client() as client:
            return max((each.next_seq for each in client.recordings() if each.name == TALKER), default=0)
        return 0

    def direct(self) -> flight.FlightClient:
        """Return a bare pyarrow client, without a proxy."""
        return flight.connect(self.location, **self.guard.credentials.options(self.location))

    def repair(self) -> None:
        """End all faults, and start what has ended."""
        for name, board in self.boards.items():
            board.mend()
            if not board.is_alive:
                board.stop()
                board.start()
                self._reach(name)
        for name, bridge in self._bridges.items():
            if not bridge.is_alive:
                bridge.kill()
                self._share(name)
        if not self.server.is_alive:
            self.server.kill()
            self._serve()
        self.server.freeze(False)
        self.set_clock(0)

    def stop_server(self) -> None:
        """Tell the server to shut down, and wait until it has ended."""
        if code := self.server.stop(DRAIN_SECONDS + END_SECONDS):
            self.flaws.append(f"the server was told to shut down, and ended with {code}")

    def kill_server_twice(self, seconds: float) -> None:
        """Kill the server, and the next one so many seconds after its start, often before it listens."""
        self.server.kill()
        self.server.spawn()
        time.sleep(seconds)
        self.server.kill()

    def record(self, is_recorded: bool) -> None:
        """Stop the recording of the talker, or start it. A server that has ended starts it by itself."""
        with contextlib.suppress(FastFlightError), self.client() as client:
            (client.start_recording if is_recorded else client.stop_recording)(TALKER)

    def set_clock(self, seconds: float) -> None:
        """Set the server's clock so many seconds ahead of the right time, or behind it."""
        self._clock.set(seconds)

    def kill_board(self, name: str) -> None:
        """End a board's process, as if its power failed."""
        os.kill(self.boards[name].pid, signal.SIGKILL)

    def kill_bridge(self, name: str) -> None:
        """End the process that shares a board."""
        self._bridges[name].kill()

    @property
    def programs(self) -> list[Program]:
        return [self.server, *self._bridges.values()]

    def _board(self, name: str) -> SimulatedBoard:
        return SimulatedBoard(self.folder / name, 0, listen="" if self.line == SERIAL else f"{HOST}:0")

    def _lay(self, name: str, parts: ExitStack) -> str:
        """Make the line to a board. Return the URL for the server."""
        board = self.boards[name]
        if self.line == SERIAL:
            self._ports[name] = parts.enter_context(PortName(self.folder / f"{name}-port"))
            self._reach(name)
            return f"serial://{self.folder / name}-port?baud=4000000"
        proxy = self._proxy(
            f"{BRIDGE_BOARD if self.line == RFC2217 else SERVER_BOARD} {name}", _port(board.path), parts
        )
        if self.line == SOCKET:
            return f"socket://{HOST}:{proxy.port}"
        sharing = ["bridge", f"socket://{HOST}:{proxy.port}", "--rfc2217", "0"]
        bridge = Program(f"bridge {name}", sharing, [rf"rfc2217://{HOST}:(\d+)"], self.folder / f"bridge-{name}.log")
        self._bridges[name] = bridge
        tools = self._proxy(f"{TOOL_BRIDGE} {name}", 1, parts)
        self._share(name)
        parts.callback(bridge.kill)
        return f"rfc2217://{HOST}:{tools.port}"

    def _reach(self, name: str) -> None:
        """Let the line lead to a board that has started again."""
        board = self.boards[name]
        if self.line == SERIAL:
            self._ports[name].aim(board.path)
        else:
            hop = BRIDGE_BOARD if self.line == RFC2217 else SERVER_BOARD
            self.proxies[f"{hop} {name}"].aim(_port(board.path))

    def _share(self, name: str) -> None:
        self.proxies[f"{TOOL_BRIDGE} {name}"].aim(int(self._bridges[name].start()[0]))

    def _serve(self) -> None:
        self._port, http = (int(port) for port in self.server.start())
        self.proxies[CLIENT_SERVER].aim(self._port)
        self.proxies[BROWSER_GATEWAY].aim(http)
        self.http_port = http

    def _proxy(self, hop: str, port: int, parts: ExitStack) -> ChaosProxy:
        self.proxies[hop] = parts.enter_context(ChaosProxy(HOST, port, seed=self._seed + len(self.proxies)))
        return self.proxies[hop]


def _port(path: str) -> int:
    return int(path.rpartition(":")[2])
