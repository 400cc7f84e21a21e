"""What the targets of the file formats share: a file read whole and in pieces, which must not differ; and written."""

from __future__ import annotations

import pyarrow as pa

from fastflight.errors import DataError, FastFlightError, RequestError
from fastflight.tables import Layout, open_reader, open_writer
from fastflight.tables.summary import ReadSummary


def read(layout: Layout, pieces: list[bytes]) -> tuple[pa.Table | None, ReadSummary, str]:
    """The rows, what was set aside, and the error that ended it. Each batch is one that nobody need be afraid of."""
    reader = open_reader(layout)
    batches: list[pa.RecordBatch] = []
    try:
        for piece in pieces:
            batches += reader.feed(piece)
        batches += reader.finish()
    except FastFlightError as error:
        return None, ReadSummary(), f"{error.code} {error}"
    assert reader.schema is not None
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(reader.schema)
    return pa.Table.from_batches(batches, reader.schema), reader.summary, ""


def check(layout: Layout, whole: bytes, pieces: list[bytes]) -> pa.Table | None:
    """The rows of `whole`, which `pieces` join to; None where the layout or the file is refused."""
    try:
        expected = read(layout, [whole])
    except RequestError as error:
        assert str(error)
        return None
    table, *rest = read(layout, pieces)
    assert rest == list(expected[1:]), (rest, expected[1:])
    assert table is expected[0] or (expected[0] is not None and same(table, expected[0]))
    return table


def written(layout: Layout, table: pa.Table) -> bytes | None:
    """The table as a file of that layout; None where it has no such form."""
    try:
        writer = open_writer(layout, table.schema)
        return writer.begin() + b"".join(map(writer.encode, table.to_batches())) + writer.finish()
    except (DataError, RequestError) as error:
        assert str(error)
        return None


def same(one: pa.Table | None, other: pa.Table) -> bool:
    """The same schema and the same rows, NaN like NaN, whatever the batches."""
    if one is None or not one.schema.equals(other.schema):
        return False
    return bool(one.equals(other)) or shown(one) == shown(other)


def shown(table: pa.Table) -> list[str]:
    """The values as Arrow writes them: Python has no dates beyond the year 9999."""
    columns = [pa.concat_arrays(column.chunks) for column in table.columns if column.num_chunks]
    return [column.to_string(window=len(column)) for column in columns]
