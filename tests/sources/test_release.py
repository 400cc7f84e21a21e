"""A slow client does not keep a board: the rest of its file goes to a spool."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator, Iterator

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


@pytest.fixture
def shard() -> Iterator[Shard]:
    with Shard() as shard:
        yield shard


def test_a_thread_that_is_slow_gets_the_rest_from_the_spool(shard: Shard) -> None:
    board = Board()
    reading = released(board.read(), shard, PATIENCE)
    first = next(reading)
    assert board.free.wait(SOON)
    assert [first, b"".join(reading)] == [PIECES[0], b"".join(PIECES[1:])]


def test_a_coroutine_that_is_slow_gets_the_rest_from_the_spool() -> None:
    async def read() -> list[bytes]:
        board = Board()
        reading = areleased(board.aread(), PATIENCE)
        first = await anext(reading)
        assert await asyncio.to_thread(board.free.wait, SOON)
        return [first, b"".join([piece async for piece in reading])]

    assert asyncio.run(read()) == [PIECES[0], b"".join(PIECES[1:])]


def test_a_thread_that_keeps_up_reads_nothing_ahead(shard: Shard) -> None:
    board = Board()
    seen = []
    for piece in released(board.read(), shard, SOON):
        if piece:
            seen.append(piece)
            assert board.sent == len(seen)
    assert seen == PIECES


def test_a_coroutine_that_keeps_up_reads_nothing_ahead() -> None:
    async def read() -> None:
        board = Board()
        seen = []
        async for piece in areleased(board.aread(), SOON):
            if piece:
                seen.append(piece)
                assert board.sent == len(seen)
        assert seen == PIECES

    asyncio.run(read())


@pytest.mark.parametrize("patience", [PATIENCE, SOON])
def test_an_error_comes_after_all_bytes(shard: Shard, patience: float) -> None:
    def read() -> None:
        board = Board(DeviceError("the board was reset"))
        seen = b""
        with pytest.raises(DeviceError, match="was reset"):
            for piece in released(board.read(), shard, patience):
                if not seen and patience == PATIENCE:
                    assert board.free.wait(SOON)
                seen += piece
        assert seen == b"".join(PIECES)

    async def aread() -> None:
        board = Board(DeviceError("the board was reset"))
        seen = b""
        with pytest.raises(DeviceError, match="was reset"):
            async for piece in areleased(board.aread(), patience):
                if not seen and patience == PATIENCE:
                    assert await asyncio.to_thread(board.free.wait, SOON)
                seen += piece
        assert seen == b"".join(PIECES)

    read()
    asyncio.run(aread())


@pytest.mark.parametrize("patience", [PATIENCE, SOON])
def test_a_client_that_leaves_frees_the_board(shard: Shard, patience: float) -> None:
    board = Board()
    reading = released(board.read(), shard, patience)
    next(reading)
    reading.close()
    assert board.free.is_set()

    async def leave() -> None:
        board = Board()
        reading = areleased(board.aread(), patience)
        await anext(reading)
        await reading.aclose()
        assert board.free.is_set()

    asyncio.run(leave())
