"""Bad files: `files` has them. Whole and in small pieces, which must not matter."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from fastflight.tables import Layout, RowReader, WholeFile, needs_whole_file, open_reader
from fastflight.tables.summary import MAX_REJECTED_EXAMPLES

from . import files
from .case import Case, check, discreet, each

# Pieces of a size that cuts records, characters and marks, and beyond which a whole is quicker.
PIECE = 5
SMALL = 4096


def read(layout: Layout, data: bytes, piece: int) -> tuple[pa.Table, list[str]]:
    pieces = [data[start : start + piece] for start in range(0, len(data), piece)]
    reader: RowReader | WholeFile
    if needs_whole_file(layout):
        reader = WholeFile(layout, lambda: iter(pieces))
        batches = list(reader.batches())
    else:
        reader = open_reader(layout)
        batches = [batch for each in pieces for batch in reader.feed(each)] + reader.finish()
    reasons = [row.reason for row in reader.summary.rejected_rows]
    for reason in reasons:
        discreet(reason.replace("Traceback", ""))  # a board may have printed one
    assert reader.schema is not None
    return pa.Table.from_batches(batches, reader.schema), reasons


def text(layout: Layout, case: Case) -> None:
    """Where the outcome says None, any will do: what matters is that there is one."""

    def run(data: bytes) -> Any:
        sizes = {len(data) or 1, PIECE} if len(data) <= SMALL else {len(data), 100_000}
        (found, *others) = [read(layout, data, size) for size in sizes]
        assert all(other[0].equals(found[0]) and other[1] == found[1] for other in others)
        table, reasons = found
        columns = ", ".join(f"{field.name}: {field.type}" for field in table.schema)
        values = table.column(0).to_pylist() if table.num_columns else []
        given: tuple[Any, ...] = (columns, values, reasons)
        wanted = case.outcome or (0, 0, 0)
        return tuple(None if each is None else seen for each, seen in zip(wanted, given, strict=True))

    check(case, run)


@each(files.CSV)
def test_csv(case: Case) -> None:
    text(Layout("csv"), case)


@each(files.JSONL)
def test_jsonl(case: Case) -> None:
    text(Layout("jsonl"), case)


@each(files.PACKED)
def test_packed(case: Case) -> None:
    layout = Layout("packed", {"n": "int32", "s": "string"}, ("n", "s"), "<I3s")
    check(case, lambda data: read(layout, data, PIECE)[1])


def test_rows_rejected_are_all_counted_and_the_first_of_them_told() -> None:
    data = b"n,m\n" + b"1,2\n" * 50 + b"1\n" * (MAX_REJECTED_EXAMPLES + 1)
    reader = WholeFile(Layout("csv"), lambda: iter([data]))
    assert reader.summary.rejected == MAX_REJECTED_EXAMPLES + 1
    assert len(reader.summary.rejected_rows) == MAX_REJECTED_EXAMPLES
