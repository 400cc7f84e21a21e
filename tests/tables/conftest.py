"""What the codec tests share: reading a whole file, in pieces of any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from fastflight.errors import FastFlightError
from fastflight.tables import (
    Layout,
    RejectedRow,
    RowReader,
    WholeFile,
    needs_whole_file,
    open_reader,
    open_writer,
)


@dataclass
class ReadOutcome:
    """All that reading a file gives; equal outcomes are indistinguishable to a client."""

    schema: pa.Schema | None
    rows: list[dict[str, Any]]
    count: int
    rejected: list[RejectedRow]
    error: tuple[str, str] | None = None
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def reasons(self) -> list[str]:
        return [row.reason for row in self.rejected]

    def __eq__(self, other: object) -> bool:
        # By text, because NaN is not equal to itself.
        return isinstance(other, ReadOutcome) and repr(self) == repr(other)


def read_whole(layout: Layout, pieces: Sequence[bytes]) -> ReadOutcome:
    """Only a documented error ends a read; anything else fails the test. Rows before an error do not count."""
    batches: list[pa.RecordBatch] = []
    reader: RowReader | WholeFile
    try:
        if needs_whole_file(layout):
            reader = WholeFile(layout, lambda: iter(pieces))
            batches += reader.batches()
        else:
            reader = open_reader(layout)
            for piece in pieces:
                batches += reader.feed(piece)
            batches += reader.finish()
    except FastFlightError as error:
        return ReadOutcome(None, [], 0, [], (error.code, str(error)))
    assert reader.schema is not None
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(reader.schema)
        assert batch.num_rows > 0
    rows = pa.Table.from_batches(batches, reader.schema).to_pylist()
    summary = reader.summary
    return ReadOutcome(reader.schema, rows, summary.rejected, list(summary.rejected_rows), told=summary.as_dict())


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def read_split(data: bytes, format_: str, cuts: Sequence[int] = (), **layout: Any) -> ReadOutcome:
    """Read a file whole, in pieces that end at `cuts`, byte by byte and in sevens, which must not differ."""
    made = Layout(format_, **layout)
    whole = read_whole(made, [data])
    ends = sorted({min(cut_, len(data)) for cut_ in cuts})
    drawn = [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]
    sizes = (1, 7) if len(data) < 20_000 else (4093,)
    for pieces in [drawn, *(cut(data, size) for size in sizes)]:
        assert read_whole(made, pieces) == whole
    return whole


@pytest.fixture(scope="session")
def read() -> Callable[..., ReadOutcome]:
    return read_split


@pytest.fixture(scope="session")
def write() -> Callable[..., bytes]:
    """`write(table, "csv", ...)`: the file that the table's batches make."""

    def run(table: pa.Table, format_: str, max_chunksize: int = 3, **layout: Any) -> bytes:
        writer = open_writer(Layout(format_, **layout), table.schema)
        parts = [writer.begin()]
        parts += [writer.encode(batch) for batch in table.to_batches(max_chunksize=max_chunksize)]
        return b"".join([*parts, writer.finish()])

    return run
