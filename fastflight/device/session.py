"""The operations of a leased device: `Device.lease` gives a `Session`, `Device.alease` an `AsyncSession`.

Both have the same methods, one blocking, one awaitable, and run the conversations of `OpenBoard` over the open port.
File content is `bytes`; results are the dataclasses that `fastflight.device` exports. Errors are those of
`fastflight.errors`; they name the device, and the path if there is one.

Exhaust or close a stream (`read`, `follow`) before the next call. If a stream is closed early, the board is still at
work: the next call, or the end of the lease, stops it first.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from typing import TypeVar

from fastflight.concurrency.blocking import Blocking
from fastflight.device.board import OpenBoard
from fastflight.device.capabilities import Capabilities, DeviceInfo
from fastflight.device.listing import FileEntry
from fastflight.device.transfer.types import (
    AUTO,
    FileDigest,
    PartialWrite,
    Resumption,
    Transfer,
    WrittenFile,
    WrittenTree,
)
from fastflight.errors import FastFlightError, TransportError
from fastflight.protocol import Conversation, Output
from fastflight.transport import Port, arun, astream, run, stream

T = TypeVar("T")

# Code that prints nothing for longer is assumed to hang.
CODE_SECONDS = 60.0


class _SessionBase:
    def __init__(self, name: str, board: OpenBoard, port: Port) -> None:
        self.name = name
        self._board = board
        self._port = port
        board.link.pace = port.bytes_per_second

    @property
    def capabilities(self) -> Capabilities:
        """What the board can do, as found when the line was opened."""
        return self._board.capabilities


class Session(_SessionBase):
    """Blocking operations on a leased device. Use it in one thread at a time, within the lease only."""

    def info(self) -> DeviceInfo:
        """Return the board's platform, version, memory, storage and features."""
        return self._run(self._board.info())

    def list(self, path: str = "/", *, recursive: bool = False) -> list[FileEntry]:
        """List a folder, ordered by path; with `recursive` the folders below it as well."""
        return self._run(self._board.listing(path, recursive=recursive))

    def stat(self, path: str) -> FileEntry:
        """Return one entry. `FileMissing` if there is none."""
        return self._run(self._board.stat(path))

    def read(
        self, path: str, *, offset: int = 0, limit: int | None = None, transfer: Transfer = AUTO
    ) -> Generator[bytes, None, None]:
        """Yield the bytes of a file from `offset` on, at most `limit`, and empty pieces while the board is silent."""
        return self._stream(self._board.read(path, offset=offset, limit=limit, transfer=transfer))

    def write(
        self,
        path: str,
        content: Iterable[bytes],
        *,
        resume: Resumption | None = None,
        keep: bool = False,
        transfer: Transfer = AUTO,
        size: int | None = None,
    ) -> WrittenFile:
        """Write `content` as the file at `path`, whole or not at all: if the write fails, the old file stays.

        The next piece of `content` is taken when the board has stored the one before. With `resume`, `content` starts
        where the part ends, and the result describes the whole file; `DeviceError` if the part has changed. With
        `keep`, a write that breaks off leaves its part on the board, for `part` to find. `size` is that of the whole
        file, if it is known: a board without room for it is sent nothing.
        """
        steps = self._board.write(path, resume=resume, keep=keep, transfer=transfer, size=size)
        return self._run(steps, (piece for piece in content if piece))

    def write_tree(
        self, folder: str, files: Iterable[tuple[str, Iterable[bytes]]], *, transfer: Transfer = AUTO
    ) -> WrittenTree:
        """Write each content to the file at its path below `folder`. Create missing folders.

        All contents go to temporary files first, are verified in one pass, and only then replace the old files.
        """
        with self._board.tree(folder, transfer) as tree:
            for path, content in files:
                self._run(tree.add(path), (piece for piece in content if piece))
            return self._run(tree.finish())

    def part(self, path: str) -> PartialWrite | None:
        """Return the part that a broken write with `keep` left; None if no write to `path` can be resumed."""
        return self._run(self._board.part(path))

    def remove(self, path: str) -> None:
        """Remove a file or an empty folder. `FileMissing` if there is none."""
        self._run(self._board.remove(path))

    def mkdir(self, path: str) -> None:
        """Create a folder. Its parent must exist."""
        self._run(self._board.mkdir(path))

    def rename(self, path: str, to: str) -> None:
        """Rename a file or folder."""
        self._run(self._board.rename(path, to))

    def hash(self, path: str, *, limit: int | None = None) -> tuple[str, str]:
        """Have the board hash a file, or its first `limit` bytes. Return the algorithm and the hexadecimal digest.

        The algorithm is `sha256` or `crc32`. Both texts are empty if the board can compute neither.
        """
        return self._run(self._board.digest(path, limit))

    def hashes(self, folder: str = "/") -> builtins.list[FileDigest]:
        """Have the board hash every file below a folder, in one pass. Ordered by path."""
        return self._run(self._board.hashes(folder))

    def exec(self, code: str, *, timeout: float = CODE_SECONDS) -> Output:
        """Run code to its end and return its output and traceback. `timeout` bounds each silence, in seconds."""
        return self._run(self._board.execute(code, timeout))

    def follow(self, code: str, *, timeout: float = CODE_SECONDS) -> Generator[bytes, None, None]:
        """Run code and yield its output as it comes. If the code raises, raise the `DeviceError` for it at the end."""
        return self._stream(self._board.follow(code, timeout))

    def soft_reset(self, *, main: bool = True) -> None:
        """Restart the interpreter; with `main`, `main.py` runs again."""
        self._run(self._board.soft_reset(main=main))

    def hard_reset(self) -> None:
        """Restart the board; the line may go away for a while."""
        self._run(self._board.hard_reset())

    def awaitable(self) -> ThreadSession:
        """Return the same session for code that awaits and runs in this thread (`concurrency.blocking`)."""
        return ThreadSession(self.name, self._board, self._port)

    def _run(self, conversation: Conversation[T], content: Iterator[bytes] | None = None) -> T:
        with located(self.name):
            return run(self._board.guarded(conversation), self._port, content)

    def _stream(self, conversation: Conversation[None]) -> Generator[bytes, None, None]:
        with located(self.name), contextlib.closing(stream(self._board.streamed(conversation), self._port)) as pieces:
            yield from pieces


