"""The server's TCP connections, cut from below.

Flight can neither end a handler that waits for a client to read, nor stop waiting for it: its `shutdown` and the
interpreter's exit would hang for as long as the client stays. gRPC gives up a call when its socket closes, so that is
what `cut` does. The sockets are gRPC's own; they are found among the process's descriptors by the port they have here.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from urllib.parse import unquote

from fastflight.transport.progress import Taken, taken

# Where a POSIX system lists the descriptors of the asking process. Windows has nothing like it: nothing is cut there.
DESCRIPTORS = "/dev/fd"


Address = tuple[str, int]


def cut(port: int, peer: str | None = None) -> int:
    """Shut down every connection that was accepted at `port`; how many there were.

    With `peer`, as gRPC says it (`ipv4:127.0.0.1:40000`, `ipv6:%5B::1%5D:40000`), the one from there.
    """
    found = 0
    wanted = None if peer is None else address(peer)
    if peer is not None and wanted is None:
        return 0
    for there, connection in _accepted(port):
        if wanted is None or there == wanted:
            with contextlib.suppress(OSError):  # closed since it was listed
                connection.shutdown(socket.SHUT_RDWR)
                found += 1
    return found


def progress(port: int) -> dict[Address, Taken]:
    """What the clients of connections that were accepted at `port` have taken, by their `address`."""
    found = ((there, taken(connection)) for there, connection in _accepted(port))
    return {there: each for there, each in found if each is not None}


def address(peer: str) -> Address | None:
    """Host and port of a peer, as gRPC says it; None for one that has none, at a socket of Unix."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    if not port.isdecimal():
        return None
    return host.removeprefix("[").removesuffix("]").removeprefix("::ffff:"), int(port)


def _accepted(port: int) -> Iterator[tuple[Address, socket.socket]]:
    """Connections that were accepted at `port`, and from where; each is open until the next one comes.

    None where the system does not list them, or there is no descriptor left to look with: who looks does so again.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(DESCRIPTORS):
            with contextlib.suppress(OSError), _opened(os.dup(int(name))) as connection:
                if (there := _from(connection, port)) is not None:
                    yield there, connection


def _opened(descriptor: int) -> socket.socket:
    try:
        return socket.socket(fileno=descriptor)
    except OSError:  # not a socket
        os.close(descriptor)
        raise


def _from(connection: socket.socket, port: int) -> Address | None:
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.getsockname()[1] != port:
        return None
    host, there = connection.getpeername()[:2]  # a listening socket has none, and stays
    return host.removeprefix("::ffff:"), there
