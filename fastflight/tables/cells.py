"""A few CSV rows as a batch, without pyarrow's reader.

Like `objects`, for the same reason: that one starts a thread for each call, for which a busy machine takes longer than
for the few short rows of live output. `FewCells` reads only what both readers read alike, and leaves everything else,
what is wrong included, to pyarrow's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from fastflight.tables.objects import FEW_BYTES, FEW_ROWS

# Quotes, carriage returns and NULs are pyarrow's own business, as are a byte order mark where a block starts and a last
# row without its line feed.
_OTHERS = re.compile(rb'["\r\0]|\A\xef\xbb\xbf|[^\n]\Z')
# Without what pyarrow also reads: white space, leading zeros, hexadecimal digits, `inf` and `nan`.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}").fullmatch
_FLOAT = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?").fullmatch


def _integer(cell: str) -> int:
    if not _INTEGER(cell):
        raise ValueError("pyarrow knows")
    return int(cell)


def _float(cell: str) -> float:
    if not _FLOAT(cell) or math.isinf(value := float(cell)):
        raise ValueError("pyarrow knows")
    return value


class FewCells:
    """Reads rows of `header`, of which `schema` has the columns to keep."""

    def __init__(
        self, header: Sequence[str], schema: pa.Schema, delimiter: bytes, true: Sequence[str], false: Sequence[str]
    ) -> None:
        self._schema = schema
        self._delimiter = delimiter.decode()
        self._width = len(header)
        truth = dict.fromkeys(true, True) | dict.fromkeys(false, False)
        values: dict[pa.DataType, Callable[[str], Any]] = {
            pa.int64(): _integer, pa.float64(): _float, pa.bool_(): truth.__getitem__, pa.string(): str,
        }  # fmt: skip
        # With a column of another type, all is left to pyarrow.
        self._able = bool(schema.names) and not schema.metadata and all(field.type in values for field in schema)
        self._kept = [(header.index(field.name), values[field.type]) for field in schema] if self._able else []

    def read(self, data: bytes) -> pa.RecordBatch | None:
        """The batch of these rows, each ending in a line feed; None: ask pyarrow."""
        if not self._able or len(data) > FEW_BYTES or data.count(b"\n") > FEW_ROWS or _OTHERS.search(data):
            return None
        try:
            lines = data.decode().split("\n")[:-1]
            # In a table of one column an empty line is a null.
            rows = [line.split(self._delimiter) for line in lines if line or self._width == 1]
            if not rows or any(len(row) != self._width for row in rows):
                return None
            columns = [[value(row[at]) if row[at] else None for row in rows] for at, value in self._kept]
        except (ValueError, KeyError):
            return None
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
