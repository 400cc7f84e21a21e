"""A device that only moves bytes, as a process: on a pseudo-terminal, or on a TCP port where each client has its own.

    python -m fastflight_benchmark.peers.null_device --terminal      # listening on /dev/pts/3;
    python -m fastflight_benchmark.peers.null_device --socket        # listening on 127.0.0.1:40123;

It carries out lines of input:

- `hello`: it answers `ready`.
- `echo N`: it sends the next N bytes back as they arrive.
- `give N CONTENT CHUNK`: it prepares N bytes, answers `ready`, and sends them after the next line, `CHUNK` at once.
- `take N`: it allocates memory, answers `ready`, reads N bytes, answers `k` as soon as it has the last one, and then
  sends their sha256. So no memory is allocated while the client measures time.

CONTENT is `random` or `0xFF` (see `content`).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import os
import random
import socket
import threading
import tty

RANDOM, ESCAPED = "random", "0xFF"
READY = b"ready\n"
# A prime number, so no read or write is a whole number of blocks: lost or moved bytes do not match their place.
BLOCK_BYTES = 1_048_573
READ_BYTES = 256 * 1024
MAX_LINE_BYTES = 1024


@functools.cache
def content(kind: str, count: int) -> bytes:
    """Return `count` bytes: a repeated block of random bytes, or only 0xFF, which Telnet has to double."""
    if kind == ESCAPED:
        return b"\xff" * count
    block = random.Random(2217).randbytes(BLOCK_BYTES)
    return (block * (count // len(block) + 1))[:count]


def allocated(count: int) -> bytearray:
    """Return memory for `count` bytes. It is written once, so that the system has really allocated it."""
    return bytearray(b"\x01") * count


def send(descriptor: int, data: bytes, chunk: int = READ_BYTES) -> None:
    """Write all of `data`, at most `chunk` bytes at once."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest[:chunk]) :]


def serve(descriptor: int) -> None:
    """Carry out the lines from `descriptor` until it ends."""
    with contextlib.suppress(OSError):
        while line := _line(descriptor):
            match line.split():
                case ["hello"]:
                    send(descriptor, READY)
                case ["echo", count]:
                    _echo(descriptor, int(count))
                case ["give", count, kind, chunk]:
                    data = content(kind, int(count))
                    send(descriptor, READY)
                    _line(descriptor)
                    send(descriptor, data, int(chunk))
                case ["take", count]:
                    _take(descriptor, int(count))


def _line(descriptor: int) -> str:
    """Return the next line; empty at the end. It reads single bytes, because content may follow the line."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            return ""
        line = (line + byte)[-MAX_LINE_BYTES:]
    return line.decode(errors="replace")


def _echo(descriptor: int, count: int) -> None:
    while count and (data := os.read(descriptor, min(count, READ_BYTES))):
        count -= len(data)
        send(descriptor, data)


def _take(descriptor: int, count: int) -> None:
    taken = allocated(count)
    send(descriptor, READY)
    rest = memoryview(taken)
    while rest:
        got = os.readv(descriptor, [rest[:READ_BYTES]])
        if not got:
            return
        rest = rest[got:]
    send(descriptor, b"k")
    send(descriptor, hashlib.sha256(taken).hexdigest().encode() + b"\n")


def _serve_socket(client: socket.socket) -> None:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with client:
        serve(client.fileno())


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(prog="python -m fastflight_benchmark.peers.null_device")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--terminal", action="store_true")
    place.add_argument("--socket", action="store_true")
    if parser.parse_args().terminal:
        # The other end stays open here too, so that the terminal exists after a client closes it.
        own_end, client_end = os.openpty()
        tty.setraw(client_end)
        print(f"listening on {os.ttyname(client_end)};", flush=True)
        while True:
            serve(own_end)
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening on 127.0.0.1:{listener.getsockname()[1]};", flush=True)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_serve_socket, args=(client,), daemon=True).start()


if __name__ == "__main__":
    main()
