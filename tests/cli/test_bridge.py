"""`fastflight bridge` as a process: what it prints, and how it ends."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.support.commands import FASTFLIGHT, Command, run_command

SECONDS = 60
PORTS = ("--rfc2217", "0", "--socket", "0", "--viewers", "0")
ECHO = """
import os

while data := os.read(0, 65536):
    while data:
        data = data[os.write(1, data):]
"""
# A device that needs no time to start, and sends back what it gets.
DEVICE = f"exec:{shlex.join([sys.executable, '-c', ECHO])}"


@contextmanager
def sharing(
    *options: str, start: Callable[..., subprocess.Popen[str]] = Command, program: Sequence[str] = FASTFLIGHT
) -> Iterator[tuple[subprocess.Popen[str], dict[str, int]]]:
    """A bridge process, and its ports by kind."""
    command = [*program, "bridge", *options]
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            found = re.findall(r"(viewers at )?(rfc2217|socket)://127\.0\.0\.1:(\d+)", ready)
            yield process, {"viewers" if viewers else kind: int(port) for viewers, kind, port in found}
        finally:
            process.kill()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), SECONDS)


def test_it_says_what_to_type_and_shares_the_device() -> None:
    with sharing(DEVICE, *PORTS) as (process, ports), connected(ports["socket"]) as tool:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(6)]
        assert f"  mpremote connect socket://127.0.0.1:{ports['socket']}\n" in lines
        assert f"  esptool --port 'rfc2217://127.0.0.1:{ports['rfc2217']}?ign_set_control' flash-id\n" in lines
        assert f"  socat -u tcp:127.0.0.1:{ports['viewers']} -\n" in lines
        tool.sendall(b"ping")
        assert tool.recv(4) == b"ping"
        with connected(ports["rfc2217"]) as late, late.makefile("rb") as told:
            assert b"in use by 127.0.0.1:" in told.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_under_load_ends_it_in_order(number: signal.Signals) -> None:
    """A tool that goes on sending has the time that it is given."""
    with (
        sharing(DEVICE, *PORTS, "--drain", "0.5") as (process, ports),
        connected(ports["viewers"]),
        connected(ports["socket"]) as tool,
    ):
        loading = threading.Thread(target=_load, args=(tool,))
        loading.start()
        assert tool.recv(1)
        process.send_signal(number)
        assert process.wait(SECONDS) == 0
        loading.join()
        assert process.stderr is not None
        log = process.stderr.read()
        assert "the bridge is closing" in log
        assert "Traceback" not in log


def test_sigterm_in_a_storm_of_connections_ends_it_in_order_and_leaves_none_open() -> None:
    # A Python of its own, which says at its end what was dropped unclosed.
    program = (sys.executable, "-W", "always::ResourceWarning", "-m", "fastflight")
    with (
        sharing(DEVICE, *PORTS, start=subprocess.Popen, program=program) as (process, ports),
        contextlib.ExitStack() as crowd,
    ):
        assert process.stderr is not None
        log: list[str] = []
        # The bridge would wait for a log that nobody reads.
        reading = threading.Thread(target=lambda: log.extend(process.stderr or ()))
        reading.start()
        with contextlib.suppress(ConnectionError):  # in the end nobody listens any more
            for number in range(100_000):
                crowd.enter_context(connected(ports[("rfc2217", "socket", "viewers")[number % 3]]))
                if number == 300:
                    process.send_signal(signal.SIGTERM)
                if number > 300:
                    crowd.pop_all().close()
        assert process.wait(SECONDS) == 0
        reading.join()
        said = "".join(log)
    for sign in ("unclosed", "Traceback", "never retrieved", "was destroyed"):
        assert sign not in said


def test_the_second_signal_ends_it_at_once() -> None:
    with sharing(DEVICE, *PORTS) as (process, ports), connected(ports["socket"]) as tool:
        # Neither reads nor hangs up: told to go, it is given a moment.
        tool.sendall(b"x")
        assert tool.recv(1)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) in (0, -signal.SIGTERM)


def _load(tool: socket.socket) -> None:
    try:
        while True:
            tool.sendall(b"x" * 65536)
    except OSError:
        pass


def test_a_port_that_is_taken_is_told_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [*FASTFLIGHT, "bridge", DEVICE, "--socket", str(taken.getsockname()[1])]
        done = run_command(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 3
    assert "choose another one" in done.stderr
    assert "Traceback" not in done.stderr
