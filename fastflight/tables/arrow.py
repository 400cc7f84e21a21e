"""Arrow: reads and writes IPC streams, as pyarrow, pandas or DuckDB write them. IPC files are read, too.

Reading is incremental: a message is passed to Arrow once it is complete and within the limits of `ipc`, and every batch
is checked before its values are used, because a bad offset crashes the process. Dictionaries are decoded, because the
Flight server cannot stream them. A broken stream is a `DataError`, since the next message cannot be found. A batch that
can be read but is not valid is rejected, and so is an incomplete message at the end of the file.
"""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.ipc

from fastflight.errors import RequestError
from fastflight.tables.bare import decoded
from fastflight.tables.codec import Layout
from fastflight.tables.ipc import (
    DICTIONARY_BATCH,
    RECORD_BATCH,
    SCHEMA,
    Dictionaries,
    IpcMessage,
    MessageSplitter,
    broken,
    check_size,
)
from fastflight.tables.schemas import conform, project
from fastflight.tables.summary import ReadSummary
from fastflight.tables.vetting import vet_batch, vet_schema

# The errors that pyarrow raises on damaged bytes. A name that is not UTF-8 raises ValueError when it is first used.
_UNREADABLE = (pa.ArrowException, ValueError, KeyError, TypeError, OSError, EOFError, StopIteration, MemoryError)


class _MessageSource(io.RawIOBase):
    """The file object that pyarrow's stream reader reads. Only whole messages are put into it."""

    def __init__(self) -> None:
        self._data = bytearray()

    def put(self, data: bytes) -> None:
        self._data += data

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        end = len(self._data) if size is None or size < 0 else size
        data = bytes(self._data[:end])
        del self._data[:end]
        return data


class ArrowReader:
    """`RowReader` of IPC streams."""

    def __init__(self, layout: Layout) -> None:
        if layout.schema is not None:
            raise RequestError(
                "an arrow file brings its own schema", where="schema", hint="Leave it out; choose with columns"
            )
        self._columns = layout.columns
        self.summary = ReadSummary(layout.on_error)
        self._splitter = MessageSplitter()
        self._source = _MessageSource()
        self._dictionaries = Dictionaries()
        self._reader: pa.ipc.RecordBatchStreamReader | None = None
        self._schema: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema | None:
        return self._schema

    def feed(self, data: bytes) -> list[pa.RecordBatch]:
        batches = []
        for message in self._splitter.feed(data):
            batches += self._take(message)
        return batches

    def finish(self) -> list[pa.RecordBatch]:
        if self._splitter.left:
            self.summary.reject(self._splitter.offset, "the file ends in the middle of a message")
        if self._schema is None:
            self._schema = project(pa.schema([]), self._columns)
        return []

    def _take(self, message: IpcMessage) -> list[pa.RecordBatch]:
        try:
            if self._reader is None:
                self._open(message)
                return []
            if message.kind not in (DICTIONARY_BATCH, RECORD_BATCH):
                raise broken(f"a message of kind {message.kind} where a batch should be", message.offset)
            size = check_size(message)
            if message.kind == DICTIONARY_BATCH:
                self._dictionaries.add(message, size)
                self._source.put(message.data)
                return []
            self._source.put(message.data)
            batch = self._reader.read_next_batch()
            self._dictionaries.used()
        except _UNREADABLE as error:
            raise broken(f"a message can not be read: {_first_line(error)}", message.offset) from None
        try:
            vet_batch(batch)
            return [self._decoded(batch)]
        except _UNREADABLE as error:
            self.summary.reject(message.offset, f"the batch is not valid: {_first_line(error)}")
            return []

    def _open(self, message: IpcMessage) -> None:
        if message.kind != SCHEMA:
            raise broken("the first message is no schema", message.offset)
        self._source.put(message.data)
        self._reader = pa.ipc.open_stream(self._source)
        vet_schema(self._reader.schema, f"byte {message.offset}")
        fields = []
        for field in self._reader.schema:
            plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            fields.append(pa.field(field.name, plain, field.nullable, field.metadata))
        self._schema = project(pa.schema(fields, self._reader.schema.metadata), self._columns)

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        assert self._schema is not None
        if self._columns is not None:
            batch = batch.select(self._schema.names)
        columns = [decoded(column) if pa.types.is_dictionary(column.type) else column for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema) if columns else batch


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


class ByteSink(io.BytesIO):
    """A file object for pyarrow's writers. `take` removes and returns the bytes that were written."""

    def take(self) -> bytes:
        data = self.getvalue()
        self.seek(0)
        self.truncate()
        return data


class ArrowWriter:
    """`RowWriter` of IPC streams. Dictionary columns stay dictionaries, with deltas where they grow."""

    def __init__(self, layout: Layout, schema: pa.Schema) -> None:
        self._schema = project(schema, layout.columns)
        self._sink = ByteSink()
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def begin(self) -> bytes:
        self._writer = pa.ipc.new_stream(self._sink, self._schema)
        return self._sink.take()

    def encode(self, batch: pa.RecordBatch) -> bytes:
        assert self._writer is not None, "begin() comes first"
        self._writer.write_batch(conform(batch, self._schema))
        return self._sink.take()

    def finish(self) -> bytes:
        assert self._writer is not None, "begin() comes first"
        self._writer.close()
        return self._sink.take()
