"""The items that a read of a range yields: rows in the range, and the missing numbers that belong to it. No I/O.

`RangeItems` takes rows and missing numbers in the order of a log, and yields those that the range asks for. The caller
reads `cursor`, the next number that it has to pass.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from fastflight.gap import Gap, Why, moment
from fastflight.log.values import BEGINNING, END_OF_TIME, NumberedRows, Range


class RangeItems:
    """One pass over the range `wanted`. Each method moves `cursor` behind the numbers that it handles."""

    def __init__(self, wanted: Range) -> None:
        # The number to read next.
        self.cursor = max(wanted.from_seq or 0, 0)
        self._from = BEGINNING if wanted.from_time is None else wanted.from_time
        self._until = END_OF_TIME if wanted.until_time is None else wanted.until_time
        # With a time range, only holes next to rows in the range are reported. These wait for such a row.
        self._holes: list[Gap] = []
        self._timed = wanted.from_time is not None or wanted.until_time is not None
        self._inside = not self._timed

    def overlap(self, first_time: int, last_time: int) -> bool:
        """Return whether rows of these times may be in the time range."""
        return not self._timed or (first_time < self._until and last_time >= self._from)

    def hole(
        self,
        last: int,
        why: str,
        detail: str = "",
        start: int | None = None,
        stop: int | None = None,
        size: int | None = None,
    ) -> Iterator[Gap]:
        """Report the numbers from the cursor to `last` as missing, with the times and the bytes as far as known.

        A gap may have no numbers: then `last` is before the cursor.
        """
        hole = Gap(self.cursor, last, why, detail, moment(start), moment(stop), size)
        self.cursor = last + 1
        if self._timed and start is not None and stop is not None:
            if self.overlap(start, stop):
                yield from self._flush()
                yield hole
        elif self._inside:
            yield hole
        else:
            self._holes.append(hole)

    def damaged(self, last: int, where: str, start: int | None = None, stop: int | None = None) -> Iterator[Gap]:
        """Report the numbers from the cursor to `last` as damaged. They may have been in the time range."""
        self._inside = True
        yield from self._flush()
        yield from self.hole(last, Why.DAMAGED, where, start, stop)

    def skip(self, end: int) -> None:
        """Move the cursor to `end`, over rows that are not in the time range."""
        self._holes.clear()
        self._inside = False
        self.cursor = max(self.cursor, end)

    def rows(self, batch: pa.RecordBatch, first_time: int, last_time: int) -> Iterator[NumberedRows | Gap]:
        """Yield the rows of `batch` that are in the time range, in runs. `batch` starts at the cursor."""
        first, self.cursor = self.cursor, self.cursor + batch.num_rows
        if first_time >= self._from and last_time < self._until:
            self._inside = True
            yield from self._flush()
            yield NumberedRows(first, batch)
            return
        times = batch.column(0).view(pa.int64())
        inside = pc.and_(pc.greater_equal(times, self._from), pc.less(times, self._until)).to_pylist()
        if inside[0]:
            yield from self._flush()
        self._holes.clear()
        self._inside = inside[-1]
        at = 0
        while at < len(inside):
            end = at
            while end < len(inside) and inside[end] == inside[at]:
                end += 1
            if inside[at]:
                yield NumberedRows(first + at, batch.slice(at, end - at))
            at = end

    def _flush(self) -> Iterator[Gap]:
        yield from self._holes
        self._holes.clear()
