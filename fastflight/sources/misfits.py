"""Says early that most rows of an answer do not fit its schema.

A row that does not fit is set aside, and the trailer counts it. Where most rows are set aside, the schema is probably
wrong, and the reader of a slow file or of a live session would see next to nothing for minutes. The note is
`{"set_aside": {"rows": n, "fitting": m, "offset" or "seq": place, "reason": why}}`: `n` rows were set aside, the last
of them at this place and for this reason, while `m` fit. Not the first: that is often a line that a board prints as it
starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastflight.tables import Rejected

# Rows are counted for so long from the first that does not fit: an odd line among others is followed by good ones.
NOTE_SECONDS = 3.0
# A file that is read quickly is told of as soon as so many of its rows do not fit.
NOTE_ROWS = 1000


class MisfitNotice:
    """Asked after each batch for a note. After one, there is another only if most rows did fit in the meantime."""

    def __init__(self, rejected: Rejected, place: str, clock: Callable[[], float]) -> None:
        """`place` is the name of what a rejected row's offset counts."""
        self._rejected = rejected
        self._place = place
        self._clock = clock
        # Where counting began: rows that fit, rows that did not, and when.
        self._fitting = 0
        self._count = 0
        self._since: float | None = None
        self._noted = False

    @property
    def deadline(self) -> float | None:
        """When counting ends, by the clock; None while every row fits."""
        return None if self._since is None else self._since + NOTE_SECONDS

    def note(self, fitting: int) -> dict[str, Any] | None:
        """A note, if one is due. `fitting` counts the rows that fit, since the beginning."""
        rows = self._rejected.count - self._count
        if not rows:
            self._fitting = fitting
            return None
        if self._since is None:
            self._since = self._clock()
        if rows < NOTE_ROWS and self._clock() - self._since < NOTE_SECONDS:
            return None
        fit, last = fitting - self._fitting, self._rejected.latest
        noted, self._noted = self._noted, rows > fit
        self._fitting, self._count, self._since = fitting, self._rejected.count, None
        if noted or not self._noted or last is None:
            return None
        return {"set_aside": {"rows": rows, "fitting": fit, self._place: last.offset, "reason": last.reason}}
