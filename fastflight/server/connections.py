"""The server's TCP connections, cut from below.

Flight can neither end a handler that waits for a client to read, nor stop waiting for it: its `shutdown` and the
interpreter's exit would hang for as long as the client stays. gRPC gives up a call when its socket closes, so that is
what `cut` does. The sockets are gRPC's own; they are found among the process's descriptors by the port they have here.
"""

from __future__ import annotations

import contextlib
import os
import socket
from urllib.parse import unquote

# Where a POSIX system lists the descriptors of the asking process. Windows has nothing like it: nothing is cut there.
DESCRIPTORS = "/dev/fd"


def cut(port: int, peer: str | None = None) -> int:
    """Shut down every connection that was accepted at `port`; how many there were.

    With `peer`, as gRPC says it (`ipv4:127.0.0.1:40000`, `ipv6:%5B::1%5D:40000`), the one from there.
    """
    found = 0
    wanted = None if peer is None else _address(peer)
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(DESCRIPTORS):
            with contextlib.suppress(OSError):  # not a socket, not connected, or closed since it was listed
                found += _cut(os.dup(int(name)), port, wanted)
    return found


def _cut(descriptor: int, port: int, wanted: tuple[str, int] | None) -> bool:
    try:
        connection = socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        raise
    with connection:
        if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.getsockname()[1] != port:
            return False
        peer = connection.getpeername()  # a listening socket has none, and stays
        if wanted is not None and (peer[0].removeprefix("::ffff:"), peer[1]) != wanted:
            return False
        connection.shutdown(socket.SHUT_RDWR)
        return True


def _address(peer: str) -> tuple[str, int]:
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return host.removeprefix("[").removesuffix("]").removeprefix("::ffff:"), int(port)
