"""The files of boards for list_flights, SQL and `device.listing`: listed when somebody asks, and cached.

`BoardListings.list` has one time limit for all boards together. All of them are asked at the same time, and each once,
however many callers there are. A board that is not done by then is left out, or its last listing is used, with its age.
`missing` says so for each board. Its listing goes on for the next caller. A board that has not answered to a request
because its program runs, and whose line is read, is not asked before it may answer (`Device.is_deaf`). A device that
only prints (`Device.kind`) has no files, and is never asked.

A listing stays true until somebody may have changed the board's files (`Device.changes`), or the board says something
by itself: its program may write files, too. What the board says is seen while its line is read for listeners. While it
is not, and for a board whose program goes on beside requests, a listing stays true for `UNHEARD_SECONDS`. A board that
was not listed is not asked again for as long, unless it was busy and is free now.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from fastflight.device import Device, FileEntry
from fastflight.errors import BusyError, FastFlightError
from fastflight.transport.url import LINES

# How long another owner of a board is waited for. A board whose line is open and that can answer does so at once.
LEASE_SECONDS = 0.5
ANSWER_SECONDS = 0.6
# The limit for boards that have begun to answer, or whose line has to be opened first.
TOTAL_SECONDS = 2.0
# Larger listings are not kept.
MAX_KEPT_ENTRIES = 4096
# Folders of one board: those that the panels of a page show.
MAX_KEPT_FOLDERS = 8
# Long enough for a page whose panels ask at the same time.
UNHEARD_SECONDS = 1.0

Entries = Sequence[FileEntry]
# A folder, and whether the folders below it are listed as well.
Folder = tuple[str, bool]
ALL_FILES: Folder = ("/", True)


@dataclass(frozen=True, slots=True)
class _Kept:
    entries: Entries
    version: Hashable
    at: float


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a board was not listed, and when. `holder`: who had it then, if anybody."""

    error: FastFlightError
    holder: str | None
    at: float


@dataclass(eq=False, slots=True)
class _Listing:
    """A listing that runs. `is_slow`: the line has to be opened, or the board is answering."""

    is_slow: bool
    future: concurrent.futures.Future[Entries] = field(init=False)


