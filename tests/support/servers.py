"""Servers for tests, on loopback and at a free port: `serving` in this process, `running` in a process of its own.

    with serving({"demo": "sim:?telemetry=0"}) as server:              # the keywords are those of `Config`
        FastFlightClient(server.location)

    with running("--device", "demo=sim:", "--http", "0") as server:    # the options are those of `fastflight serve`
        http = server.read_until(r"listening on (http://\\S+)")
        assert server.end() == 0

Both listen when the block begins. When it ends, the first has closed; the second is killed unless it has ended.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

from fastflight.app.compose import open_server
from fastflight.app.config import Config
from fastflight.app.running import RunningServer
from fastflight.client import FastFlightClient
from tests.support.commands import Command

FREE_PORT = "grpc://127.0.0.1:0"
Devices = Mapping[str, str | Mapping[str, Any]]
DEMO = {"demo": "sim:"}
# The benchmark's table, request type `mock`.
TABLE = ("--source", "fastflight_benchmark.mock:SOURCE")
SERVE = ("serve", "--server", FREE_PORT)
PROGRAM = (sys.executable, "-m", "fastflight")
# For a process that has to import all of it on a busy machine.
SECONDS = 120.0


def config(devices: Devices = DEMO, *, record: Collection[str] = (), **keys: Any) -> Config:
    """The settings of a server. `devices` are URLs, or tables as in a fleet file; `record` are those to record."""
    tables: dict[str, Any] = {
        name: {"url": each} if isinstance(each, str) else {**each} for name, each in devices.items()
    }
    for name in record:
        tables[name]["record"] = True
    return Config.model_validate({"location": FREE_PORT, "devices": tables, **keys})


def serving(devices: Devices = DEMO, **keys: Any) -> AbstractContextManager[RunningServer]:
    """A server as the command line puts it together, with the settings of `config`."""
    return open_server(config(devices, **keys))


@contextmanager
def ready_server(devices: Devices = DEMO, **keys: Any) -> Iterator[str]:
    """The location of such a server, once the lines of its devices are open: they are no leak of a test."""
    with serving(devices, **keys) as server:
        with FastFlightClient(server.location) as client:
            for name in devices:
                client.info(name)
        yield server.location


def running(
    *options: str, command: Sequence[str] = SERVE, program: Sequence[str] = PROGRAM
) -> AbstractContextManager[ServerProcess]:
    """`fastflight serve` with these options."""
    return closing(ServerProcess(*options, command=command, program=program))


class ServerProcess:
    """A server's process, from the moment it listens. `lines` is all that it has printed, errors among it."""

    def __init__(self, *options: str, command: Sequence[str] = SERVE, program: Sequence[str] = PROGRAM) -> None:
        self.process = Command(
            [*program, *command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )
        self.lines: list[str] = []
        self._ended = False
        self._news = threading.Condition()
        # Read at once: a server whose output nobody reads would wait for that.
        self._reading = threading.Thread(target=self._read, name="server output", daemon=True)
        self._reading.start()
        try:
            self.location = self.read_until(r"listening on (\S+?);")
        except BaseException:
            self.close()
            raise

    def read_until(self, pattern: str) -> str:
        """Wait until a line has been printed that matches. Return its group, or the line if there is none."""
        looked_at = 0
        with self._news:
            while True:
                for line in self.lines[looked_at:]:
                    if match := re.search(pattern, line):
                        return match[1] if match.groups() else line
                looked_at = len(self.lines)
                assert not self._ended, f"ended without a line like {pattern}: {self.lines}"
                assert self._news.wait(SECONDS), f"no line like {pattern} for {SECONDS:g} s: {self.lines}"

    def end(self, number: signal.Signals = signal.SIGTERM, seconds: float = SECONDS) -> int:
        """Send it a signal and wait until it ends. Return its exit code; `lines` is complete then."""
        self.process.send_signal(number)
        code = self.process.wait(seconds)
        self._reading.join(seconds)
        return code

    def close(self) -> None:
        """Kill it if it runs, even if it is stopped."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self._reading.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()
