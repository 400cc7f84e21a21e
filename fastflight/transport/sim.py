"""`sim:`: the simulated board, a child process behind a loopback socket. Runs on every operating system.

The child connects to a port that is opened for it alone, and first sends a one-time token, so that no other local
process can pose as the board or as its host.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from fastflight.concurrency import off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.simulator.samples import write_samples
from fastflight.transport import url_parts
from fastflight.transport.socket import SocketPort

NUMBERS = ("baud", "ring", "hold", "capacity", "heap", "no-raw-paste", "no-interrupt", "soft-timers", "seed")
# The options of a URL that may be repeated.
LISTS = ("fault", "without")
# The public options: all but a folder.
SHOWN = ("telemetry", *LISTS, *NUMBERS)
OPTIONS = ("files", *SHOWN)
TOKEN_VARIABLE = "FASTFLIGHT_SIMULATOR_TOKEN"  # noqa: S105  # the name of a variable
# The environment variables that Python may need to start. The board gets no others: code on it can read all of them.
ENVIRONMENT = frozenset({"PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT"})
# Starts the simulator without site-packages, which it does not need: it starts faster, and runs no `.pth` file.
START = "import sys; sys.path.append(sys.argv.pop(1)); from fastflight.simulator.__main__ import main; main()"
PACKAGES = str(Path(__file__).resolve().parents[2])
GRACE_SECONDS = 2.0
# A start bit, eight data bits, a stop bit.
BITS_PER_BYTE = 10


# The connection of a simulated board, and its process.
Started = tuple[socket.socket, "subprocess.Popen[bytes]"]


@dataclass(slots=True)
class SimAddress:
    """A simulated board. Without `files` its file tree is a temporary folder, which exists until `dispose`.

    `dispose` may be called from another thread while the board starts: it aborts the start and waits for its end.
    """

    url: str
    options: tuple[tuple[str, str], ...] = ()
    files: str | None = None
    _folder: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)
    _disposed: bool = field(default=False, repr=False)
    _starting: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    async def aopen(self, timeout: float) -> SocketPort:
        stream, child = await off_loop(self._start, timeout, discard=_abandon)
        baud = int(dict(self.options).get("baud", 0))
        port = SocketPort(self.url, lambda: _end(child), bytes_per_second=baud / BITS_PER_BYTE or None)

        async def connect() -> None:
            await asyncio.get_running_loop().create_connection(lambda: port, sock=stream)

        try:
            # Not cancelled: some versions of uvloop then close the descriptor of the socket without its knowledge. The
            # socket would close it again, when it may already belong to another connection.
            await unbroken(connect())
        except asyncio.CancelledError:
            await unbroken(port.aclose())
            raise
        return port

    def _start(self, timeout: float) -> Started:
        try:
            with self._starting:
                return self._start_child(timeout)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise TransportError(
                f"the simulated board did not start ({reason})", where=self.url, hint="Try again when fewer are open"
            ) from error

    def dispose(self) -> None:
        self._disposed = True
        with self._starting:
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None

    def _check(self) -> None:
        if self._disposed:
            raise TransportClosed("closed while the board started", where=self.url)

    def _start_child(self, timeout: float) -> Started:
        self._check()
        if self.files is None and self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="fastflight-sim-")
            # The board would generate the samples itself at each start, which takes as long as the start.
            write_samples(self._folder.name)
        folder = self.files or (self._folder.name if self._folder else ".")
        token = secrets.token_hex(16)
        with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
            command = [sys.executable, "-P", "-S", "-c", START, PACKAGES]
            command += ["--connect", f"127.0.0.1:{listener.getsockname()[1]}", "--files", folder]
            for name, value in self.options:
                command += [f"--{name}", value]
            child = subprocess.Popen(  # noqa: S603  # our own program, no shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**{name: os.environ[name] for name in ENVIRONMENT & os.environ.keys()}, TOKEN_VARIABLE: token},
                # A Ctrl-C in the terminal must reach only the server, which then ends the board.
                start_new_session=True,
            )
            try:
                stream = self._accept(listener, child, token.encode() + b"\n", time.monotonic() + timeout)
            except BaseException:
                child.kill()
                _end(child)
                raise
        return stream, child

    def _accept(
        self, listener: socket.socket, child: subprocess.Popen[bytes], token: bytes, deadline: float
    ) -> socket.socket:
        """Return the first connection that sends `token`. Close others."""
        # Wait in short steps, to notice a child that exits instead of connecting, and `dispose`.
        listener.settimeout(0.1)
        while time.monotonic() < deadline:
            self._check()
            try:
                stream, _ = listener.accept()
            except TimeoutError:
                if child.poll() is not None and child.stderr is not None:
                    lines = child.stderr.read().decode(errors="replace").strip().splitlines()
                    raise TransportError(
                        f"the simulated board did not start ({lines[-1] if lines else f'exit {child.returncode}'})",
                        where=self.url,
                    ) from None
                continue
            stream.settimeout(max(0.1, deadline - time.monotonic()))
            received = b""
            with contextlib.suppress(OSError):
                while len(received) < len(token) and (more := stream.recv(len(token) - len(received))):
                    received += more
            if secrets.compare_digest(received, token):
                return stream
            stream.close()
        raise TransportTimeout("the simulated board did not connect in time", where=self.url)


def _abandon(started: Started) -> None:
    """End a board that nobody waits for any more."""
    stream, child = started
    stream.close()
    _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Wait for the child, which exits when its socket is closed. Kill it after `GRACE_SECONDS`."""
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stderr is not None:
        child.stderr.close()


def parse(url: str, rest: str) -> SimAddress:
    """Return the address for a URL of this kind; `rest` follows the scheme. `RequestError` if it is wrong."""
    path = url_parts.path(rest)
    if path.strip("/"):
        raise url_parts.bad(url, f"{path!r} is out of place: options follow a question mark")
    pairs = url_parts.options(url, rest, OPTIONS, LISTS)
    for name, value in pairs:
        if name in NUMBERS:
            url_parts.number(url, name, value)
    files = dict(pairs).get("files")
    if files is not None and "\0" in files:
        raise url_parts.bad(url, "the folder name is not valid")
    return SimAddress(url, tuple(pair for pair in pairs if pair[0] != "files"), files)
