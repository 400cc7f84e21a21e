"""Rows on their way to a device, and the server's acknowledgements on their way back.

Batches are written by the calling thread while another takes the acknowledgements, so that neither waits for the
other. A stream that merely stops would look to the server like a file that is complete: whenever the rows fail, here
or in the caller's iterable, the server is told to forget them, and the file on the device stays as it was.
"""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import flight

from fastflight.client.failure import typed_errors
from fastflight.client.progress import Report
from fastflight.client.rows import Rows
from fastflight.errors import FastFlightError, ProtocolError, Stopped

# The server's side of this is in its do_put: a message with this key ends the write as a failure.
ABORT = json.dumps({"abort": True}).encode()


@dataclass(frozen=True, slots=True)
class Written:
    """What is on the device now: rows, the file's bytes, and their sha256 (empty where the board cannot tell)."""

    rows: int
    bytes: int
    sha256: str


class Upload:
    """One write. `run` returns when the device has the file; `give_up`, from any thread, makes it fail instead."""

    def __init__(self, client: flight.FlightClient, command: bytes, *, location: str, report: Report | None) -> None:
        self._client = client
        self._descriptor = flight.FlightDescriptor.for_command(command)
        self._location = location
        self._report = report
        self._given_up = threading.Event()
        self._last: dict[str, Any] = {}
        # What ended the write: the server's reason, from the listener's thread, and what the sender saw of it.
        self._refused: BaseException | None = None
        self._broken: FastFlightError | None = None

    def give_up(self) -> None:
        """Stop at the next batch; the old file stays."""
        self._given_up.set()

    def run(self, rows: Rows) -> Written:
        """Send all rows. Raises what the server, the device or the rows' own iterator raised."""
        with typed_errors(self._location):
            writer, acknowledgements = self._client.do_put(self._descriptor, rows.schema)
        listener = threading.Thread(
            target=self._listen, args=(acknowledgements, rows.total_bytes), name="fastflight-acks", daemon=True
        )
        listener.start()
        complete = False
        try:
            complete = self._send(writer, rows)
        finally:
            with contextlib.suppress(pa.ArrowException, OSError):  # on a stream that the server has ended
                if not complete:
                    writer.write_metadata(ABORT)
                writer.done_writing()
            listener.join()
            with contextlib.suppress(pa.ArrowException, OSError):  # the listener has its reason
                writer.close()
        if failure := self._refused or self._broken:
            raise failure
        return self._written()

    def _send(self, writer: flight.FlightStreamWriter, rows: Rows) -> bool:
        """Whether all rows were sent. Raises what the rows' iterator raises; the stream's failures are kept."""
        for batch in rows.batches:
            if self._given_up.is_set():
                raise Stopped("the write was given up", where=self._location)
            if self._refused:
                return False
            try:
                with typed_errors(self._location):
                    writer.write_batch(batch)
            except FastFlightError as error:
                self._broken = error
                return False
        return True

    def _listen(self, acknowledgements: flight.FlightMetadataReader, total_bytes: int | None) -> None:
        try:
            while True:
                with typed_errors(self._location):
                    message = acknowledgements.read()
                if message is None:
                    return
                self._last = _acknowledgement(message.to_pybytes(), self._location)
                if self._report is not None:
                    self._report(int(self._last.get("rows", 0)), int(self._last.get("bytes", 0)), total_bytes)
        except BaseException as error:
            self._refused = error

    def _written(self) -> Written:
        if "rows" not in self._last:
            raise ProtocolError("the server ended the write without acknowledging it", where=self._location)
        return Written(
            rows=int(self._last["rows"]),
            bytes=int(self._last.get("bytes", 0)),
            sha256=str(self._last.get("sha256") or ""),
        )


def _acknowledgement(message: bytes, location: str) -> dict[str, Any]:
    try:
        given = json.loads(message)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ProtocolError("an acknowledgement is not a JSON object", where=location)
    return given
