"""Writes rows to a device, and receives the server's acknowledgements.

The calling thread sends batches while a second thread receives acknowledgements, so neither waits for the other. To the
server, a stream that simply ends looks like a complete file. So if the rows fail, here or in the caller's iterable, the
client sends an abort message, and the file on the device stays as it was.

If the write fails at the server, the server says so and the write ends here, even if no more rows are to be sent. A
write that can be resumed begins with a message from the server: how much it has stored of an interrupted write.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import flight

from fastflight.client.answers import Written
from fastflight.client.credentials import options
from fastflight.client.failure import typed_errors
from fastflight.client.progress import Report
from fastflight.client.rows import UploadRows, open_rows, rows_of
from fastflight.client.validation import message, text, validating, whole
from fastflight.errors import FastFlightError, ProtocolError, Stopped
from fastflight.service.requests import DeviceFile, Request
from fastflight.service.source import PartialUpload
from fastflight.service.wire import encode

# The server's do_put ends the write as a failure when it receives a message with this key.
ABORT = b'{"abort": true}'
# Unacknowledged batches of a paced write: one that the device is storing, and the next one, so that it need not wait.
AHEAD_BATCHES = 2


class Upload:
    """One write. `run` returns when the device has the file; `give_up` makes it raise `Stopped` instead."""

    def __init__(
        self,
        client: flight.FlightClient,
        request: Request,
        source: Any,
        location: str,
        report: Report | None,
    ) -> None:
        self._client = client
        self._request = request
        self._source = source
        self._location = location
        self._report = report
        self._changed = threading.Condition()
        self._given_up = False
        # The server takes no more rows, or has ended the call.
        self._is_over = False
        self._last: dict[str, Any] = {}
        self._stored: PartialUpload | None = None
        # The errors that ended the write: from the thread that receives messages, and from sending. The first has the
        # server's reason.
        self._server_error: BaseException | None = None
        self._send_error: FastFlightError | None = None

    def give_up(self) -> None:
        """Stop at the next batch. The old file stays. Has no effect once the last batch is acknowledged."""
        with self._changed:
            self._given_up = True
            self._changed.notify_all()

    def run(self) -> Written:
        """Send all rows, and return when the device has stored them. `report` is called from another thread.

        Raises the error of the server, of the device, or of the iterator that yields the rows.
        """
        request: Request = self._request
        if isinstance(request, DeviceFile):
            request, rows = open_rows(request, self._source)
        else:
            rows = rows_of(self._source)
        descriptor = flight.FlightDescriptor.for_command(encode(request))
        with typed_errors(self._location):
            writer, acknowledgements = self._client.do_put(descriptor, rows.schema, options())
        listener = threading.Thread(
            target=self._listen, args=(acknowledgements, rows), name="fastflight-acks", daemon=True
        )
        listener.start()
        complete = False
        try:
            complete = self._send(writer, rows)
        finally:
            self._close(writer, listener, complete)
        if failure := self._server_error or self._send_error:
            raise failure
        return self._result()

    @property
    def last(self) -> Mapping[str, Any]:
        """The server's last acknowledgement as it came; the one with `done` ends the write."""
        return self._last

    def _send(self, writer: flight.FlightStreamWriter, rows: UploadRows) -> bool:
        """Send all rows and wait until they are acknowledged. Return false if the server takes no more of them.

        Raises the errors of the rows' iterator, and `Stopped` after `give_up`. Stores an error of the stream. Waiting
        keeps `give_up` effective: the buffers between here and the device hold most of a small file, and once the
        stream has ended, the write cannot be stopped any more.
        """
        sent = 0
        ahead: deque[int] = deque(maxlen=AHEAD_BATCHES)
        for batch in self._batches(rows):
            if rows.paced and len(ahead) == AHEAD_BATCHES:
                self._await_rows(ahead[0])
            self._check_not_given_up()
            if self._server_error or self._is_over:
                return False
            try:
                with typed_errors(self._location):
                    writer.write_batch(batch)
            except FastFlightError as error:
                self._send_error = error
                return False
            sent += batch.num_rows
            ahead.append(sent)
        self._await_rows(sent)
        self._check_not_given_up()
        return not self._is_over

    def _batches(self, rows: UploadRows) -> Iterator[pa.RecordBatch]:
        """Return the batches to send.

        For a write that can be resumed, first wait until the server has reported how much it has stored.
        """
        if rows.after is None:
            return rows.batches
        with self._changed:
            self._changed.wait_for(lambda: self._given_up or self._is_over or self._stored is not None)
        return rows.after(self._stored or PartialUpload())

    def _await_rows(self, rows: int) -> None:
        """Wait until this number of rows is acknowledged, or the write is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._given_up or self._is_over or self._last.get("rows", 0) >= rows,
            )

    def _check_not_given_up(self) -> None:
        if self._given_up:
            raise Stopped("the write was given up", where=self._location)

    def _close(self, writer: flight.FlightStreamWriter, listener: threading.Thread, complete: bool) -> None:
        """End the stream; abort the write unless it is complete. Store the server's error if `_listen` has none."""
        with contextlib.suppress(pa.ArrowException, OSError):  # the server may have ended the stream already
            if not complete:
                writer.write_metadata(ABORT)
            writer.done_writing()
        listener.join()
        try:
            with typed_errors(self._location):
                writer.close()
        except FastFlightError as error:
            self._server_error = self._server_error or error

    def _listen(self, acknowledgements: flight.FlightMetadataReader, rows: UploadRows) -> None:
        try:
            while True:
                with typed_errors(self._location):
                    body = acknowledgements.read()
                if body is None:
                    return
                answer = _acknowledgement(body.to_pybytes(), self._location)
                with self._changed:
                    if "resume" in answer:
                        self._stored = _stored(answer["resume"], self._location)
                    elif "refused" in answer:
                        self._is_over = True
                    else:
                        self._last = answer
                    self._changed.notify_all()
                if self._is_over and rows.stop is not None:
                    rows.stop()
                if self._report is not None and "rows" in answer:
                    self._report(answer["rows"], answer.get("bytes", 0), rows.total_bytes)
        except BaseException as error:
            self._server_error = error
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()
            if rows.stop is not None:
                rows.stop()

    def _result(self) -> Written:
        if not self._last.get("done"):
            raise ProtocolError("the server ended the write without acknowledging it", where=self._location)
        return Written(
            rows=self._last["rows"],
            bytes=self._last.get("bytes", 0),
            sha256=str(self._last.get("sha256") or ""),
        )


def _acknowledgement(body: bytes, location: str) -> dict[str, Any]:
    answer = message(body, "an acknowledgement", location)
    with validating("an acknowledgement", location):
        for number in ("rows", "bytes"):
            whole(answer.get(number, 0))
        if answer.get("done"):
            whole(answer["rows"])
    return answer


def _stored(resume: Any, location: str) -> PartialUpload:
    with validating("what the server kept", location):
        return PartialUpload(whole(resume["bytes"]), text(resume["algorithm"]), text(resume["digest"]))
