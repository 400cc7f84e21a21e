"""The client of every transfer, in a process of its own. It reads jobs as lines of JSON and prints their outcomes.

    python -m fastflight_benchmark.loading.relay_client

All relays have the same client. It is as cheap as possible, so that a measurement shows the relay: one blocking socket,
one buffer, a system call for the header of each frame and one for its payload, no copies. The measured time is from the
request to the last byte.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from websockets.frames import Frame, Opcode

from fastflight.errors import FastFlightError, TransportError
from fastflight_benchmark.peers.relays import LIBRARY, OURS, PLAIN
from fastflight_benchmark.relay_content import LONGEST_BYTES, Checked

RAW = "raw"
# A transfer that makes no progress ends after this time.
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Job:
    """A transfer of `size` bytes from `seeder`, through the relay at `address`, or directly (`raw`)."""

    kind: str
    address: str
    seeder: str
    size: int
    chunk: int
    read: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """The seconds of a transfer, and its WebSocket frames: 0 without WebSocket."""

    seconds: float
    frames: int


class Client:
    """Carries jobs out, one after another."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(LONGEST_BYTES))
        self._checks = {whole: Checked(whole=whole) for whole in (False, True)}

    def carry_out(self, job: Job) -> Outcome:
        """Carry out a job. Raise `TransportError` if wrong bytes arrive."""
        host, _, port = job.address.rpartition(":")
        checked = self._checks[job.whole]
        checked.begin()
        request = f"{job.size} {job.chunk}\n".encode()
        with socket.create_connection((host, int(port)), TIMEOUT_SECONDS) as sock:
            sock.settimeout(None)
            _set_timeout(sock)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if job.kind in (OURS, LIBRARY):
                shake_hands(sock, job.address, relay_path(job.seeder) if job.kind == OURS else "/")
            began = time.perf_counter()
            if job.kind in (OURS, LIBRARY):
                if job.kind == LIBRARY:
                    say(sock, job.seeder.encode(), Opcode.TEXT)
                say(sock, request)
                while checked.size < job.size:
                    checked.take(self._frame(sock))
            else:
                sock.sendall(f"{job.seeder}\n".encode() + request if job.kind == PLAIN else request)
                piece = self._buffer[: job.read]
                while received := sock.recv_into(piece):
                    checked.take(piece[:received])
            seconds = time.perf_counter() - began
        if checked.size != job.size:
            raise TransportError(f"{checked.size} bytes arrived, expected {job.size}")
        return Outcome(seconds, checked.pieces if job.kind in (OURS, LIBRARY) else 0)

    def _frame(self, sock: socket.socket) -> memoryview:
        """Return the payload of the next frame."""
        head = self._buffer[:2]
        _fill(sock, head)
        length = head[1]
        if length >= 126:
            longer = self._buffer[2 : 4 if length == 126 else 10]
            _fill(sock, longer)
            length = int.from_bytes(longer, "big")
        if head[0] != 0x80 | Opcode.BINARY:
            raise TransportError("the relay ended the connection")
        payload = self._buffer[:length]
        _fill(sock, payload)
        return payload


def _set_timeout(sock: socket.socket) -> None:
    """Let the system end a call that waits too long. Python's own timeout would add a system call to each read."""
    if sys.platform == "win32":
        limit: int | bytes = round(TIMEOUT_SECONDS * 1000)
    else:
        limit = struct.pack("@ll", int(TIMEOUT_SECONDS), round(TIMEOUT_SECONDS % 1 * 1e6))
    for way in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, way, limit)


def _fill(sock: socket.socket, view: memoryview) -> None:
    while view:
        received = sock.recv_into(view, len(view), socket.MSG_WAITALL)
        if not received:
            raise TransportError("the relay closed the connection in the middle of a frame")
        view = view[received:]


def say(sock: socket.socket, payload: bytes, opcode: Opcode = Opcode.BINARY) -> None:
    sock.sendall(Frame(opcode, payload).serialize(mask=True))


def relay_path(target: str) -> str:
    """Return the path of the gateway's WebSocket for a TCP connection to `target`."""
    host, _, port = target.rpartition(":")
    return f"/ws/tcp?host={host}&port={port}"


def shake_hands(sock: socket.socket, address: str, path: str) -> None:
    key = base64.b64encode(os.urandom(16)).decode()
    sock.sendall(
        f"GET {path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        received = sock.recv(1)
        if not received:
            break
        head += received
    if not head.startswith(b"HTTP/1.1 101 "):
        raise TransportError(f"no WebSocket: {head[:100]!r}")


def answers(lines: Iterator[str]) -> Iterator[str]:
    """Carry out jobs. Yield the outcome of each."""
    client = Client()
    for line in lines:
        try:
            yield json.dumps({**asdict(client.carry_out(Job(**json.loads(line)))), "error": ""})
        except (FastFlightError, OSError) as error:
            yield json.dumps({"seconds": None, "frames": 0, "error": f"{type(error).__name__}: {error}"})


def main() -> None:
    for answer in answers(iter(sys.stdin.readline, "")):
        print(answer, flush=True)


if __name__ == "__main__":
    main()
