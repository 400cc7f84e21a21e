"""What is missing from the traffic of a device: one notion for live sessions, recordings, clients and SQL.

A gap is a span of time, the numbers of the rows that are missing, or both. Rows that were received and lost have
numbers. Nobody knows how much a device printed while nothing read its line: such a gap has times only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Self

EPOCH = datetime.fromtimestamp(0, UTC)


class Why(StrEnum):
    """Why traffic is missing."""

    SERVER_DOWN = "server down"
    STOPPED = "stopped"
    LINE_LOST = "line lost"
    DISK_FULL = "disk full"
    DISK_FAILED = "disk failed"
    NOT_READ = "not read in time"
    DAMAGED = "damaged"
    CLEARED = "cleared"
    # A server skips numbers when it starts. No row has them, so nothing is missing; never shown to users.
    UNUSED = "unused"


@dataclass(frozen=True, slots=True)
class Gap:
    """The rows with the numbers `first` to `last` are missing; with `last` before `first`, no number is.

    Then `first` is the number of the next row. What is missing lies between `from_time` and `to_time`; None if that is
    not known, or for the end of a gap that goes on. `detail` is a place of damage, or how the line was lost.
    """

    first: int
    last: int
    why: str = Why.NOT_READ
    detail: str = ""
    # Gaps with the same numbers are equal, although live sessions and recordings may know different times.
    from_time: datetime | None = field(default=None, compare=False)
    to_time: datetime | None = field(default=None, compare=False)
    # How many bytes the missing rows had; None if it is not known.
    bytes: int | None = field(default=None, compare=False)

    @property
    def rows(self) -> int | None:
        """The number of missing rows; None if it is not known."""
        return self.last + 1 - self.first or None

    def details(self) -> dict[str, Any]:
        """Return the fields for a message: `from` and `to` in ISO 8601."""
        times = {"from": self.from_time, "to": self.to_time}
        return {
            **{key: None if time is None else time.isoformat() for key, time in times.items()},
            "why": str(self.why),
            "first": self.first,
            "last": self.last,
            "rows": self.rows,
            **({} if self.bytes is None else {"bytes": self.bytes}),
            **({"detail": self.detail} if self.detail else {}),
        }

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> Self:
        """Return the gap in a message. Raises `LookupError`, `TypeError` or `ValueError` if it is not understood."""
        first, last, why, detail = details["first"], details["last"], details["why"], details.get("detail", "")
        if not (type(first) is type(last) is int and 0 <= first <= last + 1 and last < 2**63):
            raise ValueError("numbers")
        if not isinstance(why, str) or not isinstance(detail, str):
            raise TypeError("text")
        size = details.get("bytes")
        if size is not None and not (type(size) is int and 0 <= size < 2**63):
            raise ValueError("bytes")
        return cls(first, last, why, detail, _time(details.get("from")), _time(details.get("to")), size)


def moment(microseconds: int | None) -> datetime | None:
    """Return a time from microseconds since 1970."""
    try:
        return None if microseconds is None else EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None  # of damaged tables


def microseconds(time: datetime | None) -> int | None:
    """Return a time in microseconds since 1970."""
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
