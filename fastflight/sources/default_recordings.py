"""Recordings in a default folder, for a server started without options about recordings.

Until someone starts a recording, nothing is written, no lock is taken and no folder is made. Recordings that the folder
holds when the server starts can be read, and new traffic of their devices is numbered after them.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import structlog

from fastflight.device import Device, Inventory
from fastflight.errors import BusyError, FastFlightError, RequestError, StorageError, UnknownName, nearest
from fastflight.log import StoreReader
from fastflight.sources.recording import Readable
from fastflight.sources.recordings import (
    NoRecordings,
    Recordings,
    RecordingStatus,
    explain_missing,
    number_after,
    status_of,
)
from fastflight.sources.tidying import Parse

log = structlog.get_logger(__name__)

OTHER_FOLDER = "start this server with --recordings DIR for a folder of its own"


class DefaultRecordings:
    """Has the methods of `Recordings`, and opens the store only when a device is first recorded."""

    def __init__(self, folder: Path, inventory: Inventory, holder: str) -> None:
        self.folder = folder
        # The store for writing; None until the first recording is started.
        self.opened: Recordings | None = None
        # As `Recordings.parse`.
        self.parse: Parse = lambda *_: None
        self._inventory = inventory
        self._holder = holder
        self._opening = threading.Lock()
        self._reader: StoreReader | NoRecordings = NoRecordings()
        # The next number of each recording when this server started.
        self._ends: dict[str, int] = {}
        # Recordings to which another server has added rows between the start of this one and `opened`.
        self._continued: set[str] = set()
        try:
            if folder.is_dir():
                reader = StoreReader(folder)
                ends = {name: reader.log(name).statistics().next_seq for name in reader.names()}
                number_after(reader, [each for each in inventory.devices() if each.name in ends])
                self._reader, self._ends = reader, ends
        except (FastFlightError, OSError) as error:
            log.warning("recordings in the default folder cannot be read", folder=str(folder), error=str(error))

    def names(self) -> list[str]:
        """Return the names of all recordings."""
        return list(self._ends) if self.opened is None else self.opened.names()

    def log(self, name: str) -> Readable:
        """Return one recording. `UnknownName` if there is none."""
        if self.opened is not None:
            return self.opened.log(name)
        with explain_missing(name, self._inventory):
            if name not in self._ends:
                raise UnknownName("no such recording", where=name, hint=nearest(name, self._ends))
            return self._reader.log(name)

    def statuses(self) -> list[RecordingStatus]:
        """Return the status of all recordings."""
        if self.opened is not None:
            return self.opened.statuses()
        found = []
        for name in self._ends:
            with contextlib.suppress(UnknownName):  # removed from the folder since the server started
                found.append(status_of(name, self._reader.log(name).statistics()))
        return found

    def number(self, device: Device) -> None:
        """As `Recordings.number`."""
        if self.opened is not None:
            self.opened.number(device)
        elif device.name in self._ends:
            self._ends[device.name] = self._reader.log(device.name).statistics().next_seq
            number_after(self._reader, [device])

    def start(self, name: str) -> RecordingStatus:
        """As `record`, and return the status."""
        return self._recording(name).start(name)

    def record(self, name: str) -> None:
        """As `Recordings.record`, with the errors of `_recording`."""
        self._recording(name).record(name)

    def _recording(self, name: str) -> Recordings:
        """Return the recordings, to which a device may be added; opens the store and makes the folder if needed.

        `BusyError` if another server writes to the folder, `StorageError` if it cannot be opened, `RequestError` if
        another server has recorded the device since this one started.
        """
        self._inventory.device(name)
        with self._opening:
            if self.opened is None:
                self.opened = self._open()
        if name in self._continued:
            raise RequestError(
                "another server has recorded it since this one started",
                where=name,
                hint="Start this server again: its numbers go on after that recording",
            )
        return self.opened

    def stop(self, name: str) -> RecordingStatus:
        """As `Recordings.stop`."""
        self._inventory.device(name)
        if self.opened is None:
            raise RequestError("it is not recorded", where=name, hint="See `recordings` for those that are")
        return self.opened.stop(name)

    def forget(self, name: str, drains: bool = True) -> None:
        """As `Recordings.forget`."""
        if self.opened is not None:
            self.opened.forget(name, drains)

    def close(self) -> None:
        """As `Recordings.close`."""
        if self.opened is not None:
            self.opened.close()

    def _open(self) -> Recordings:
        try:
            opened = Recordings(self.folder, self._inventory, holder=self._holder, numbered=True)
        except BusyError as error:
            raise BusyError(
                f"{error.holder} writes the default folder of recordings",
                holder=error.holder,
                hint=f"End it, record there, or {OTHER_FOLDER}",
            ) from error
        except StorageError as error:
            raise StorageError(error.what, hint=f"Mend that, or {OTHER_FOLDER}") from error
        opened.parse = lambda name, rest: self.parse(name, rest)
        ends = {name: opened.store.log(name).next_seq for name in opened.names()}
        self._continued = {name for name, end in ends.items() if end != self._ends.get(name, 0)}
        return opened
