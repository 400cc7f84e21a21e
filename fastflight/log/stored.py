"""The oldest rows of a log as Parquet files, for an engine that reads Parquet itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fastflight.gap import Gap, Why
from fastflight.log.database import Entry
from fastflight.log.ranged import RangeItems
from fastflight.log.values import Range


@dataclass(slots=True)
class StoredRows:
    """What a reading wants of the rows of a log below `end`: those from `first` to `last` in `files`, in order.

    The files may have other rows as well. Rows from `end` on must be read from the log itself, unless the files have
    the `whole` answer. `gaps` counts the gaps below `end`, `lost` the rows missing in them. The files stay until
    `close`.
    """

    end: int
    first: int = 0
    last: int = -1
    files: list[Path] = field(default_factory=list)
    # The first and the last of these numbers in each file.
    spans: list[tuple[int, int]] = field(default_factory=list)
    whole: bool = False
    gaps: int = 0
    lost: int = 0
    release: Callable[[], None] = lambda: None

    def close(self) -> None:
        """Allow that the files are deleted."""
        self.release()

    def __enter__(self) -> StoredRows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stored_rows(
    entries: Iterable[Entry],
    files: Mapping[int, Path],
    is_intact: Callable[[int], bool],
    items: RangeItems,
    stop: int,
    limit: int | None,
) -> StoredRows:
    """Choose the files that a reading of `limit` rows needs, of `entries` from the cursor of `items` to `stop`."""
    found = StoredRows(items.cursor)
    spans: dict[Path, tuple[int, int]] = {}
    for entry in entries:
        if not entry.why and entry.body not in files:
            break
        last = min(entry.end, stop) - 1
        holes: list[Gap] = []
        if entry.first > items.cursor:
            holes += items.hole(entry.first - 1, "damaged")
        if entry.why:
            holes += items.hole(last, entry.why, "", entry.first_time, entry.last_time)
        elif not items.overlap(entry.first_time, entry.last_time):
            items.skip(last + 1)
        elif not is_intact(entry.body):
            holes += items.damaged(last, files[entry.body].name, entry.first_time, entry.last_time)
        else:
            if found.last < 0:
                found.first = items.cursor
            first = spans.get(files[entry.body], (items.cursor, 0))[0]
            if limit is not None:
                last = min(last, items.cursor + limit - 1)
                limit -= last + 1 - items.cursor
            found.last = last
            spans[files[entry.body]] = first, last
            holes += items.inside(last + 1)
        missing = [hole for hole in holes if hole.why != Why.UNUSED]
        found.gaps += len(missing)
        found.lost += sum(hole.rows or 0 for hole in missing)
        found.end = items.cursor
        if limit == 0:
            break
    found.files, found.spans = list(spans), list(spans.values())
    found.whole = limit == 0 or found.end >= stop
    return found


def items_of(wanted: Range, first: int) -> RangeItems:
    """Return the items of a range of a log whose first number is `first`."""
    items = RangeItems(wanted)
    items.cursor = max(first, items.cursor)
    return items
