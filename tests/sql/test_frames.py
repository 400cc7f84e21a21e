"""Frames over a socket pair: any split of the bytes, and ends that close."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fastflight.sql.frames import MAX_FRAME_BYTES, Kind, Pipe


@pytest.fixture
def ends() -> Iterator[tuple[Pipe, socket.socket]]:
    ours, theirs = socket.socketpair()
    with closing(Pipe(ours)) as pipe, theirs:
        yield pipe, theirs


def test_a_frame_comes_whole_however_its_bytes_come(ends: tuple[Pipe, socket.socket]) -> None:
    pipe, peer = ends
    for byte in struct.pack("<BIQ", Kind.NEXT, 7, 3) + b"[1]":
        assert pipe.waits(0) or byte is not None
        peer.sendall(bytes([byte]))
    frame = pipe.receive()
    assert (frame.kind, frame.number, frame.json()) == (Kind.NEXT, 7, [1])


def test_the_end_of_the_other_side_is_an_error(ends: tuple[Pipe, socket.socket]) -> None:
    pipe, peer = ends
    peer.sendall(struct.pack("<BIQ", Kind.ROWS, 0, 10) + b"short")
    peer.close()
    for use in (pipe.receive, lambda: pipe.send(Kind.END)):
        with pytest.raises(EOFError):
            use()


def test_a_frame_has_a_limit(ends: tuple[Pipe, socket.socket]) -> None:
    pipe, peer = ends
    peer.sendall(struct.pack("<BIQ", Kind.ROWS, 0, MAX_FRAME_BYTES + 1))
    with pytest.raises(EOFError):
        pipe.receive()


def test_a_file_goes_to_the_other_end(ends: tuple[Pipe, socket.socket], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    pipe, peer = ends
    other = Pipe(peer)
    with open(tmp_path / "file", "rb") as file:
        pipe.send_file(file.fileno())
    pipe.send(Kind.END)
    assert other.receive().kind == Kind.FILE
    descriptor = other.receive_file()
    try:
        assert os.pread(descriptor, 100, 3) == b"tent"
    finally:
        os.close(descriptor)
    assert other.receive().kind == Kind.END
    pipe.close()
    for use in (other.receive_file, lambda: other.send_file(0)):
        with pytest.raises(EOFError):
            use()
