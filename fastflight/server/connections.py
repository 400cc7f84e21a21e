"""The server's TCP connections, found and cut below gRPC.

Flight can neither end a handler that waits for its client to read, nor stop waiting: its `shutdown` and the
interpreter's exit would hang for as long as the client stays. gRPC gives up a call when its socket closes, so `cut`
closes the socket. gRPC owns the sockets; they are found among the process's descriptors by their local port.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from urllib.parse import unquote

from fastflight.transport.tcp_info import SendState, send_state

# Where a POSIX system lists the descriptors of the process that asks. Windows has no such list: nothing is cut there.
DESCRIPTORS = "/dev/fd"

# Host and port.
Address = tuple[str, int]


def cut(port: int, peer: str | None = None) -> int:
    """Shut down every connection that was accepted at `port`, and return how many there were.

    With `peer`, as gRPC writes it (`ipv4:127.0.0.1:40000`, `ipv6:%5B::1%5D:40000`), only the connection from there.
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


def send_states(port: int) -> dict[Address, SendState]:
    """The send state of each connection that was accepted at `port`, by the client's `address`."""
    found = ((there, send_state(connection)) for there, connection in _accepted(port))
    return {there: state for there, state in found if state is not None}


def address(peer: str) -> Address | None:
    """Host and port of a peer, as gRPC writes it; None for a client at a Unix socket, which has neither."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    if not port.isdecimal():
        return None
    return host.removeprefix("[").removesuffix("]").removeprefix("::ffff:"), int(port)


def _accepted(port: int) -> Iterator[tuple[Address, socket.socket]]:
    """The clients and sockets of connections that were accepted at `port`; each is open until the next one is given.

    There are none where the system does not list them, or has no descriptor left to look with: callers try again later.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(DESCRIPTORS):
            with contextlib.suppress(OSError), _opened(os.dup(int(name))) as connection:
                if (there := _client(connection, port)) is not None:
                    yield there, connection


def _opened(descriptor: int) -> socket.socket:
    try:
        return socket.socket(fileno=descriptor)
    except OSError:  # not a socket
        os.close(descriptor)
        raise


def _client(connection: socket.socket, port: int) -> Address | None:
    """The client of a connection that was accepted at `port`; None for every other socket."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.getsockname()[1] != port:
        return None
    host, there = connection.getpeername()[:2]  # fails for the listening socket, which is left alone
    return host.removeprefix("::ffff:"), there
