"""A server of RFC 2217 in a thread, in front of a line that sends back what it gets; it can be told to misbehave.

It hangs up when the line gets `GOODBYE`. With `echo` off it takes no more bytes after the first ones for the line.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fastflight.protocol.rfc2217 import (
    Flow,
    InboundFlow,
    LineState,
    NotifyLine,
    NotifyModem,
    Purge,
    Setting,
)
from fastflight.protocol.rfc2217_server import Event, Rfc2217Server
from fastflight.protocol.telnet import TelnetData
from fastflight.transport import Address, parse_url
from tests.transport.peers import GOODBYE

# Before anybody asks for others.
IN_FORCE: dict[str, Any] = {
    "baud": 9600,
    "data_bits": 8,
    "parity": "N",
    "stop_bits": 1.0,
    "flow": Flow.NONE,
    "inbound_flow": InboundFlow.NONE,
    "sending_break": False,
    "dtr": True,
    "rts": True,
}


class Rfc2217Peer(threading.Thread):
    """Serves one client after the other. `asked` is all that they wanted, `in_force` what came of it.

    The settings in `keeps` cannot be changed; requests for those in `mute` are not answered.
    """

    def __init__(self, echo: bool = True) -> None:
        super().__init__(name="RFC 2217 peer")
        self.keeps: set[str] = set()
        self.mute: set[str] = set()
        self.asked: list[Event] = []
        self.in_force = dict(IN_FORCE)
        self._echo = echo
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._told, self._tell = os.pipe()

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def run(self) -> None:
        with self._listener:
            while self._told not in select.select([self._listener, self._told], [], [])[0]:
                with self._listener.accept()[0] as connection, suppress(ConnectionError):
                    self._serve(connection)

    def stop(self) -> None:
        os.write(self._tell, b"x")
        self.join()
        os.close(self._tell)
        os.close(self._told)

    def _serve(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = Rfc2217Server()
        outgoing, heard = server.take(), b""
        while True:
            reading = (
                [self._told] if len(outgoing) > 1 << 20 or (heard and not self._echo) else [self._told, connection]
            )
            ready, _, _ = select.select(reading, [connection] if outgoing else [], [])
            if self._told in ready:
                return
            if connection in ready:
                received = connection.recv(65536)
                if not received:
                    return
                for event in server.feed(received):
                    if isinstance(event, TelnetData):
                        heard = (heard + event.data)[-len(GOODBYE) :]
                        outgoing += server.take() + (server.encode(event.data) if self._echo else b"")
                    else:
                        self._carry_out(server, event)
                outgoing += server.take()
                if heard == GOODBYE:
                    return
            with suppress(BlockingIOError):
                outgoing = outgoing[connection.send(outgoing) :]

    def _carry_out(self, server: Rfc2217Server, event: Event) -> None:
        self.asked.append(event)
        match event:
            case Purge():
                server.answer(event)
            case NotifyModem():
                server.notify_modem(cts=True, dsr=False, ri=False, cd=True, force=True)
            case NotifyLine():
                server.notify_line(LineState.HOLDING_EMPTY, force=True)
            case Setting(name, value) if name not in self.mute:
                if value is not None and name not in self.keeps:
                    self.in_force[name] = value
                server.answer(Setting(name, self.in_force[name]))


@contextmanager
def running_peer(echo: bool = True) -> Iterator[Rfc2217Peer]:
    """A peer that serves clients until the block ends."""
    peer = Rfc2217Peer(echo)
    peer.start()
    try:
        yield peer
    finally:
        peer.stop()


@contextmanager
def rfc2217_peer(echo: bool) -> Iterator[Address]:
    with running_peer(echo) as peer:
        yield parse_url(f"rfc2217://{peer.address}")
