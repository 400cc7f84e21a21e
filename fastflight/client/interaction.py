"""A device's line in both directions: send bytes, and see what the device says.

    with client.interact("demo") as repl:
        repl.send("print(6 * 7)\\r")
        print(repl.read_until(b">>> ").decode())

`rows` are those of the session, as of any other, what is sent included. One thread may send while another reads.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Self

import pyarrow as pa
from pyarrow import flight

from fastflight.client.failure import typed_errors
from fastflight.client.meaning import content, understood
from fastflight.client.stream import RowStream
from fastflight.errors import FastFlightError, RequestError, Stopped, TransportTimeout
from fastflight.tables.bare import one_content

SENT = pa.schema([pa.field("data", pa.binary(), nullable=False)])
# What may pass before the mark that one waits for; a device that never says it would fill the memory.
MAX_SOUGHT_BYTES = 16 * 1024 * 1024
# Of what came instead of the mark, in an error's text: a line or two.
MAX_SHOWN_BYTES = 120


class Interaction:
    """One exchange. Leaving its context, or `close`, ends it and gives the line back."""

    def __init__(self, writer: flight.FlightStreamWriter, reader: flight.FlightStreamReader, location: str) -> None:
        self._writer = writer
        self._location = location
        # Of its own, since `rows` ends it: what held both itself and `rows`, and was held by `rows`, would keep the
        # call, and so the connection, after its end, until the next collection of cycles.
        self._sending = Sending(writer, location)
        try:
            with typed_errors(location):
                writer.begin(SENT)
            self.rows = RowStream(reader, location, told=self._sending.done)
        except FastFlightError as error:
            # What ended the call is told by its end; a writer that failed knows less.
            raise self._refusal(error) from error
        self._batches = iter(self.rows)
        # A read that goes on in a thread, because its caller would not wait for it any longer.
        self._reading: Future[pa.RecordBatch | None] | None = None
        # What came before a `read_until` that timed out.
        self._unread = b""

    def send(self, data: bytes | str) -> None:
        """Send this to the device, text as UTF-8."""
        self._sending.send(data.encode() if isinstance(data, str) else data)

    def receive(self) -> pa.RecordBatch | None:
        """The next rows of the session; None when it has ended."""
        reading, self._reading = self._reading, None
        return next(self._batches, None) if reading is None else reading.result()

    def read_until(self, mark: bytes, *, timeout: float | None = None) -> bytes:
        """What the device says up to `mark`; for format `bytes`. `Stopped` if the session ends before.

        `ReadTimeout` if `mark` does not come within `timeout` seconds: its `data` is what came, and the next
        `read_until` begins with that again. Read on with `receive` or `read_until` then, and not by `rows`.
        """
        seeking = Seeking(mark, self._unread, timeout)
        try:
            while not seeking.found:
                if timeout is not None and not self._is_readable(seeking.seconds_left()):
                    raise seeking.timed_out()
                seeking.feed(self.receive())
        except ReadTimeout as error:
            self._unread = error.data
            raise
        self._unread = b""
        return seeking.data

    def _is_readable(self, seconds: float) -> bool:
        """Whether `receive` gives something at once, or does so within `seconds`."""
        if self._reading is None:
            self._reading = _begin(self._batches)
        return bool(wait([self._reading], seconds).done)

    def done(self) -> None:
        """Nothing more will be sent; the session ends with that."""
        self._sending.done()

    def close(self) -> None:
        """Give the line back. The rest of the rows is passed over; `rows.summary` is there after this."""
        self.done()
        while self.receive() is not None:
            pass
        with typed_errors(self._location):
            self._writer.close()

    def cancel(self) -> None:
        """Leave at once. From any thread; one that is reading gets `Stopped`. `settle` when none reads any more."""
        self.rows.cancel()
        self._sending.leave()

    def settle(self) -> None:
        """Give back what the call holds, after its end."""
        if self._reading is not None:
            wait([self._reading])
        with contextlib.suppress(pa.ArrowException, OSError):  # the call was cancelled, which is what it says
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            self.cancel()
            self.settle()

    def _refusal(self, error: FastFlightError) -> FastFlightError:
        self.done()
        try:
            with typed_errors(self._location):
                self._writer.close()
        except FastFlightError as told:
            return told
        return error


def left(interaction: Interaction) -> None:
    """Leave one that nobody reads: a writer that is not closed complains when it goes."""
    interaction.cancel()
    interaction.settle()


class Sending:
    """The client's side of an exchange: open until it is done."""

    def __init__(self, writer: flight.FlightStreamWriter, location: str) -> None:
        self._writer = writer
        self._location = location
        self._writing = threading.Lock()
        self._done = False

    def send(self, content: bytes) -> None:
        """Send a batch of one row."""
        with self._writing:
            if self._done:
                raise Stopped("the session has ended", where=self._location)
            with typed_errors(self._location):
                self._writer.write_batch(pa.record_batch([one_content(content)], schema=SENT))

    def done(self) -> None:
        """Tell the server that nothing more comes, once."""
        with self._writing:
            if not self._done:
                self._done = True
                with contextlib.suppress(pa.ArrowException, OSError):  # it has ended, as reading says
                    self._writer.done_writing()

    def leave(self) -> None:
        """Send no more, and do not tell: who reads ends the call, and gRPC ends the process when two do so at once."""
        with self._writing:
            self._done = True


