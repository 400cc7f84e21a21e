"""Lets Ctrl-C and SIGTERM end a command, also while it waits for the server.

Python handles a signal in the main thread, and only between two steps of Python code. Flight's calls block in C++, some
for as long as a device is busy. So `InterruptibleClient` runs each of them in a thread, and the main thread waits for
it. A signal raises `KeyboardInterrupt` there: the command leaves its `with` blocks, which cancels open streams, aborts
writes and removes temporary files. A call that has no answer yet cannot be cancelled; it ends with the process.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa
import typer
from pyarrow import flight

from fastflight.cli import screen
from fastflight.cli.exit_codes import INTERRUPTED, Interrupted, report_errors
from fastflight.client import FastFlightClient
from fastflight.client.connection import ServerConnection

P = ParamSpec("P")
T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# How long an interrupted command may clean up: the server stores the batch that is on the line and settles the file, or
# a recording on this computer is completed.
CLEAN_UP_SECONDS = 30.0
# Some systems do not wake a waiting main thread for a signal: it looks this often whether there was one.
LOOK_SECONDS = 0.2


def interruptible(command: Callable[P, None]) -> Callable[P, None]:
    """Report the errors of a command, and raise `KeyboardInterrupt` in it at Ctrl-C and SIGTERM.

    After `CLEAN_UP_SECONDS` an interrupted command ends the process without further clean-up.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with report_errors(), _signals_interrupt():
                command(*args, **kwargs)
        except typer.Exit as ended:
            if ended.exit_code == INTERRUPTED:
                from fastflight.app.process import abandon  # not at the top: it loads the log of servers

                abandon(INTERRUPTED)
            raise

    return run


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield
        return
    handlers = {number: signal.signal(number, _interrupt) for number in SIGNALS}
    try:
        yield
    except (KeyboardInterrupt, Interrupted):
        handlers = dict.fromkeys(SIGNALS, signal.SIG_DFL)  # the process is about to end: another signal ends it at once
        raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _interrupt(*_: object) -> None:
    limit = threading.Timer(CLEAN_UP_SECONDS, _end_late)
    limit.daemon = True
    limit.start()
    raise KeyboardInterrupt


def _end_late() -> None:
    screen.complain("interrupted")
    os._exit(INTERRUPTED)


class _Connection(ServerConnection):
    def _connect(self, location: str) -> Any:
        return _FlightClient(super()._connect(location))


class InterruptibleClient(FastFlightClient):
    """A client for the main thread of a command: a signal ends the wait for each of its calls."""

    _connection_class = _Connection


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
