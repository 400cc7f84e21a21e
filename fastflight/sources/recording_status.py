"""The status of a recording, as actions and metrics report it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from fastflight.gap import moment
from fastflight.log import Extent, LogStatistics
from fastflight.sources.recorder import Recorder

KEPT = "kept"
# In a cluster, of a recording whose server gives no answer; the reason follows.
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RecordingStatus:
    """The stored rows of a recording, and whether rows are being added.

    `state`: `recording`, `recording failed: ` and the reason, or `kept` while no rows are added (a server of a cluster
    also says `unknown: ` and the reason, if the one that owns the device gives no answer). `lost`: the number of
    chunks that are missing from `first_seq` on; reading reports them as gaps. `failures`: tries that failed since this
    server began to record. `damage`: damaged places that reading has found since the server began.
    `gaps`: their number, until now, and `newest_gap`: `Gap.details` of the last that is no damage. `waiting`: in a
    cluster, the rows that this server has recorded and not handed over yet.
    """

    name: str
    state: str
    rows: int
    bytes: int
    first_seq: int
    next_seq: int
    first_time: datetime | None
    last_time: datetime | None
    lost: int = 0
    failures: int = 0
    damage: tuple[str, ...] = ()
    waiting: int = 0
    gaps: int = 0
    newest_gap: dict[str, Any] | None = None


_FIELDS = [field.name for field in fields(RecordingStatus)]


def rows_of(extents: Iterable[Extent]) -> int:
    """Return how many rows are in `extents`."""
    return sum(each.rows for each in extents)


def status_of(name: str, statistics: LogStatistics, recorder: Recorder | None = None) -> RecordingStatus:
    """Return the status of a recording, from its log and the recorder that writes it, if any."""
    return RecordingStatus(
        name,
        (recorder.device.recording if recorder is not None else "") or KEPT,
        statistics.rows,
        statistics.bytes,
        statistics.first_seq,
        statistics.next_seq,
        moment(statistics.first_time),
        moment(statistics.last_time),
        statistics.lost,
        recorder.failures if recorder is not None else 0,
        statistics.damage,
        gaps=statistics.gaps,
        newest_gap=None if statistics.newest_gap is None else statistics.newest_gap.details(),
    )


def as_result(status: RecordingStatus) -> Mapping[str, Any]:
    """Return a status as the actions on recordings do."""
    # `dataclasses.asdict` copies each value: with thousands of recordings that is half of the time of a listing.
    values = {name: getattr(status, name) for name in _FIELDS}
    for key in ("first_time", "last_time"):
        values[key] = values[key] and values[key].isoformat()
    return values
