"""The batches that a client sends, in do_put and do_exchange.

Every batch is validated before anything uses it: a bad offset would crash the process. If a client cannot send all its
rows, it sends the app metadata `ABORT` without a batch; the write then fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pyarrow as pa
import pyarrow.flight as flight

from fastflight.errors import DataError, FastFlightError, Stopped
from fastflight.runtime.stream import Stream
from fastflight.tables.vetting import vet_batch, vet_schema

# App metadata by which a client aborts an upload. Flight itself has no way to say that a stream of batches has failed.
ABORT = b'{"abort": true}'
# The limit for the app metadata of a batch. All app metadata except `ABORT` is ignored.
MAX_APP_METADATA_BYTES = 64 * 1024
# How much waits between the handler and the source. A board at 115200 baud needs more than a minute for 1 MiB, so more
# would only wait longer.
WAITING_BYTES = 1024 * 1024


class Incoming(Iterator[pa.RecordBatch]):
    """The client's batches, each validated."""

    def __init__(self, reader: flight.MetadataRecordBatchReader, stream: Stream, call: str) -> None:
        """`call`: the method that errors name, `do_put` or `do_exchange`."""
        self._reader = reader
        self._call = call
        self._stream = stream
        # The context that is entered around each wait for the client.
        self.waiting: Callable[[], AbstractContextManager[object]] = stream.waiting_for_client
        try:
            with self.waiting():
                self.schema: pa.Schema = reader.schema
        except (pa.ArrowException, OSError) as error:
            stream.check()
            raise DataError("the stream of batches does not begin with a schema", where=call) from error
        vet_schema(self.schema, call)

    def __next__(self) -> pa.RecordBatch:
        while True:
            batch = self._read()
            if batch is None:
                self._stream.check()
                raise StopIteration
            # Nothing else checks an upload that never waits, and its client's token may have been revoked.
            self._stream.passing()
            if batch.app_metadata is not None:
                self._check_metadata(batch.app_metadata)
            if batch.data is not None:
                if fault := _fault(batch.data):
                    del batch
                    raise DataError(f"a batch is corrupt: {fault}", where=self._call, hint="Nothing of it was used")
                return self._counted(batch.data)

    def discard(self) -> bool:
        """Read one message and drop it. Return False at the end, and if reading fails."""
        with contextlib.suppress(FastFlightError):
            return self._read() is not None
        return False

    def _check_metadata(self, metadata: pa.Buffer) -> None:
        if metadata.size > MAX_APP_METADATA_BYTES:
            raise DataError(
                f"{metadata.size} bytes of app metadata are too many: {MAX_APP_METADATA_BYTES} are allowed",
                where=self._call,
            )
        if metadata.to_pybytes() == ABORT:
            raise Stopped("the client aborted the upload", hint="What was there before is still there")

    def _read(self) -> flight.FlightStreamChunk | None:
        try:
            with self.waiting():
                return self._reader.read_chunk()
        except StopIteration:
            return None
        except (pa.ArrowException, OSError) as error:
            self._stream.check()
            raise DataError("the upload is not a stream of record batches", where=self._call) from error

    def _counted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._stream.count(batch.num_rows, pa.ipc.get_record_batch_size(batch))
        return batch


def _fault(batch: pa.RecordBatch) -> str:
    """Return what is wrong with a batch, or "". Text, because an error would keep the batch in memory."""
    try:
        vet_batch(batch)
    except pa.ArrowException as error:
        return str(error)
    return ""
