"""Ways to move a file to and from a board, with one interface, so that the same code times all of them.

A carrier is a context manager that keeps its line open. A call moves a whole file and returns the seconds from call to
result. The caller must check the outcome by other means.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from mpremote.transport import TransportError as MpremoteError  # type: ignore[import-untyped]
from mpremote.transport_serial import SerialTransport  # type: ignore[import-untyped]

from fastflight.concurrency import Shard
from fastflight.device import AsyncSession, Device, Session
from fastflight.errors import FastFlightError, ProtocolError, TransportError
from fastflight_benchmark.contenders import ASYNC, SYNC
from fastflight_benchmark.engine import WrongPath

T = TypeVar("T")

MPREMOTE, MPREMOTE_PTY = "mpremote", "mpremote-pty"
# The name of the holder of the board, for messages to others.
HOLDER = "benchmark"


class Carrier(Protocol):
    """An open line. `read` returns the bytes and the seconds. All errors are fastflight's."""

    @property
    def path(self) -> str:
        """The path that really runs."""

    def write(self, name: str, content: bytes) -> float:
        """Write `content` to a file. Return the seconds."""

    def read(self, name: str) -> tuple[bytes, float]:
        """Return the content of a file, and the seconds."""


def _path_of(session: Session | AsyncSession) -> str:
    return ASYNC if isinstance(session, AsyncSession) else SYNC


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


class SyncCarrier:
    """Uses fastflight's blocking calls, from this thread."""

    def __init__(self, device: Device) -> None:
        self._stack = contextlib.ExitStack()
        self._device = device

    def __enter__(self) -> Self:
        self._session = self._stack.enter_context(self._device.lease(HOLDER))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def path(self) -> str:
        return _path_of(self._session)

    def write(self, name: str, content: bytes) -> float:
        began = time.perf_counter()
        self._session.write(name, iter((content,)))
        return time.perf_counter() - began

    def read(self, name: str) -> tuple[bytes, float]:
        began = time.perf_counter()
        content = b"".join(self._session.read(name))
        return content, time.perf_counter() - began


class AsyncCarrier:
    """Uses fastflight's coroutines on `shard`, the event loop of the device, as a server does."""

    def __init__(self, device: Device, shard: Shard) -> None:
        self._device = device
        self._shard = shard
        self._stack = contextlib.AsyncExitStack()

    def __enter__(self) -> Self:
        self._session = self._run(self._stack.enter_async_context(self._device.alease(HOLDER)))
        return self

    def __exit__(self, *error: object) -> None:
        self._run(self._stack.aclose())

    @property
    def path(self) -> str:
        return _path_of(self._session)

    def write(self, name: str, content: bytes) -> float:
        async def timed() -> float:
            began = time.perf_counter()
            await self._session.write(name, _once(content))
            return time.perf_counter() - began

        return self._run(timed())

    def read(self, name: str) -> tuple[bytes, float]:
        async def timed() -> tuple[bytes, float]:
            began = time.perf_counter()
            content = b"".join([piece async for piece in self._session.read(name)])
            return content, time.perf_counter() - began

        return self._run(timed())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._shard.submit(work).result()


class MpremoteCarrier:
    """Uses mpremote's own Python interface, so that its start is not counted.

    mpremote recognizes a pseudo-terminal by its name. On one, it makes no pauses; on a serial port, it sleeps 10 ms
    when there is nothing to read. A link with another name makes it treat a pseudo-terminal as a serial port.
    """

    def __init__(self, port: str, baud: int) -> None:
        self._port = port
        self._baud = baud

    def __enter__(self) -> Self:
        with _translated():
            self._transport = SerialTransport(self._port, baudrate=self._baud)
            self._transport.enter_raw_repl()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError, MpremoteError):
            self._transport.exit_raw_repl()
            self._transport.close()

    @property
    def path(self) -> str:
        return MPREMOTE_PTY if self._transport.is_pty else MPREMOTE

    def write(self, name: str, content: bytes) -> float:
        with _translated():
            began = time.perf_counter()
            self._transport.fs_writefile(name, content)
            return time.perf_counter() - began

    def read(self, name: str) -> tuple[bytes, float]:
        with _translated():
            began = time.perf_counter()
            content = bytes(self._transport.fs_readfile(name))
            return content, time.perf_counter() - began


def check_path(carrier: Carrier, wanted: str) -> None:
    """Raise `WrongPath` unless the carrier uses the path `wanted`."""
    if carrier.path != wanted:
        raise WrongPath(f"requested the path {wanted!r}, transferred on {carrier.path!r}")


class PortName:
    """A link to a pseudo-terminal, while the context lasts. Its name does not show that it is a pseudo-terminal."""

    def __init__(self, folder: Path, terminal: str) -> None:
        self.path = folder / "ttyBOARD"
        self._terminal = terminal

    def __enter__(self) -> Path:
        os.symlink(self._terminal, self.path)
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.path.unlink()


@contextlib.contextmanager
def _translated() -> Any:
    """Translate mpremote's errors into fastflight's, because a failed transfer of a peer is also a result."""
    try:
        yield
    except FastFlightError:
        raise
    except MpremoteError as error:
        raise ProtocolError(f"mpremote: {error}") from error
    except OSError as error:
        raise TransportError(f"mpremote: {error}") from error
