"""ser2net, the server that people have, in front of a pseudo-terminal that sends back what it gets."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.targets import TargetBroken, TargetMissing
from tests.transport.peers import EchoPeer

TARGET = "ser2net"
# Not on everybody's PATH.
SBIN = "/usr/sbin"
START_SECONDS = 20.0
POLL_SECONDS = 0.01


@contextmanager
def ser2net(folder: Path) -> Iterator[str]:
    """The RFC 2217 URL of a server that opens its port at 9600 baud. One client at a time."""
    program = shutil.which("ser2net", path=f"{os.environ.get('PATH', '')}{os.pathsep}{SBIN}")
    if program is None:
        raise TargetMissing(TARGET, "ser2net is not installed", "apt-get install ser2net")
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    config = folder / "ser2net.yaml"
    # Port 0: the system's choice, asked of the system below.
    config.write_text(
        "connection: &only\n"
        "  accepter: telnet(rfc2217),tcp,127.0.0.1,0\n"
        f"  connector: serialdev,{os.ttyname(theirs)},9600n81,local\n"
    )
    peer = EchoPeer(ours)
    process = subprocess.Popen(
        [program, "-n", "-d", "-c", str(config)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"rfc2217://127.0.0.1:{_listening(process)}"
    finally:
        process.kill()
        process.wait()
        peer.stop()
        os.close(theirs)


def _listening(process: subprocess.Popen[bytes]) -> int:
    """The port it listens on. Connecting to find out would be its one client."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise TargetBroken(TARGET, f"it ended with code {process.returncode}")
        for connection in psutil.Process(process.pid).net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                port: int = connection.laddr.port
                return port
        time.sleep(POLL_SECONDS)
    raise TargetBroken(TARGET, f"it did not listen within {START_SECONDS:g} s")
