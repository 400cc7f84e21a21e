"""An interactive session: send bytes to a device, and read its output.

    with client.interact("demo") as repl:
        repl.send("print(6 * 7)\\r")
        print(repl.read_until(b">>> ").decode())

`rows` is the stream of the session, with the same rows as any live session; sent bytes are included. One thread may
send while another reads.
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

from fastflight.client.argument_types import checks_arguments
from fastflight.client.failure import typed_errors
from fastflight.client.stream import RowStream
from fastflight.client.validation import content, validating
from fastflight.errors import FastFlightError, RequestError, Stopped, TransportTimeout
from fastflight.tables.bare import one_content

SENT = pa.schema([pa.field("data", pa.binary(), nullable=False)])
# How much output `read_until` collects: a device that never sends the mark would fill the memory.
MAX_SOUGHT_BYTES = 16 * 1024 * 1024
# How much of the output an error quotes: a line or two.
MAX_SHOWN_BYTES = 120


@checks_arguments
class Interaction:
    """One exchange with a device. `close`, or leaving the context, ends it and releases the device's line."""

    def __init__(self, writer: flight.FlightStreamWriter, reader: flight.FlightStreamReader, location: str) -> None:
        self._writer = writer
        self._location = location
        # A separate object, because `rows` calls it at its end: a callback to this object would form a reference cycle,
        # which would keep the call, and so the connection, open until the next garbage collection.
        self._sending = Sending(writer, location)
        try:
            with typed_errors(location):
                writer.begin(SENT)
            self.rows: RowStream = RowStream(reader, location, on_summary=self._sending.done)
        except FastFlightError as error:
            # The end of the call has the server's reason; the error of a failed writer says less.
            raise self._refusal(error) from error
        self._batches = iter(self.rows)
        # A read that is still running in a thread after its caller's timeout.
        self._reading: Future[pa.RecordBatch | None] | None = None
        # The output that a `read_until` had collected when it timed out.
        self._unread = b""

    def send(self, data: bytes | str) -> None:
        """Send bytes to the device, or text as UTF-8."""
        self._sending.send(data.encode() if isinstance(data, str) else data)

    def receive(self) -> pa.RecordBatch | None:
        """Return the next rows of the session, or None when it has ended."""
        reading, self._reading = self._reading, None
        return next(self._batches, None) if reading is None else reading.result()

    def read_until(self, mark: bytes, *, timeout: float | None = None) -> bytes:
        """Return the device's output up to and including `mark`. Needs the format `bytes`.

        The result may go on beyond `mark`, to the end of the rows that contain it. Raises `Stopped` if the session ends
        first, and `ReadTimeout` if `mark` does not come within `timeout` seconds: its `data` is the output so far, and
        the next `read_until` begins with it again. After a timeout use `receive` or `read_until`, not `rows`.
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
        """Wait up to `seconds`; return whether `receive` can return without waiting."""
        if self._reading is None:
            self._reading = _begin(self._batches)
        return bool(wait([self._reading], seconds).done)

    def done(self) -> None:
        """Tell the server that nothing more will be sent. This ends the session."""
        self._sending.done()

    def close(self) -> None:
        """End the session and release the line. Skips the remaining rows; then `rows.summary` is available."""
        self.done()
        while self.receive() is not None:
            pass
        with typed_errors(self._location):
            self._writer.close()

    def cancel(self) -> None:
        """End the session at once, from any thread. A thread that is reading gets `Stopped`; then call `settle`."""
        self.rows.cancel()
        self._sending.leave()

    def settle(self) -> None:
        """Release the resources of the call, after its end. Waits for a read that is still running."""
        if self._reading is not None:
            wait([self._reading])
        with contextlib.suppress(pa.ArrowException, OSError):  # says that the call was cancelled
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
        except FastFlightError as reason:
            return reason
        return error


def leave(interaction: Interaction) -> None:
    """End a session that nobody reads. A writer that is not closed would print a warning when it is deleted."""
    interaction.cancel()
    interaction.settle()


class Sending:
    """The sending side of an exchange."""

    def __init__(self, writer: flight.FlightStreamWriter, location: str) -> None:
        self._writer = writer
        self._location = location
        self._lock = threading.Lock()
        self._done = False

    def send(self, content: bytes) -> None:
        """Send a batch of one row. Raises `Stopped` after `done` or `leave`."""
        with self._lock:
            if self._done:
                raise Stopped("the session has ended", where=self._location)
            with typed_errors(self._location):
                self._writer.write_batch(pa.record_batch([one_content(content)], schema=SENT))

    def done(self) -> None:
        """Tell the server, once, that nothing more comes."""
        with self._lock:
            if not self._done:
                self._done = True
                with contextlib.suppress(
                    pa.ArrowException, OSError
                ):  # the exchange has ended; the reading side reports why
                    self._writer.done_writing()

    def leave(self) -> None:
        """Stop sending without telling the server.

        The reading side ends the call. If both sides did so at the same time, gRPC would abort the process.
        """
        with self._lock:
            self._done = True


def _begin(batches: Iterator[pa.RecordBatch]) -> Future[pa.RecordBatch | None]:
    """Read the next batch in a thread, because Flight's reader has no timeout."""
    reading: Future[pa.RecordBatch | None] = Future()

    def read() -> None:
        try:
            reading.set_result(next(batches, None))
        except BaseException as error:
            reading.set_exception(error)

    threading.Thread(target=read, name="fastflight-interaction", daemon=True).start()
    return reading


class ReadTimeout(TransportTimeout):
    """The device did not send the expected bytes in time. `data` is its output until then."""

    def __init__(self, mark: bytes, seconds: float, data: bytes) -> None:
        last = f"; the last it said is {data[-MAX_SHOWN_BYTES:]!r}" if data else ", and nothing else"
        super().__init__(f"the device did not say {mark!r} within {seconds:g} s{last}")
        self.data = data


class Seeking:
    """Collects the device's output from the rows of a session until it contains a mark. The timeout starts now."""

    def __init__(self, mark: bytes, begun: bytes = b"", timeout: float | None = None) -> None:
        """`begun`: output that was received before. `timeout` is in seconds."""
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
        """Add the next rows; None means the end of the session.

        Raises `Stopped` at the end or after `MAX_SOUGHT_BYTES`, `RequestError` if the rows have no `data` column.
        """
        if batch is None:
            raise Stopped(f"the session ended before the device said {self._mark!r}")
        if "data" not in batch.schema.names:
            raise RequestError("these rows are not the device's bytes", where="format", hint='Ask for "bytes"')
        with validating("a row of the session"):
            # Without the column of times, for which Arrow would import pandas.
            values = batch.select(["direction", "data"]).to_pylist()
            rows = [(row["direction"], content(row["data"])) for row in values]
        self._data += b"".join(data for direction, data in rows if direction == "rx")
        if len(self._data) > MAX_SOUGHT_BYTES and not self.found:
            raise Stopped(f"the device said {len(self._data)} bytes, and not {self._mark!r}")
