"""What an owner of a device can ask its board: `Device.lease` gives a `Session`, `Device.alease` an `AsyncSession`.

Both have the same methods, blocking and awaitable, and run the conversations of `OpenBoard` over the open port. Files
come and go as `bytes`; results are the dataclasses that `fastflight.device` exports. Errors are those of
`fastflight.errors` and name the device, and the path if there is one.

Use up or close a stream (`read`, `follow`) before the next call. A stream that is closed early leaves the board in the
middle of its work: the next call, or the end of the lease, stops that work first.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from typing import TypeVar

from fastflight.device.board import OpenBoard
from fastflight.device.capabilities import Capabilities, DeviceInfo
from fastflight.device.listing import FileEntry
from fastflight.device.transfer.types import AUTO, Hashed, PartialWrite, Resumption, Transfer, WrittenFile, WrittenTree
from fastflight.errors import FastFlightError, TransportError
from fastflight.protocol import Conversation, Output
from fastflight.transport import Port, arun, astream, run, stream

T = TypeVar("T")

# Code that is silent for longer is assumed to hang.
CODE_SECONDS = 60.0


class _SessionBase:
    def __init__(self, name: str, board: OpenBoard, port: Port) -> None:
        self.name = name
        self._board = board
        self._port = port
        board.link.pace = port.bytes_per_second

    @property
    def capabilities(self) -> Capabilities:
        """What the board can do, as it was found when the line was opened."""
        return self._board.capabilities


class Session(_SessionBase):
    """Blocking calls."""

    def info(self) -> DeviceInfo:
        """What the board says of itself."""
        return self._run(self._board.info())

    def list(self, path: str = "/", *, recursive: bool = False) -> list[FileEntry]:
        """The entries of a folder."""
        return self._run(self._board.listing(path, recursive=recursive))

    def stat(self, path: str) -> FileEntry:
        """One entry; `FileMissing` when there is none."""
        return self._run(self._board.stat(path))

    def read(
        self, path: str, *, offset: int = 0, limit: int | None = None, transfer: Transfer = AUTO
    ) -> Generator[bytes, None, None]:
        """The bytes of a file from `offset` on, at most `limit`, in order; empty pieces while the board is silent."""
        return self._stream(self._board.read(path, offset=offset, limit=limit, transfer=transfer))

    def write(
        self,
        path: str,
        content: Iterable[bytes],
        *,
        resume: Resumption | None = None,
        keep: bool = False,
        transfer: Transfer = AUTO,
    ) -> WrittenFile:
        """Make `content` the file at `path`, whole or not at all. The next piece is taken when the last is stored.

        With `resume`, `content` begins where its part ends, and the result is that of the whole; a part that is not
        what it was is a `DeviceError`. `keep`: a write that breaks leaves its part on the board, for `part` to find.
        """
        steps = self._board.write(path, resume=resume, keep=keep, transfer=transfer)
        return self._run(steps, (piece for piece in content if piece))

    def write_tree(
        self, folder: str, files: Iterable[tuple[str, Iterable[bytes]]], *, transfer: Transfer = AUTO
    ) -> WrittenTree:
        """Make each content the file at its path below `folder`, making the folders that are missing.

        All are written beside the old files, verified in one pass, and only then put in their places.
        """
        with self._board.tree(folder, transfer) as tree:
            for path, content in files:
                self._run(tree.add(path), (piece for piece in content if piece))
            return self._run(tree.finish())

    def part(self, path: str) -> PartialWrite | None:
        """What a write to `path` left that broke off and was to be kept; None when a write cannot be resumed."""
        return self._run(self._board.part(path))

    def remove(self, path: str) -> None:
        """Remove a file or an empty folder."""
        self._run(self._board.remove(path))

    def mkdir(self, path: str) -> None:
        """Make a folder."""
        self._run(self._board.mkdir(path))

    def rename(self, path: str, to: str) -> None:
        """Give a file or folder another path."""
        self._run(self._board.rename(path, to))

    def hash(self, path: str, *, limit: int | None = None) -> tuple[str, str]:
        """The algorithm and the hexadecimal digest that the board takes of a file, or of its first `limit` bytes.

        Two empty texts if it can take none.
        """
        return self._run(self._board.digest(path, limit))

    def hashes(self, folder: str = "/") -> builtins.list[Hashed]:
        """Every file below a folder with its digest, by path, in one pass on the board."""
        return self._run(self._board.hashes(folder))

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
        with located(self.name):
            return run(self._board.guarded(conversation), self._port, content)

    def _stream(self, conversation: Conversation[None]) -> Generator[bytes, None, None]:
        with located(self.name), contextlib.closing(stream(self._board.streamed(conversation), self._port)) as pieces:
            yield from pieces


class AsyncSession(_SessionBase):
    """The same calls on an event loop."""

    async def info(self) -> DeviceInfo:
        """As `Session.info`."""
        return await self._run(self._board.info())

    async def list(self, path: str = "/", *, recursive: bool = False) -> list[FileEntry]:
        """As `Session.list`."""
        return await self._run(self._board.listing(path, recursive=recursive))

    async def stat(self, path: str) -> FileEntry:
        """As `Session.stat`."""
        return await self._run(self._board.stat(path))

    def read(
        self, path: str, *, offset: int = 0, limit: int | None = None, transfer: Transfer = AUTO
    ) -> AsyncGenerator[bytes, None]:
        """As `Session.read`."""
        return self._stream(self._board.read(path, offset=offset, limit=limit, transfer=transfer))

    async def write(
        self,
        path: str,
        content: AsyncIterable[bytes],
        *,
        resume: Resumption | None = None,
        keep: bool = False,
        transfer: Transfer = AUTO,
    ) -> WrittenFile:
        """As `Session.write`."""
        steps = self._board.write(path, resume=resume, keep=keep, transfer=transfer)
        return await self._run(steps, (piece async for piece in content if piece))

    async def write_tree(
        self, folder: str, files: AsyncIterable[tuple[str, AsyncIterable[bytes]]], *, transfer: Transfer = AUTO
    ) -> WrittenTree:
        """As `Session.write_tree`."""
        with self._board.tree(folder, transfer) as tree:
            async for path, content in files:
                await self._run(tree.add(path), (piece async for piece in content if piece))
            return await self._run(tree.finish())

    async def part(self, path: str) -> PartialWrite | None:
        """As `Session.part`."""
        return await self._run(self._board.part(path))

    async def remove(self, path: str) -> None:
        """As `Session.remove`."""
        await self._run(self._board.remove(path))

    async def mkdir(self, path: str) -> None:
        """As `Session.mkdir`."""
        await self._run(self._board.mkdir(path))

    async def rename(self, path: str, to: str) -> None:
        """As `Session.rename`."""
        await self._run(self._board.rename(path, to))

    async def hash(self, path: str, *, limit: int | None = None) -> tuple[str, str]:
        """As `Session.hash`."""
        return await self._run(self._board.digest(path, limit))

    async def hashes(self, folder: str = "/") -> builtins.list[Hashed]:
        """As `Session.hashes`."""
        return await self._run(self._board.hashes(folder))

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
        with located(self.name):
            return await arun(self._board.guarded(conversation), self._port, content)

    async def _stream(self, conversation: Conversation[None]) -> AsyncGenerator[bytes, None]:
        with located(self.name):
            async with contextlib.aclosing(astream(self._board.streamed(conversation), self._port)) as pieces:
                async for piece in pieces:
                    yield piece


@contextlib.contextmanager
def located(name: str) -> Iterator[None]:
    """Name the device in errors that are raised in the block.

    A transport's error names its URL, which may hold a command or a folder of the host: the device's name replaces it.
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
