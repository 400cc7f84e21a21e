"""A slow client does not keep a board: the rest of its file goes to a spool."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator

import pytest

from fastflight.concurrency import Shard
from fastflight.errors import DeviceError
from fastflight.sources.release import areleased, released

PIECES = [bytes([n]) * 1000 for n in range(20)]
PATIENCE = 0.05
SOON = 20.0


class Board:
    """Sends `PIECES`, and then fails if it is told to. `free` is set once the reading has ended, at whatever place."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.free = threading.Event()
        self.sent = 0

    def read(self) -> Generator[bytes, None, None]:
        try:
            for piece in PIECES:
                self.sent += 1
                yield piece
                yield b""
            if self.error is not None:
                raise self.error
        finally:
            self.free.set()

    async def aread(self) -> AsyncGenerator[bytes, None]:
        pieces = self.read()
        try:
            for piece in pieces:
                await asyncio.sleep(0)
                yield piece
        finally:
            pieces.close()


Read = Callable[[Board, float], Generator[bytes, None, None]]


@pytest.fixture(params=["thread", "coroutine"])
def read(request: pytest.FixtureRequest) -> Iterator[Read]:
    """Reads a board with this patience, by a thread or a coroutine."""
    with Shard() as shard:

        def in_thread(board: Board, patience: float) -> Generator[bytes, None, None]:
            return released(board.read(), shard, patience)

        def on_loop(board: Board, patience: float) -> Generator[bytes, None, None]:
            pieces = areleased(board.aread(), patience)

            async def following() -> bytes | None:
                return await anext(pieces, None)

            try:
                while (piece := shard.submit(following()).result(SOON)) is not None:
                    yield piece
            finally:
                shard.submit(pieces.aclose()).result(SOON)

        yield in_thread if request.param == "thread" else on_loop


def test_a_slow_reader_gets_the_rest_from_the_spool(read: Read) -> None:
    board = Board()
    reading = read(board, PATIENCE)
    first = next(reading)
    assert board.free.wait(SOON)
    assert [first, b"".join(reading)] == [PIECES[0], b"".join(PIECES[1:])]


def test_nothing_is_read_ahead_of_a_reader_that_keeps_up(read: Read) -> None:
    board = Board()
    seen = []
    for piece in read(board, SOON):
        if piece:
            seen.append(piece)
            assert board.sent == len(seen)
    assert seen == PIECES


@pytest.mark.parametrize("patience", [PATIENCE, SOON])
def test_an_error_comes_after_all_bytes(read: Read, patience: float) -> None:
    board = Board(DeviceError("the board was reset"))
    seen = b""
    with pytest.raises(DeviceError, match="was reset"):
        for piece in read(board, patience):
            if not seen and patience == PATIENCE:
                assert board.free.wait(SOON)
            seen += piece
    assert seen == b"".join(PIECES)


@pytest.mark.parametrize("patience", [PATIENCE, SOON])
def test_a_client_that_leaves_frees_the_board(read: Read, patience: float) -> None:
    board = Board()
    reading = read(board, patience)
    next(reading)
    reading.close()
    assert board.free.is_set()
