"""The null device, by the bytes that it is asked with."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator

import pytest

from fastflight_benchmark.suites.bridge.device import BLOCK_BYTES, content, serve


@pytest.fixture
def device() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    serving = threading.Thread(target=serve, args=(theirs.fileno(),))
    serving.start()
    with ours, theirs:
        yield ours
        ours.shutdown(socket.SHUT_WR)
        serving.join()


def received(device: socket.socket, count: int) -> bytes:
    return device.recv(count, socket.MSG_WAITALL)


def test_it_says_that_it_is_there_and_passes_over_what_it_does_not_know(device: socket.socket) -> None:
    device.sendall(b"\x01 what?\nhello\n")
    assert received(device, 6) == b"ready\n"


def test_it_sends_back_as_many_bytes_as_it_was_told_to(device: socket.socket) -> None:
    device.sendall(b"echo 5\nfirst")
    assert received(device, 5) == b"first"
    device.sendall(b"echo 4 7\nmore" + b"hello\n")
    assert received(device, 10) == b"more" + b"ready\n", "the next line is one to obey again"


def test_it_gives_and_takes_content_and_tells_what_it_took(device: socket.socket) -> None:
    data = content("random", 3000)
    device.sendall(b"give 3000 random\n")
    assert received(device, 6) == b"ready\n"
    device.sendall(b"go\n")
    assert received(device, 3000) == data
    device.sendall(b"take 3000\n" + data)
    assert received(device, 6) == b"ready\n"
    assert received(device, 1) == b"k"
    assert received(device, 65) == hashlib.sha256(data).hexdigest().encode() + b"\n"


def test_content_has_the_length_asked_for_and_what_its_name_says() -> None:
    assert content("0xFF", 4) == b"\xff" * 4
    assert len(content("random", BLOCK_BYTES + 10)) == BLOCK_BYTES + 10
    assert content("random", BLOCK_BYTES + 10)[BLOCK_BYTES:] == content("random", 10)
    assert set(content("random", 10_000)) == set(range(256))