class BoardListings:
    """The files of boards. Any thread may call it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # A listing that ends at once calls `_ended` in `_ask`.
        self._lock = threading.RLock()
        self._kept: WeakKeyDictionary[Device, dict[Folder, _Kept]] = WeakKeyDictionary()
        # Of boards that were not listed since.
        self._failed: WeakKeyDictionary[Device, _Failure] = WeakKeyDictionary()
        self._running: dict[Device, _Listing] = {}

    def list(self, devices: Sequence[Device]) -> Iterator[tuple[Device, Entries, Mapping[str, Any] | None]]:
        """Yield the entries of each device that can be reached, in order, within `TOTAL_SECONDS`.

        For a device that is busy, or does not answer in time, these are those of its last listing, with the note
        `{"busy": why, "listed_seconds_ago": its age}`.
        """
        with self._lock:
            asked = [(device, self._ask(device)) for device in devices]
        _wait([each for _, each in asked if isinstance(each, _Listing)])
        for device, each in asked:
            found = self._outcome(device, each) if isinstance(each, _Listing) else each
            if not isinstance(found, _Failure):
                yield device, found, None
            elif isinstance(found.error, BusyError):
                kept = self._kept.get(device, {}).get(ALL_FILES)
                yield device, () if kept is None else kept.entries, {"busy": found.error.what, **self._age(kept)}

    def missing(self, device: Device) -> dict[str, Any]:
        """Return what a listing of all files has to say about a device; empty if its files were listed.

        `{"unlisted": why, "listed_seconds_ago": 12.0}`. Without the second key, no earlier listing was used.
        """
        failure = self._failed.get(device)
        if failure is None:
            return {}
        is_used = isinstance(failure.error, BusyError)
        kept = self._kept.get(device, {}).get(ALL_FILES) if is_used else None
        return {"unlisted": failure.error.what, **self._age(kept)}

    def _age(self, kept: _Kept | None) -> dict[str, float]:
        return {} if kept is None else {"listed_seconds_ago": round(self._clock() - kept.at, 1)}

    def _ask(self, device: Device) -> _Listing | Entries | _Failure:
        """Return the entries if they are known, else a listing that runs, or why there is none.

        The caller holds the lock.
        """
        if device.kind == LINES:
            return ()
        if (kept := self._true(device, ALL_FILES)) is not None and (device.is_heard or self._is_new(kept)):
            self._failed.pop(device, None)
            return kept.entries
        failure = self._failed.get(device)
        is_free = failure is not None and failure.holder is not None and device.holder is None
        if failure is not None and not is_free and self._clock() - failure.at < UNHEARD_SECONDS:
            return failure
        if device.is_deaf:
            return self._fail(device, device.no_answer())
        listing = self._running.get(device)
        if listing is None:
            listing = _Listing(not device.is_open and not device.trouble)
            try:
                listing.future = device.shard.submit(self._list(device, listing))
            except FastFlightError as error:
                return self._fail(device, error)
            self._running[device] = listing
            listing.future.add_done_callback(lambda _: self._ended(device, listing))
        return listing

    def _ended(self, device: Device, listing: _Listing) -> None:
        with self._lock:
            if self._running.get(device) is listing:
                del self._running[device]

    async def _list(self, device: Device, listing: _Listing) -> Entries:
        try:
            async with device.alease("listing files", timeout=LEASE_SECONDS) as session:
                listing.is_slow = True
                version = version_of(device)
                entries = await session.list("/", recursive=True)
        except FastFlightError as error:
            self._fail(device, error)
            raise
        self.store(device, ALL_FILES, version, entries)
        return entries

    def _outcome(self, device: Device, listing: _Listing) -> Entries | _Failure:
        if listing.future.cancelled():
            return self._fail(device, BusyError("its server stops"))
        if not listing.future.done():
            seconds = TOTAL_SECONDS if listing.is_slow else ANSWER_SECONDS
            return self._fail(device, BusyError(f"it did not answer within {seconds:g} s"))
        try:
            return listing.future.result()
        except FastFlightError as error:
            return self._failed.get(device) or self._fail(device, error)

    def _fail(self, device: Device, error: FastFlightError) -> _Failure:
        failure = self._failed[device] = _Failure(error, device.holder, self._clock())
        return failure

    def find(self, device: Device, folder: Folder) -> Entries | None:
        """Return a listing that is still true, and not older than `UNHEARD_SECONDS`."""
        kept = self._true(device, folder)
        return kept.entries if kept is not None and self._is_new(kept) else None

    def store(self, device: Device, folder: Folder, version: Hashable, entries: Entries) -> None:
        """Keep a listing. `version` is `version_of` the device, from before the listing and while it was leased."""
        with self._lock:
            if folder == ALL_FILES:
                self._failed.pop(device, None)
            if len(entries) > MAX_KEPT_ENTRIES:
                return
            folders = self._kept.setdefault(device, {})
            folders.pop(folder, None)
            folders[folder] = _Kept(entries, version, self._clock())
            while len(folders) > MAX_KEPT_FOLDERS:
                del folders[next(each for each in folders if each != ALL_FILES)]

    def _true(self, device: Device, folder: Folder) -> _Kept | None:
        """Return the last listing, unless the files may have changed. An owner may change them at any moment."""
        kept = self._kept.get(device, {}).get(folder)
        changed = kept is None or device.holder is not None or kept.version != version_of(device)
        return None if changed else kept

    def _is_new(self, kept: _Kept) -> bool:
        return self._clock() - kept.at < UNHEARD_SECONDS


def _wait(listings: Sequence[_Listing]) -> None:
    """Wait until the listings have ended, as long as their boards may take."""
    end = time.monotonic() + TOTAL_SECONDS
    concurrent.futures.wait([each.future for each in listings], ANSWER_SECONDS)
    slow = [each.future for each in listings if each.is_slow]
    concurrent.futures.wait(slow, max(0.0, end - time.monotonic()))


def version_of(device: Device) -> Hashable:
    """Return a value that changes when the device's files may have changed, or it has a new line.

    Output during a listing changes it, so that the next caller lists again.
    """
    return device.changes, device.outages, device.tap.heard_ns
