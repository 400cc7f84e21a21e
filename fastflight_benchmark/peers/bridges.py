"""Starts bridges in front of a device, each in a process of its own that ends with the context.

`Server.ports` has the addresses of its ports `raw`, `rfc2217` and `viewers`, as (host, port). Raises `NotInstalled` if
the program is missing.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from fastflight.errors import TransportError
from fastflight_benchmark.spawned import START_SECONDS, end, spawned

FASTFLIGHT, SOCAT, SER2NET = "fastflight", "socat", "ser2net"
RAW, RFC2217, VIEWERS = "raw", "rfc2217", "viewers"
Endpoint = tuple[str, int]
# ser2net is installed here, which is not on every user's PATH.
SBIN = "/usr/sbin"
POLL_SECONDS = 0.002
# How much socat reads at once. Its default of 8 KiB would make it too slow as a reference.
SOCAT_BYTES = 262_144
SHARED = re.compile(r"(viewers at )?(rfc2217|socket)://([\d.]+):(\d+)")
# The highest rate that systems accept, because the pseudo-terminal has no pace.
BAUD = 4_000_000


class NotInstalled(TransportError):
    """A peer is not installed on this computer."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    name: str
    pid: int
    ports: Mapping[str, Endpoint]


@contextlib.contextmanager
def fastflight(device: str, *, viewers: bool = False, baud: int = BAUD) -> Iterator[Server]:
    """Start `fastflight bridge` in front of a terminal (its path) or a socket (`host:port`)."""
    url = f"serial://{device}?baud={baud}" if is_terminal(device) else f"socket://{device}"
    options = ["--rfc2217", "0", "--socket", "0", *(["--viewers", "0"] if viewers else [])]
    with _running(FASTFLIGHT, [sys.executable, "-m", "fastflight", "bridge", url, *options], piped=True) as process:
        kinds = {"rfc2217": RFC2217, "socket": RAW}
        # The first address in the line is the device's own.
        found = SHARED.findall(_first_line(process).partition(" at ")[2])
        ports = {VIEWERS if seen else kinds[kind]: (host, int(port)) for seen, kind, host, port in found}
        yield Server(FASTFLIGHT, process.pid, ports)


@contextlib.contextmanager
def socat(device: str) -> Iterator[Server]:
    """Start a bare socat. It serves one client, then it ends."""
    target = f"OPEN:{device},rawer" if is_terminal(device) else f"TCP:{device},nodelay"
    command = [_found(SOCAT), "-b", f"{SOCAT_BYTES}", "TCP-LISTEN:0,bind=127.0.0.1,nodelay", target]
    with _running(SOCAT, command) as process:
        yield Server(SOCAT, process.pid, {RAW: _listening(process)})


@contextlib.contextmanager
def ser2net(device: str) -> Iterator[Server]:
    """Start ser2net with RFC 2217 in front of a terminal."""
    program = _found(SER2NET)
    with tempfile.TemporaryDirectory(prefix="fastflight-ser2net-") as folder:
        config = Path(folder) / "ser2net.yaml"
        config.write_text(
            "connection: &only\n"
            "  accepter: telnet(rfc2217),tcp(nodelay),127.0.0.1,0\n"
            f"  connector: serialdev,{device},115200n81,local\n"
            # Otherwise it waits for more characters, for a time that depends on the line's speed.
            "  options:\n"
            "    chardelay: false\n",
            encoding="utf-8",
        )
        with _running(SER2NET, [program, "-n", "-d", "-c", str(config)]) as process:
            yield Server(SER2NET, process.pid, {RFC2217: _listening(process)})


@contextlib.contextmanager
def null_device(*, terminal: bool) -> Iterator[str]:
    """Start a device that only moves bytes. Yield the path of its terminal, or its `host:port`."""
    with spawned("fastflight_benchmark.peers.null_device", "--terminal" if terminal else "--socket") as process:
        yield process.location


def is_terminal(device: str) -> bool:
    """Whether a device's name is a path."""
    return device.startswith("/")


def endpoint(device: str) -> Endpoint:
    """Split the `host:port` of a device that is a socket."""
    host, _, port = device.rpartition(":")
    return host, int(port)


def _found(program: str) -> str:
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}{os.pathsep}{SBIN}")
    if path is None:
        raise NotInstalled("not installed", where=program, hint=f"apt-get install {program}")
    return path


@contextlib.contextmanager
def _running(name: str, command: Sequence[str], *, piped: bool = False) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if piped else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        # Ctrl-C is for the benchmark, which ends the server itself.
        start_new_session=True,
    )
    try:
        yield process
    finally:
        end(process)
        if process.stdout is not None:
            process.stdout.close()


def _first_line(process: subprocess.Popen[str]) -> str:
    if process.stdout is not None and select.select([process.stdout], [], [], START_SECONDS)[0]:
        return process.stdout.readline()
    raise TransportError("the bridge did not start", where=FASTFLIGHT)


def _listening(process: subprocess.Popen[str]) -> Endpoint:
    """Return where a process listens, from the system: a test connection would be the one client that socat serves."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for connection in psutil.Process(process.pid).net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                return connection.laddr.ip, connection.laddr.port
        time.sleep(POLL_SECONDS)
    raise TransportError("the process does not listen", where=str(process.args))
