"""A client for the main thread of a command: a signal ends the wait for each of its calls.

Each call of Flight runs in a thread of its own, and the main thread waits for it. A call that has no answer yet cannot
be cancelled; it ends with the process.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, wait
from functools import partial
from importlib.abc import MetaPathFinder
from typing import Any, TypeVar, Unpack

import pyarrow as pa
from pyarrow import flight

from fastflight.cli.interruption import LOOK_SECONDS
from fastflight.client import FastFlightClient
from fastflight.client.connection import ServerConnection
from fastflight.client.device_files import Download
from fastflight.client.interaction import Interaction
from fastflight.client.meaning import content, text, understood
from fastflight.client.options import FileOptions
from fastflight.client.server_files import ServerFiles
from fastflight.errors import TransportClosed
from fastflight.service.requests import DEVICE_GONE, SERVER_DRAINING

T = TypeVar("T")


class _Connection(ServerConnection):
    def _connect(self, location: str) -> Any:
        return _FlightClient(super()._connect(location))


class InterruptibleClient(FastFlightClient):
    """A client for the main thread of a command: a signal ends the wait for each of its calls."""

    _connection_class = _Connection

    def exec_rows(
        self, device: str, code: str, *, timeout: float | None = None, interrupt: bool = False
    ) -> Generator[dict[str, Any], None, None]:
        """Run code and yield its output by lines: `line`, `time` and `text`. At the end, raise its error."""
        with self.exec(device, code, timeout=timeout, interrupt=interrupt) as stream:
            for batch in stream:
                yield from batch.to_pylist()

    def terminal(self, device: str) -> ServerTerminal:
        """Take the device's line, to send keys and receive what the board prints."""
        return ServerTerminal(self.interact(device))

    def file_bytes(
        self, device: str, path: str, *, offset: int = 0, limit: int | None = None, **options: Unpack[FileOptions]
    ) -> Download[bytes]:
        """Read the bytes of a file from `offset` on, at most `limit`."""
        return ServerFiles(self._connection, device, options).read(path, offset, limit)


class ServerTerminal:
    """The methods of `BoardTerminal`, over a session that holds the device's line."""

    def __init__(self, session: Interaction) -> None:
        self._session = session
        self.send = session.send
        self.done = session.done
        self.cancel = session.cancel
        self.settle = session.settle

    def receive(self) -> list[tuple[bool, bytes]] | None:
        """As `BoardTerminal.receive`. Raises `TransportClosed` if the session was ended by the board or the server."""
        batch = self._session.receive()
        if batch is None:
            self._check_end()
            return None
        with understood("a row of the session"):
            # Without the column of times, for which Arrow would import pandas.
            rows = batch.select(["direction", "data"]).to_pylist()
            return [(row["direction"] == "rx", content(row["data"])) for row in rows]

    def _check_end(self) -> None:
        summary = self._session.rows.summary
        if summary.get("ended") == DEVICE_GONE:
            with understood("the end of a session"):
                why = text(summary.get("why", ""))
            raise TransportClosed(why or "the board is gone")
        if summary.get("ended") == SERVER_DRAINING:
            raise TransportClosed("the server shuts down")


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
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(blocking(*arguments))
        except BaseException as error:
            result.set_exception(error)

    try:
        threading.Thread(target=run, name="flight-call").start()
        while not wait([result], LOOK_SECONDS).done:
            pass
    except KeyboardInterrupt:
        if finish:
            wait([result])
        raise
    return result.result()


def keep_pandas_out() -> None:
    """Have Arrow look for pandas now, and not find it. Arrow looks only once in a process.

    Arrow imports pandas when it first makes an array of Python values, or Python values of a time. That takes as long
    as all the rest of most commands, and no command makes a data frame.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, *_: Any) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)