class AsyncSession(_SessionBase):
    """The methods of `Session` for an event loop."""

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
        size: int | None = None,
    ) -> WrittenFile:
        """As `Session.write`."""
        steps = self._board.write(path, resume=resume, keep=keep, transfer=transfer, size=size)
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

    async def hashes(self, folder: str = "/") -> builtins.list[FileDigest]:
        """As `Session.hashes`."""
        return await self._run(self._board.hashes(folder))

    async def exec(self, code: str, *, timeout: float = CODE_SECONDS) -> Output:
        """As `Session.exec`."""
        return await self._run(self._board.execute(code, timeout))

    def follow(self, code: str, *, timeout: float = CODE_SECONDS) -> AsyncGenerator[bytes, None]:
        """As `Session.follow`."""
        return self._stream(self._board.follow(code, timeout))

    async def soft_reset(self, *, main: bool = True) -> None:
        """As `Session.soft_reset`."""
        await self._run(self._board.soft_reset(main=main))

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


class ThreadSession(AsyncSession):
    """The methods of `AsyncSession` for code that also runs in a thread: they block, and never suspend."""

    async def _run(self, conversation: Conversation[T], content: AsyncIterator[bytes] | None = None) -> T:
        with located(self.name):
            return run(self._board.guarded(conversation), self._port, None if content is None else Blocking(content))

    async def _stream(self, conversation: Conversation[None]) -> AsyncGenerator[bytes, None]:
        with located(self.name), contextlib.closing(stream(self._board.streamed(conversation), self._port)) as pieces:
            for piece in pieces:
                yield piece


@contextlib.contextmanager
def located(name: str) -> Iterator[None]:
    """Put the device's name into the errors that the block raises.

    In the error of a transport, the name replaces the URL, which may hold a command or a folder of the host.
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
