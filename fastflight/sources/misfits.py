"""Reports early that most rows of an answer do not fit its schema.

A row that does not fit is rejected, and the trailer counts it. If most rows are rejected, the schema is probably
wrong, and the client that reads a slow file or a live session would see next to nothing for minutes. So a note goes
into the stream: `{"mostly_rejected": {"rows": n, "fitting": m, "offset" or "seq": place, "reason": why}}`. `n` rows
were rejected while `m` fit. `place` and `why` are those of the last rejected row: the first one is often a line that a
board prints as it starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fastflight.tables import ReadSummary

# Rows are counted for this long from the first that does not fit: good rows may follow a single bad one.
NOTE_SECONDS = 3.0
# In a file that is read quickly, this many rows that do not fit end the counting at once.
NOTE_ROWS = 1000


class MisfitNotice:
    """Decides when to tell the client that most rows do not fit. Call `note` after each batch.

    There is no second note unless most rows have fit since the first.
    """

    def __init__(self, summary: ReadSummary, place: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`place` is the note's key for the offset of a rejected row: `offset` or `seq`."""
        self._summary = summary
        self._place = place
        self._clock = clock
        # At the start of counting: rows that fit, rows that did not, and the time.
        self._fitting = 0
        self._count = 0
        self._since: float | None = None
        self._noted = False

    @property
    def deadline(self) -> float | None:
        """The time at which counting ends, by the clock; None while every row fits."""
        return None if self._since is None else self._since + NOTE_SECONDS

    def note(self, fitting: int) -> dict[str, Any] | None:
        """Return the note to send now, if any. `fitting` is the number of rows that have fit since the beginning."""
        rows = self._summary.rejected - self._count
        if not rows:
            self._fitting = fitting
            return None
        if self._since is None:
            self._since = self._clock()
        if rows < NOTE_ROWS and self._clock() - self._since < NOTE_SECONDS:
            return None
        fit, last = fitting - self._fitting, self._summary.latest
        noted, self._noted = self._noted, rows > fit
        self._fitting, self._count, self._since = fitting, self._summary.rejected, None
        if noted or not self._noted or last is None:
            return None
        return {"mostly_rejected": {"rows": rows, "fitting": fit, self._place: last.offset, "reason": last.reason}}
