"""An open board, for as long as one owner has it. `Device.lease` gives a `Session`, `Device.alease` an `AsyncSession`.

The two have the same methods and do the same; each is a thin layer over the conversations of `Board`. Errors name the
device as well as the path. A stream (`read`, `follow`) must be used up or closed before the next call; closed early, it
leaves the board to be mended, which the next call or the end of the lease does.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator
from typing import TypeVar

from fastflight.device.board import Board
from fastflight.device.capabilities import Capabilities
from fastflight.device.entry import DeviceInfo, Entry, Written
from fastflight.errors import FastFlightError, TransportError
from fastflight.protocol import Conversation, Output
from fastflight.transport import Port, arun, astream, run, stream

T = TypeVar("T")

# Silence after which code is taken to hang.
CODE_SECONDS = 60.0


class _Named:
    def __init__(self, name: str, board: Board, port: Port) -> None:
        self.name = name
        self._board = board
        self._port = port

    @property
    def capabilities(self) -> Capabilities:
        """What the board can do, as it was found when the line was opened."""
        return self._board.capabilities

    @contextlib.contextmanager
    def _located(self) -> Iterator[None]:
        with located(self.name):
            yield


class Session(_Named):
    """Blocking calls."""

    def info(self) -> DeviceInfo:
        """What the board says of itself."""
        return self._run(self._board.info())

    def list(self, path: str = "/", *, recursive: bool = False) -> list[Entry]:
        """The entries of a folder."""
        return self._run(self._board.listing(path, recursive=recursive))

    def stat(self, path: str) -> Entry:
        """One entry; `FileMissing` when there is none."""
        return self._run(self._board.stat(path))

    def read(self, path: str, *, limit: int | None = None) -> Generator[bytes, None, None]:
        """The bytes of a file, or its first `limit`, in order; empty pieces while the board is silent."""
        return self._stream(self._board.read(path, limit))

    def write(self, path: str, content: Iterable[bytes]) -> Written:
        """Make `content` the file at `path`, whole or not at all. The next piece is taken when the last is stored."""
        return self._run(self._board.write(path), (piece for piece in content if piece))

    def remove(self, path: str) -> None:
        """Remove a file or an empty folder."""
        self._run(self._board.remove(path))

    def mkdir(self, path: str) -> None:
        """Make a folder."""
        self._run(self._board.mkdir(path))

    def rename(self, path: str, to: str) -> None:
        """Give a file or folder another path."""
        self._run(self._board.rename(path, to))

    def hash(self, path: str) -> tuple[str, str]:
        """The algorithm and the hexadecimal digest that the board takes of a file; two empty texts if it has none."""
        return self._run(self._board.digest(path))

    def exec(self, code: str, *, timeout: float = CODE_SECONDS) -> Output:
        """Run code to its end and collect what it wrote; `timeout` bounds each silence."""
        return self._run(self._board.execute(code, timeout))

    def follow(self, code: str, *, timeout: float = CODE_SECONDS) -> Generator[bytes, None, None]:
        """Run code and yield its output as it comes; raises `DeviceException` at the end if it raised."""
        return self._stream(self._board.follow(code, timeout))

    def soft_reset(self) -> None:
        """Restart the interpreter; `main.py` runs again."""
        self._run(self._board.soft_reset())

    def hard_reset(self) -> None:
        """Restart the board; the line may go away for a while."""
        self._run(self._board.hard_reset())

    def _run(self, conversation: Conversation[T], content: Iterator[bytes] | None = None) -> T:
        with self._located():
            return run(self._board.guarded(conversation), self._port, content)

    def _stream(self, conversation: Conversation[None]) -> Generator[bytes, None, None]:
        with self._located(), contextlib.closing(stream(self._board.streamed(conversation), self._port)) as pieces:
            yield from pieces


class AsyncSession(_Named):
    """The same calls on an event loop."""

    async def info(self) -> DeviceInfo:
        """As `Session.info`."""
        return await self._run(self._board.info())

    async def list(self, path: str = "/", *, recursive: bool = False) -> list[Entry]:
        """As `Session.list`."""
        return await self._run(self._board.listing(path, recursive=recursive))

    async def stat(self, path: str) -> Entry:
        """As `Session.stat`."""
        return await self._run(self._board.stat(path))

    def read(self, path: str, *, limit: int | None = None) -> AsyncGenerator[bytes, None]:
        """As `Session.read`."""
        return self._stream(self._board.read(path, limit))

    async def write(self, path: str, content: AsyncIterator[bytes]) -> Written:
        """As `Session.write`."""
        return await self._run(self._board.write(path), (piece async for piece in content if piece))

    async def remove(self, path: str) -> None:
        """As `Session.remove`."""
        await self._run(self._board.remove(path))

    async def mkdir(self, path: str) -> None:
        """As `Session.mkdir`."""
        await self._run(self._board.mkdir(path))

    async def rename(self, path: str, to: str) -> None:
        """As `Session.rename`."""
        await self._run(self._board.rename(path, to))

    async def hash(self, path: str) -> tuple[str, str]:
        """As `Session.hash`."""
        return await self._run(self._board.digest(path))

    async def exec(self, code: str, *, timeout: float = CODE_SECONDS) -> Output:
        """As `Session.exec`."""
        return await self._run(self._board.execute(code, timeout))

    def follow(self, code: str, *, timeout: float = CODE_SECONDS) -> AsyncGenerator[bytes, None]:
        """As `Session.follow`."""
        return self._stream(self._board.follow(code, timeout))

    async def soft_reset(self) -> None:
        """As `Session.soft_reset`."""
        await self._run(self._board.soft_reset())

    async def hard_reset(self) -> None:
        """As `Session.hard_reset`."""
        await self._run(self._board.hard_reset())

    async def _run(self, conversation: Conversation[T], content: AsyncIterator[bytes] | None = None) -> T:
        with self._located():
            return await arun(self._board.guarded(conversation), self._port, content)

    async def _stream(self, conversation: Conversation[None]) -> AsyncGenerator[bytes, None]:
        with self._located():
            async with contextlib.aclosing(astream(self._board.streamed(conversation), self._port)) as pieces:
                async for piece in pieces:
                    yield piece


@contextlib.contextmanager
def located(name: str) -> Iterator[None]:
    """Errors raised within name the device.

    In place of what a transport names, its URL: that may hold a command or a folder of the host.
    """
    try:
        yield
    except FastFlightError as error:
        if isinstance(error, TransportError):
            error.where = name
            error.hint = error.hint or "Reset the board or plug it in again, then ask again"
        elif not error.where:
            error.where = name
        elif error.where != name and not error.where.startswith(f"{name}:"):
            error.where = f"{name}:{error.where}" if error.where.startswith("/") else f"{name}: {error.where}"
        raise
