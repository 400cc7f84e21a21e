"""Finds and cuts the server's TCP connections, below gRPC.

Flight cannot end a handler that waits for its client to read. Its `shutdown`, and the interpreter's exit, wait for such
a handler for as long as the client stays connected. gRPC gives up a call when the connection closes, so `cut` shuts the
socket down. gRPC owns the sockets: they are found among the process's file descriptors, by their local port.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from urllib.parse import unquote

# Where POSIX systems list the file descriptors of the calling process. Windows has no such list: nothing is cut there.
DESCRIPTORS = "/dev/fd"

# Host and port.
Address = tuple[str, int]


def cut(port: int, peer: str | None = None) -> int:
    """Shut down every connection that was accepted at `port`, and return how many there were.

    With `peer`, shut down the connection of that client only. gRPC writes a peer as `ipv4:127.0.0.1:40000` or
    `ipv6:%5B::1%5D:40000`.
    """
    found = 0
    wanted = None if peer is None else address(peer)
    if peer is not None and wanted is None:
        return 0
    for client, connection in _accepted(port):
        if wanted is None or client == wanted:
            with contextlib.suppress(OSError):  # closed since it was listed
                connection.shutdown(socket.SHUT_RDWR)
                found += 1
    return found


def address(peer: str) -> Address | None:
    """Return host and port of a gRPC peer; None for a client of a Unix socket, which has neither."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    if not port.isdecimal():
        return None
    return host.removeprefix("[").removesuffix("]").removeprefix("::ffff:"), int(port)


def _accepted(port: int) -> Iterator[tuple[Address, socket.socket]]:
    """Yield the client and a socket of each connection that was accepted at `port`.

    Each socket is closed before the next one is yielded. If the system has no list of descriptors, or no free
    descriptor to open one, nothing is yielded: callers try again later.
    """
    with contextlib.suppress(OSError):
        for descriptor in map(int, os.listdir(DESCRIPTORS)):
            with contextlib.suppress(OSError):  # closed since it was listed
                if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    continue
                with socket.socket(fileno=os.dup(descriptor)) as connection:
                    if (client := _client(connection, port)) is not None:
                        yield client, connection


def _client(connection: socket.socket, port: int) -> Address | None:
    """Return the client of a connection that was accepted at `port`; None for every other socket."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.getsockname()[1] != port:
        return None
    host, client_port = connection.getpeername()[:2]  # raises OSError for the listening socket, which must stay open
    return host.removeprefix("::ffff:"), client_port
