"""A recording to which a recorder adds rows: what is missing now after its last row belongs to what it lacks.

The log stores a gap with the next row. Until there is one, it is the last of the recording's gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace

from fastflight.gap import Gap, microseconds, moment
from fastflight.log import Extent, LogStatistics, NumberedRows, Range, StoredRows
from fastflight.log.values import EVERYTHING
from fastflight.sources.recording import Readable


class GrowingRecording:
    """The recording `log`, with the gap that `open_gap` returns, if any. Any thread may use it."""

    def __init__(self, log: Readable, open_gap: Callable[[], Gap | None]) -> None:
        self._log = log
        self._open_gap = open_gap

    def read(self, wanted: Range = EVERYTHING) -> Generator[NumberedRows | Gap, None, None]:
        """As `Log.read`; the last item is what is missing now, if that is in the range."""
        gap = self._missing()
        with closing(self._log.read(wanted)) as items:
            for item in items:
                if gap is not None and max(item.first, item.last) >= gap.first:
                    gap = None  # it is stored by now
                yield item
        if gap is not None and _is_wanted(gap, wanted):
            yield gap

    def statistics(self) -> LogStatistics:
        """As `Log.statistics`."""
        gap = self._open_gap()
        found = self._log.statistics()
        gap = None if gap is None else _placed(gap, found)
        if gap is None or found.next_seq > gap.first:
            return found
        return replace(found, lost=found.lost + (gap.rows or 0), gaps=found.gaps + 1, newest_gap=gap)

    def damage(self) -> Sequence[str]:
        """As `Log.damage`."""
        return self._log.damage()

    def extents(self, wanted: Range = EVERYTHING) -> list[Extent]:
        """As `Log.extents`."""
        return self._log.extents(wanted)

    def stored(self) -> StoredRows:
        """As `Log.stored`."""
        return self._log.stored()

    def _missing(self) -> Gap | None:
        """Return the gap. Nothing is missing before the first row. Call this before the log is read."""
        gap = self._open_gap()
        return None if gap is None else _placed(gap, self._log.statistics())


def _placed(gap: Gap, stored: LogStatistics) -> Gap | None:
    """Return an open gap with the time from which on something is missing; None if nothing is stored before it."""
    if stored.last_time is None or gap.from_time is not None:
        return gap if stored.next_seq else None
    return replace(gap, from_time=moment(stored.last_time))


def _is_wanted(gap: Gap, wanted: Range) -> bool:
    """Whether an open gap is in a range, which may end before it."""
    begin, end = microseconds(gap.from_time), microseconds(gap.to_time)
    return not (
        (wanted.until_seq is not None and gap.first > wanted.until_seq)
        or (wanted.from_seq is not None and wanted.from_seq > gap.last + 1)
        or (wanted.until_time is not None and begin is not None and begin >= wanted.until_time)
        or (wanted.from_time is not None and end is not None and end < wanted.from_time)
    )
