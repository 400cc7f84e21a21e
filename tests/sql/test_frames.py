"""Frames over a socket pair: any split of the bytes, and ends that close."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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


def test_a_payload_may_come_from_a_file(ends: tuple[Pipe, socket.socket], tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096  # more than a socket holds
    (tmp_path / "file").write_bytes(b"head" + content + b"tail")
    pipe, peer = ends
    with open(tmp_path / "file", "rb") as file, ThreadPoolExecutor(1) as pool, closing(Pipe(peer)) as other:
        sent = pool.submit(pipe.send_file, Kind.BYTES, file.fileno(), 4, len(content), 7)
        assert other.receive() == (Kind.BYTES, 7, content)
        sent.result()
        pool.submit(pipe.send, Kind.END).result()
        assert other.receive().kind == Kind.END
        with pytest.raises(OSError, match="shorter"):
            pipe.send_file(Kind.BYTES, file.fileno(), 4 + len(content), 5)
        other.close()
        with pytest.raises(EOFError):
            pipe.send_file(Kind.BYTES, file.fileno(), 0, 4)
