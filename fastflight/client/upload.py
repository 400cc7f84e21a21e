"""Rows on their way to a device, and the server's acknowledgements on their way back.

Batches are written by the calling thread while another takes the acknowledgements, so that neither waits for the
other. A stream that merely stops would look to the server like a file that is complete: whenever the rows fail, here
or in the caller's iterable, the server is told that the write has failed, and the file on the device stays as it was.

A write that has failed at the server is ended here when the server says so, even if nothing more is to be sent.
A write that may be resumed begins with a message of the server: what it has kept of one that broke off.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import flight

from fastflight.client.call import Written
from fastflight.client.credentials import options
from fastflight.client.failure import typed_errors
from fastflight.client.local import opened
from fastflight.client.meaning import message, text, understood, whole
from fastflight.client.progress import Report
from fastflight.client.rows import UploadRows, rows_of
from fastflight.errors import FastFlightError, ProtocolError, Stopped
from fastflight.service.requests import DeviceFile, Request
from fastflight.service.source import PartialUpload
from fastflight.service.wire import encode

# The server's side of this is in its do_put: a message with this key ends the write as a failure.
ABORT = b'{"abort": true}'
Heard: TypeAlias = Callable[[Mapping[str, Any]], None]
# Batches that a paced write has on the way: one that the device stores, and the next, so that it need not wait.
AHEAD_BATCHES = 2


class Upload:
    """One write. `run` returns when the device has the file; `give_up`, from any thread, makes it fail instead."""

    def __init__(
        self,
        client: flight.FlightClient,
        request: Request,
        source: Any,
        location: str,
        report: Report | None,
        heard: Heard | None = None,
        authorization: str = "",
    ) -> None:
        """`heard` is called with each message of the server, from another thread.

        A server that ends the call without the last one is heard as one that has `refused` the write.
        """
        self._client = client
        self._request = request
        self._source = source
        self._location = location
        self._report = report
        self._heard = heard
        self._authorization = authorization
        self._changed = threading.Condition()
        self._given_up = False
        # The server takes no more rows, or says no more at all.
        self._is_over = False
        self._last: dict[str, Any] = {}
        self._kept: PartialUpload | None = None
        # What ended the write: the server's reason, from the listener's thread, and what the sender saw of it.
        self._refused: BaseException | None = None
        self._broken: FastFlightError | None = None

    @property
    def is_over(self) -> bool:
        """Whether the server takes no more rows."""
        return self._is_over

    @property
    def summary(self) -> Mapping[str, Any]:
        """The server's last message, once the write is done."""
        return self._last

    def give_up(self) -> None:
        """Stop at the next batch, or before the last is acknowledged; the old file stays."""
        with self._changed:
            self._given_up = True
            self._changed.notify_all()

    def run(self) -> Written:
        """Send all rows; `report` is called from another thread.

        Raises what the server, the device or the rows' own iterator raised.
        """
        request: Request = self._request
        if isinstance(request, DeviceFile):
            request, rows = opened(request, self._source)
        else:
            rows = rows_of(self._source)
        descriptor = flight.FlightDescriptor.for_command(encode(request))
        with typed_errors(self._location):
            shown = options(authorization=self._authorization)
            writer, acknowledgements = self._client.do_put(descriptor, rows.schema, shown)
        listener = threading.Thread(
            target=self._listen, args=(acknowledgements, rows.total_bytes), name="fastflight-acks", daemon=True
        )
        listener.start()
        complete = False
        try:
            complete = self._send(writer, rows)
        finally:
            self._close(writer, listener, complete)
        if failure := self._refused or self._broken:
            raise failure
        return self._written()

    def _send(self, writer: flight.FlightStreamWriter, rows: UploadRows) -> bool:
        """Whether all rows were sent. Raises what the rows' iterator raises; the stream's failures are kept.

        Returns only when all rows are acknowledged. Most of a small file fits into the buffers on the way: were the
        stream ended when they have the rest, there would be nothing left to give up while the device takes it.
        """
        sent = 0
        ahead: deque[int] = deque(maxlen=AHEAD_BATCHES)
        for batch in self._batches(rows):
            if rows.paced and len(ahead) == AHEAD_BATCHES:
                self._await_rows(ahead[0])
            self._check_wanted()
            if self._refused or self._is_over:
                return False
            try:
                with typed_errors(self._location):
                    writer.write_batch(batch)
            except FastFlightError as error:
                self._broken = error
                return False
            sent += batch.num_rows
            ahead.append(sent)
        self._await_rows(sent)
        self._check_wanted()
        return not self._is_over

    def _batches(self, rows: UploadRows) -> Iterator[pa.RecordBatch]:
        """The batches to send; where they depend on what was kept, once that is known."""
        if rows.after is None:
            return rows.batches
        with self._changed:
            self._changed.wait_for(lambda: self._given_up or self._is_over or self._kept is not None)
        return rows.after(self._kept or PartialUpload())

    def _await_rows(self, rows: int) -> None:
        """Wait until so many rows are acknowledged, or none will be any more."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._given_up or self._is_over or self._last.get("rows", 0) >= rows,
            )

    def _check_wanted(self) -> None:
        if self._given_up:
            raise Stopped("the write was given up", where=self._location)

    def _close(self, writer: flight.FlightStreamWriter, listener: threading.Thread, complete: bool) -> None:
        """End the stream, as a failure unless it is complete. The server's reason comes to the listener or here."""
        with contextlib.suppress(pa.ArrowException, OSError):  # on a stream that the server has ended
            if not complete:
                writer.write_metadata(ABORT)
            writer.done_writing()
        listener.join()
        try:
            with typed_errors(self._location):
                writer.close()
        except FastFlightError as error:
            self._refused = self._refused or error

    def _listen(self, acknowledgements: flight.FlightMetadataReader, total_bytes: int | None) -> None:
        try:
            while True:
                with typed_errors(self._location):
                    said = acknowledgements.read()
                if said is None:
                    return
                told = _acknowledgement(said.to_pybytes(), self._location)
                with self._changed:
                    if "resume" in told:
                        self._kept = _kept(told["resume"], self._location)
                    elif "refused" in told:
                        self._is_over = True
                    else:
                        self._last = told
                    self._changed.notify_all()
                if self._heard is not None:
                    self._heard(told)
                if self._report is not None and "rows" in told:
                    self._report(told["rows"], told.get("bytes", 0), total_bytes)
        except BaseException as error:
            self._refused = error
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()
            if self._heard is not None and not self._last.get("done"):
                self._heard({"refused": True})

    def _written(self) -> Written:
        if not self._last.get("done"):
            raise ProtocolError("the server ended the write without acknowledging it", where=self._location)
        return Written(
            rows=self._last["rows"],
            bytes=self._last.get("bytes", 0),
            sha256=str(self._last.get("sha256") or ""),
        )


def _acknowledgement(body: bytes, location: str) -> dict[str, Any]:
    given = message(body, "an acknowledgement", location)
    with understood("an acknowledgement", location):
        for number in ("rows", "bytes"):
            whole(given.get(number, 0))
        if given.get("done"):
            whole(given["rows"])
    return given


def _kept(given: Any, location: str) -> PartialUpload:
    with understood("what the server kept", location):
        return PartialUpload(whole(given["bytes"]), text(given["algorithm"]), text(given["digest"]))
