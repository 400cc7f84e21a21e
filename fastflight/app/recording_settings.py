"""Settings of recordings: which devices, in which folder, and how long they are kept.

In a fleet file, where unknown keys are errors::

    [recordings]                   # may be left out
    folder = "recordings"          # relative to the fleet file
    sync_ms = 1000                 # a power cut may cost the rows of this time
    max_days = 30
    max_bytes = "2GB"

    [devices.weather]
    url = "serial:///dev/ttyACM0"
    record = true
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fastflight.app.access_settings import resolve_path
from fastflight.errors import RequestError, nearest
from fastflight.log import Retention
from fastflight.sources.recordings import SYNC_MS

# Each row waits for a sync, and each sync is work for the disk.
MIN_SYNC_MS = 10
MAX_SYNC_MS = 60_000
MAX_DAYS = 36_500
DAY_SECONDS = 86_400
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(UNITS)})")
EXAMPLE = 'As in [recordings] folder = "recordings", max_days = 30, max_bytes = "2GB"'


@dataclass(frozen=True, slots=True)
class RecordingSettings:
    """The folder of recordings, the devices that are recorded from the start, and when old rows are deleted."""

    folder: Path
    devices: tuple[str, ...] = ()
    sync_ms: int = SYNC_MS
    retention: Retention = Retention()
    # Neither the command line nor the fleet file mentions recordings: the first `record` makes the folder.
    on_demand: bool = False


def bytes_of(value: Any) -> Any:
    """Convert text with a unit to bytes. Other types are returned as they are, for pydantic to check."""
    if not isinstance(value, str):
        return value
    match = _BYTES.fullmatch(value)
    amount = math.inf if match is None else float(match[1]) * UNITS[match[2]]
    if math.isinf(amount):
        raise ValueError(f"{value[:40]!r} is no amount of bytes, as in '2GB'")
    return round(amount)


class FleetRecordings(BaseModel):
    """The table `[recordings]` of a fleet file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    folder: str | None = None
    sync_ms: Annotated[int, Field(ge=MIN_SYNC_MS, le=MAX_SYNC_MS)] = SYNC_MS
    max_days: Annotated[float | None, Field(gt=0, le=MAX_DAYS)] = None
    max_bytes: Annotated[int | None, BeforeValidator(bytes_of), Field(gt=0)] = None

    @property
    def retention(self) -> Retention:
        return Retention(None if self.max_days is None else self.max_days * DAY_SECONDS, self.max_bytes)


def recording_settings(
    devices: Iterable[str],
    *,
    marked: Sequence[str],
    table: FleetRecordings | None,
    fleet_folder: Path | None,
    folder: Path | None,
    record: Sequence[str],
    environment: Mapping[str, str],
) -> RecordingSettings | None:
    """Combine the `[recordings]` table of a fleet file, which is in `fleet_folder`, with options; an option wins.

    `marked` are the devices with `record = true`; `record` are names or globs of more. None if neither mentions
    recordings and the user has no home for the default folder. `RequestError` for a name that fits no device.
    """
    names = list(devices)
    chosen = set(marked)
    for glob in record:
        found = [name for name in names if fnmatchcase(name, glob)]
        if not found:
            raise RequestError("no device has this name", where=f"--record {glob}", hint=nearest(glob, names))
        chosen.update(found)
    if not chosen and table is None and folder is None:
        try:
            return RecordingSettings(default_folder(environment), on_demand=True)
        except RuntimeError:  # a user without a home
            return None
    table = table or FleetRecordings()
    if folder is None and table.folder is not None:
        folder = resolve_path(fleet_folder or Path(), table.folder, "recordings.folder")
    recorded = tuple(name for name in names if name in chosen)
    return RecordingSettings(folder or default_folder(environment), recorded, table.sync_ms, table.retention)


def default_folder(environment: Mapping[str, str]) -> Path:
    """The default folder of recordings, in the platform's folder for a user's data. `RuntimeError` without a home."""
    if sys.platform == "win32":
        base = Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "fastflight" / "recordings"
