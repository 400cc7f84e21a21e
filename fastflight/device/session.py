"""The operations of a leased device: `Device.alease` gives an `AsyncSession`, `Device.lease` a `Session`.

Both have the same methods, one awaitable, one blocking. Most of them are the conversations of `OpenBoard` of the same
signature, run over the open port. File content is `bytes`; results are the dataclasses that `fastflight.device`
exports. Errors are those of `fastflight.errors`; they name the device, and the path if there is one.

Exhaust or close a stream (`read`, `follow`) before the next call. If a stream is closed early, the board is still at
work: the next call, or the end of the lease, stops it first.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
)
from typing import Any, Concatenate, ParamSpec, TypeVar

from fastflight.concurrency.blocking import Blocking, NonBlocking, finish
from fastflight.device.board import CODE_SECONDS, OpenBoard
from fastflight.device.capabilities import Capabilities
from fastflight.device.transfer.types import AUTO, Resumption, Transfer, WrittenFile, WrittenTree
from fastflight.errors import FastFlightError, TransportError
from fastflight.protocol import Conversation
from fastflight.transport import Port, arun, astream, run, stream

P = ParamSpec("P")
T = TypeVar("T")


def _awaitable(
    operation: Callable[Concatenate[OpenBoard, P], Conversation[T]],
) -> Callable[Concatenate[AsyncSession, P], Coroutine[Any, Any, T]]:
    """Return the method that runs a conversation of the board."""

    @functools.wraps(operation)
    async def method(session: AsyncSession, /, *args: P.args, **keys: P.kwargs) -> T:
        return await session._run(operation(session._board, *args, **keys))

    return method


def _blocking(
    operation: Callable[Concatenate[OpenBoard, P], Conversation[T]],
) -> Callable[Concatenate[Session, P], T]:
    """As `_awaitable`, for a thread."""

    @functools.wraps(operation)
    def method(session: Session, /, *args: P.args, **keys: P.kwargs) -> T:
        return finish(session._session._run(operation(session._board, *args, **keys)))

    return method


class AsyncSession:
    """Operations on a leased device. Use it in one task at a time, within the lease only."""

    def __init__(self, name: str, board: OpenBoard, port: Port) -> None:
        self.name = name
        self._board = board
        self._port = port
        board.link.pace = port.bytes_per_second

    @property
    def capabilities(self) -> Capabilities:
        """What the board can do, as found when the line was opened."""
        return self._board.capabilities

    info = _awaitable(OpenBoard.info)
    list = _awaitable(OpenBoard.list)
    stat = _awaitable(OpenBoard.stat)
    part = _awaitable(OpenBoard.part)
    version = _awaitable(OpenBoard.version)
    remove = _awaitable(OpenBoard.remove)
    mkdir = _awaitable(OpenBoard.mkdir)
    rename = _awaitable(OpenBoard.rename)
    hash = _awaitable(OpenBoard.hash)
    hashes = _awaitable(OpenBoard.hashes)
    exec = _awaitable(OpenBoard.exec)
    soft_reset = _awaitable(OpenBoard.soft_reset)
    hard_reset = _awaitable(OpenBoard.hard_reset)

    def read(
        self, path: str, *, offset: int = 0, limit: int | None = None, transfer: Transfer = AUTO
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file from `offset` on, at most `limit`, and empty pieces while the board is silent."""
        return self._stream(self._board.read(path, offset=offset, limit=limit, transfer=transfer))

    def follow(self, code: str, *, timeout: float = CODE_SECONDS) -> AsyncGenerator[bytes, None]:
        """Run code and yield its output as it comes. If the code raises, raise the `DeviceError` for it at the end."""
        return self._stream(self._board.follow(code, timeout))

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
        """Write `content` as the file at `path`, whole or not at all: if the write fails, the old file stays.

        The next piece of `content` is taken when the board has stored the one before. With `resume`, `content` starts
        where the part ends, and the result describes the whole file; `DeviceError` if the part has changed. With
        `keep`, a write that breaks off leaves its part on the board, for `part` to find. `size` is that of the whole
        file, if it is known: a board without room for it is sent nothing.
        """
        steps = self._board.write(path, resume=resume, keep=keep, transfer=transfer, size=size)
        return await self._run(steps, (piece async for piece in content if piece))

    async def write_tree(
        self, folder: str, files: AsyncIterable[tuple[str, AsyncIterable[bytes]]], *, transfer: Transfer = AUTO
    ) -> WrittenTree:
        """Write each content to the file at its path below `folder`. Create missing folders.

        All contents go to temporary files first, are verified in one pass, and only then replace the old files.
        """
        with self._board.tree(folder, transfer) as tree:
            async for path, content in files:
                await self._run(tree.add(path), (piece async for piece in content if piece))
            return await self._run(tree.finish())

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


class Session:
    """The methods of `AsyncSession` for a thread. Use it in one thread at a time, within the lease only."""

    def __init__(self, session: AsyncSession) -> None:
        self.name = session.name
        self._board = session._board
        self._session = ThreadSession(session.name, session._board, session._port)

    @property
    def capabilities(self) -> Capabilities:
        """What the board can do, as found when the line was opened."""
        return self._board.capabilities

    info = _blocking(OpenBoard.info)
    list = _blocking(OpenBoard.list)
    stat = _blocking(OpenBoard.stat)
    part = _blocking(OpenBoard.part)
    version = _blocking(OpenBoard.version)
    remove = _blocking(OpenBoard.remove)
    mkdir = _blocking(OpenBoard.mkdir)
    rename = _blocking(OpenBoard.rename)
    hash = _blocking(OpenBoard.hash)
    hashes = _blocking(OpenBoard.hashes)
    exec = _blocking(OpenBoard.exec)
    soft_reset = _blocking(OpenBoard.soft_reset)
    hard_reset = _blocking(OpenBoard.hard_reset)

    def read(
        self, path: str, *, offset: int = 0, limit: int | None = None, transfer: Transfer = AUTO
    ) -> Generator[bytes, None, None]:
        """As `AsyncSession.read`."""
        return _in_thread(self._session.read(path, offset=offset, limit=limit, transfer=transfer))

    def follow(self, code: str, *, timeout: float = CODE_SECONDS) -> Generator[bytes, None, None]:
        """As `AsyncSession.follow`."""
        return _in_thread(self._session.follow(code, timeout=timeout))

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
        """As `AsyncSession.write`."""
        pieces = NonBlocking(content)
        return finish(self._session.write(path, pieces, resume=resume, keep=keep, transfer=transfer, size=size))

    def write_tree(
        self, folder: str, files: Iterable[tuple[str, Iterable[bytes]]], *, transfer: Transfer = AUTO
    ) -> WrittenTree:
        """As `AsyncSession.write_tree`."""
        contents = NonBlocking((path, NonBlocking(content)) for path, content in files)
        return finish(self._session.write_tree(folder, contents, transfer=transfer))

    def awaitable(self) -> AsyncSession:
        """Return the same session for code that awaits and runs in this thread (`concurrency.blocking`)."""
        return self._session


def _in_thread(pieces: AsyncGenerator[bytes, None]) -> Generator[bytes, None, None]:
    with contextlib.closing(Blocking(pieces)) as blocking:
        yield from blocking


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
