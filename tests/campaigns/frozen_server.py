"""Freezes a server in the middle of its work, and reports which error each client gets, and after how long.

    python -m tests.campaigns.frozen_server

An upload, a download and a live session run at the same time, each with a board of its own. When all have begun, the
server is stopped (SIGSTOP), and the script waits for each client. Takes up to seven minutes. Not on Windows; loopback
only.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fastflight.client import FastFlightClient
from fastflight.errors import FastFlightError
from fastflight_benchmark import ending
from fastflight_benchmark.spawned import spawned

# At 115200 baud, a minute's worth: none is done before the server is stopped.
BYTES = 600_000


def main() -> None:
    """Print a line for each."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "large.bin").write_bytes(bytes(BYTES))
        line = f"sim:?baud=115200&files={folder}"
        devices = [f"--device=up={line}", f"--device=down={line}", "--device=live=sim:?telemetry=10"]
        with spawned("fastflight", "serve", "--server", "grpc://127.0.0.1:0", *devices) as server:
            try:
                _freeze(server.pid, server.location, Path(folder) / "large.bin")
            finally:
                os.kill(server.pid, signal.SIGCONT)


def _freeze(pid: int, location: str, local: Path) -> None:
    begun = threading.Barrier(4)

    def upload(client: FastFlightClient, began: Callable[[], None]) -> None:
        client.put_file("up", "/written.bin", local, progress=lambda *_: began())

    def download(client: FastFlightClient, began: Callable[[], None]) -> None:
        for _ in client.read("down", "/large.bin", format="raw"):
            began()

    def session(client: FastFlightClient, began: Callable[[], None]) -> None:
        for _ in client.session("live"):
            began()

    def work(act: Callable[[FastFlightClient, Callable[[], None]], None]) -> None:
        waiting = [begun]

        def began() -> None:
            while waiting:
                waiting.pop().wait()

        with FastFlightClient(location) as client:
            try:
                act(client, began)
            except FastFlightError as error:
                begun.abort()  # where it never began, nobody is to wait for it
                print(f"{act.__name__}: after {time.monotonic() - frozen[0]:.0f} s {type(error).__name__}: {error}")

    frozen = [0.0]
    working = [threading.Thread(target=work, args=(act,)) for act in (upload, download, session)]
    for each in working:
        each.start()
    begun.wait()
    os.kill(pid, signal.SIGSTOP)
    frozen[0] = time.monotonic()
    for each in working:
        each.join()


if __name__ == "__main__":
    ending.like_ctrl_c()
    main()
