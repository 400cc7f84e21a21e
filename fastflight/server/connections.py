"""The server's TCP connections, cut from below.

Flight can neither end a handler that waits for a client to read, nor stop waiting for it: its `shutdown` and the
interpreter's exit would hang for as long as the client stays. gRPC gives up a call when its socket closes, so that is
what `cut` does. The sockets are gRPC's own; they are found among the process's descriptors by the port they have here.
"""

from __future__ import annotations

import contextlib
import os
import socket

# Where a POSIX system lists the descriptors of the asking process. Windows has nothing like it: nothing is cut there.
DESCRIPTORS = "/dev/fd"


def cut(port: int) -> int:
    """Shut down every connection that was accepted at `port`; how many there were."""
    found = 0
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(DESCRIPTORS):
            with contextlib.suppress(OSError):  # not a socket, not connected, or closed since it was listed
                found += _cut(os.dup(int(name)), port)
    return found


def _cut(descriptor: int, port: int) -> bool:
    try:
        connection = socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        raise
    with connection:
        if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.getsockname()[1] != port:
            return False
        connection.getpeername()  # a listening socket has none, and stays
        connection.shutdown(socket.SHUT_RDWR)
        return True
