"""Something at the other end of a line.

An `echo` peer sends back what it gets, and hangs up when it gets `GOODBYE`. A `deaf` peer neither reads nor writes.
"""

from __future__ import annotations

import os
import select
import shlex
import socket
import sys
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from fastflight.transport import Address, parse_url

GOODBYE = b"\x00goodbye\x00"


class EchoPeer(threading.Thread):
    """Sends back what comes on `descriptor`, which it closes when told to or when it says goodbye."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(name="echo peer")
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._told, self._tell = os.pipe()
        self.start()

    def run(self) -> None:
        pending = b""
        try:
            while True:
                readers = [self._told] if pending else [self._told, self._descriptor]
                readable, _, _ = select.select(readers, [self._descriptor] if pending else [], [])
                if self._told in readable:
                    return
                if pending:
                    pending = pending[os.write(self._descriptor, pending) :]
                elif (pending := os.read(self._descriptor, 65536)).endswith(GOODBYE) or not pending:
                    return
        except OSError:
            return
        finally:
            os.close(self._descriptor)

    def stop(self) -> None:
        os.write(self._tell, b"x")
        self.join()
        os.close(self._tell)
        os.close(self._told)


@contextmanager
def socket_peer(echo: bool) -> Iterator[Address]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        if not echo:
            yield parse_url(f"socket://{host}:{port}")
            return
        accepting = threading.Thread(target=lambda: peers.append(EchoPeer(listener.accept()[0].detach())))
        peers: list[EchoPeer] = []
        accepting.start()
        yield parse_url(f"socket://{host}:{port}")
        accepting.join()
        peers[0].stop()


@contextmanager
def terminal_peer(echo: bool, address: Callable[[str], Address]) -> Iterator[Address]:
    """The address that `address` makes for the name of a terminal."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    peer = EchoPeer(ours) if echo else None
    try:
        yield address(os.ttyname(theirs))
    finally:
        os.close(theirs)
        if peer is None:
            os.close(ours)
        else:
            peer.stop()


def serial_peer(echo: bool) -> AbstractContextManager[Address]:
    return terminal_peer(echo, lambda name: parse_url(f"serial://{name}"))


ECHO_PROGRAM = f"""
import os
while (data := os.read(0, 65536)) and not data.endswith({GOODBYE!r}):
    while data:
        data = data[os.write(1, data):]
"""
DEAF_PROGRAM = "import signal; signal.pause()"


@contextmanager
def exec_peer(echo: bool) -> Iterator[Address]:
    command = shlex.join([sys.executable, "-c", ECHO_PROGRAM if echo else DEAF_PROGRAM])
    address = parse_url(f"exec:{command}")
    yield address
    address.dispose()


PEERS: dict[str, Callable[[bool], AbstractContextManager[Address]]] = {
    "socket": socket_peer,
    "serial": serial_peer,
    "exec": exec_peer,
}