def _begin(batches: Iterator[pa.RecordBatch]) -> Future[pa.RecordBatch | None]:
    """Read the next batch in a thread: Flight's reader has no timeout."""
    reading: Future[pa.RecordBatch | None] = Future()

    def read() -> None:
        try:
            reading.set_result(next(batches, None))
        except BaseException as error:
            reading.set_exception(error)

    threading.Thread(target=read, name="fastflight-interaction", daemon=True).start()
    return reading


class ReadTimeout(TransportTimeout):
    """The device did not say what was waited for. `data` is what it said until then."""

    def __init__(self, mark: bytes, seconds: float, data: bytes) -> None:
        last = f"; the last it said is {data[-MAX_SHOWN_BYTES:]!r}" if data else ", and nothing else"
        super().__init__(f"the device did not say {mark!r} within {seconds:g} s{last}")
        self.data = data


class Seeking:
    """What the device says in the rows of a session, up to a mark, and within `timeout` seconds from now."""

    def __init__(self, mark: bytes, begun: bytes = b"", timeout: float | None = None) -> None:
        """`begun`: what it said before."""
        self._mark = mark
        self._data = bytearray(begun)
        self._timeout = timeout or 0.0
        self._began = time.monotonic()

    def seconds_left(self) -> float:
        return max(0.0, self._began + self._timeout - time.monotonic())

    def timed_out(self) -> ReadTimeout:
        return ReadTimeout(self._mark, self._timeout, self.data)

    @property
    def found(self) -> bool:
        return self._mark in self._data

    @property
    def data(self) -> bytes:
        return bytes(self._data)

    def feed(self, batch: pa.RecordBatch | None) -> None:
        """The next rows; None for the end."""
        if batch is None:
            raise Stopped(f"the session ended before the device said {self._mark!r}")
        if "data" not in batch.schema.names:
            raise RequestError("these rows are not the device's bytes", where="format", hint='Ask for "bytes"')
        with understood("a row of the session"):
            # Not the times beside them: for these Arrow loads pandas.
            taken = batch.select(["direction", "data"]).to_pylist()
            rows = [(row["direction"], content(row["data"])) for row in taken]
        self._data += b"".join(data for direction, data in rows if direction == "rx")
        if len(self._data) > MAX_SOUGHT_BYTES and not self.found:
            raise Stopped(f"the device said {len(self._data)} bytes, and not {self._mark!r}")
