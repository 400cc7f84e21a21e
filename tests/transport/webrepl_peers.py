"""A WebREPL, plain and behind TLS, in front of a stream that sends back what it gets."""

from __future__ import annotations

import dataclasses
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache

import trustme

from fastflight.transport import Address, parse_url
from fastflight.transport.webrepl import WebReplAddress
from tests.support.webrepl import webrepl
from tests.transport.peers import EchoPeer

PASSWORD = "micropyth"


@cache
def authority() -> trustme.CA:
    return trustme.CA()


def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert("127.0.0.1").configure_cert(context)
    return context


def client_tls() -> ssl.SSLContext:
    """What trusts that server, in place of `ssl.create_default_context`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority().configure_trust(context)
    return context


@contextmanager
def webrepl_peer(echo: bool, tls: bool) -> Iterator[Address]:
    ours, theirs = socket.socketpair()
    peer = EchoPeer(theirs.detach()) if echo else None
    try:
        with ours, webrepl(PASSWORD, ours if echo else None, server_tls() if tls else None) as server:
            yield with_password(f"{'wss' if tls else 'ws'}://127.0.0.1:{server.port}")
    finally:
        if peer is not None:
            peer.stop()
        else:
            theirs.close()


def with_password(url: str, password: str = PASSWORD) -> WebReplAddress:
    address = parse_url(url)
    assert isinstance(address, WebReplAddress)
    return dataclasses.replace(address, password=password)


PEERS: dict[str, Callable[[bool], AbstractContextManager[Address]]] = {
    "ws": lambda echo: webrepl_peer(echo, False),
    "wss": lambda echo: webrepl_peer(echo, True),
}
