"""A client for the main thread of a command: a signal ends the wait for each of its calls.

Each call of Flight runs in a thread of its own, and the main thread waits for it. A call that has no answer yet cannot
be cancelled; it ends with the process.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, Unpack

import pyarrow as pa
from pyarrow import flight

from fastflight.cli.interruption import LOOK_SECONDS
from fastflight.client import FastFlightClient
from fastflight.client.connection import ServerConnection
from fastflight.client.options import FileOptions
from fastflight.client.server_board import ServerBoard

T = TypeVar("T")


class _Connection(ServerConnection):
    def _connect(self, location: str) -> Any:
        return _FlightClient(super()._connect(location))


class InterruptibleClient(FastFlightClient):
    """A client for the main thread of a command: a signal ends the wait for each of its calls."""

    _connection_class = _Connection

    def board(self, device: str, **options: Unpack[FileOptions]) -> ServerBoard:
        """Return a device of the server."""
        return ServerBoard(self._connection, device, options)

    @property
    def tables(self) -> InterruptibleClient:
        """The client itself, which can read rows."""
        return self


class _FlightClient:
    """The methods of Flight's client that commands need, each in a thread."""

    def __init__(self, client: flight.FlightClient) -> None:
        self._client = client
        self.close = client.close

    def do_action(self, *arguments: Any) -> list[flight.Result]:
        return _in_thread(lambda: list(self._client.do_action(*arguments)))

    def do_get(self, *arguments: Any) -> _Reader:
        return _Reader(_in_thread(self._client.do_get, *arguments))

    def do_exchange(self, *arguments: Any) -> tuple[_Writer, _Reader]:
        writer, reader = _in_thread(self._client.do_exchange, *arguments)
        return _Writer(writer), _Reader(reader)

    def do_put(self, *arguments: Any) -> tuple[_Writer, flight.FlightMetadataReader]:
        writer, acknowledgements = _in_thread(self._client.do_put, *arguments)
        return _Writer(writer), acknowledgements  # the client already reads acknowledgements in a thread


class _Reader:
    def __init__(self, reader: flight.FlightStreamReader) -> None:
        self._reader = reader
        self.read_chunk = partial(_in_thread, reader.read_chunk)
        self.cancel = reader.cancel

    @property
    def schema(self) -> pa.Schema:
        """The schema of the answer. The schema of an exchange arrives after the client has begun to write."""
        return _in_thread(lambda: self._reader.schema)


class _Writer:
    """Ends each call before the next: if two threads used a writer at the same time, gRPC would abort the process."""

    def __init__(self, writer: flight.FlightStreamWriter) -> None:
        self.begin = partial(_in_thread, writer.begin, finish=True)
        self.write_batch = partial(_in_thread, writer.write_batch, finish=True)
        self.write_metadata = partial(_in_thread, writer.write_metadata, finish=True)
        self.done_writing = partial(_in_thread, writer.done_writing, finish=True)
        self.close = partial(_in_thread, writer.close, finish=True)


def _in_thread(blocking: Callable[..., T], *arguments: Any, finish: bool = False) -> T:
    """Return `blocking(*arguments)`, run in a thread.

    If a signal ends the wait, the call goes on in its thread. With `finish`, `KeyboardInterrupt` comes after its end.

    The main thread waits for a bare lock. `Thread.start` and futures wait for a condition, in which a signal may become
    a `RuntimeError` about its lock.
    """
    ended = _thread.allocate_lock()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(blocking(*arguments))
        except BaseException as error:
            errors.append(error)
        ended.release()

    ended.acquire()
    try:
        _thread.start_new_thread(run, ())
        while not ended.acquire(timeout=LOOK_SECONDS):
            pass
    except KeyboardInterrupt:
        if finish:
            ended.acquire()
        raise
    if errors:
        raise errors.pop()
    return results.pop()
