"""Frames between the server and the process of a query."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import closing

import pytest

from fastflight.sql.frames import Kind, Pipe


@pytest.fixture
def ends() -> Iterator[tuple[Pipe, socket.socket]]:
    ours, theirs = socket.socketpair()
    with closing(Pipe(ours.detach(), max_bytes=10)) as pipe, theirs:
        yield pipe, theirs


def test_a_frame_comes_whole_however_its_bytes_come(ends: tuple[Pipe, socket.socket]) -> None:
    pipe, peer = ends
    assert pipe.waits(0)
    for byte in struct.pack(">iB", 1, Kind.FILES) + struct.pack(">i", 3) + b"[1]":
        peer.sendall(bytes([byte]))
    assert not pipe.waits(0)
    frame = pipe.receive()
    assert (frame.kind, frame.json()) == (Kind.FILES, [1])


@pytest.mark.parametrize(
    "content",
    [
        struct.pack(">iBi", 1, Kind.ROWS, 10) + b"short",
        struct.pack(">iBi", 1, Kind.ROWS, 11) + b"x" * 11,
        struct.pack(">iBi", 1, 99, 0),
        struct.pack(">ih", 2, 1),
        struct.pack(">i", 0),
        struct.pack(">i", -2),
        b"",
    ],
)
def test_the_end_of_the_other_side_and_what_is_no_frame_are_errors(
    ends: tuple[Pipe, socket.socket], content: bytes
) -> None:
    pipe, peer = ends
    peer.sendall(content)
    peer.close()
    with pytest.raises(EOFError):
        pipe.receive()


def test_nothing_is_sent_to_an_end_that_is_closed(ends: tuple[Pipe, socket.socket]) -> None:
    pipe, peer = ends
    peer.close()
    with pytest.raises(EOFError):
        pipe.send(Kind.END)
    pipe.close()
    for use in (pipe.receive, lambda: pipe.send(Kind.END), lambda: pipe.waits(0)):
        with pytest.raises(EOFError):
            use()
