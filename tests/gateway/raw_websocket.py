"""A WebSocket frame by frame: a client that sends what it likes, and reads little or nothing."""

from __future__ import annotations

import socket

from fastflight.gateway import Gateway
from tests.support.waiting import read_until

from ..server.conftest import SOON
from .asgi_client import UPGRADE

CONTINUATION, TEXT, BINARY, CLOSE, PING, FINAL = 0, 1, 2, 8, 9, 0x80


def frame(kind: int, payload: bytes = b"", *, final: bool = True) -> bytes:
    return bytes((kind | (FINAL if final else 0), 0x80 | len(payload))) + bytes(4) + payload


def opened(gateway: Gateway, path: str, head: bytes = b"", receive_bytes: int = 4096) -> socket.socket:
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    raw.settimeout(SOON)
    raw.connect(("127.0.0.1", gateway.port))
    raw.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n".encode() + head + UPGRADE)
    return raw


def accepted(gateway: Gateway, path: str, head: bytes = b"") -> socket.socket:
    raw = opened(gateway, path, head)
    assert read_until(lambda: raw.recv(65536), b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
    return raw
