"""The cache of listings of boards' folders, for list_flights and for `device.listing`.

For list_flights, it lists all files of boards: each board once, however many callers ask at the same time, and once for
the sources of one call, which run one after another. A board that did not answer is not asked again for
`UNHEARD_SECONDS`, unless it was busy and is free now.

A listing stays true until somebody may have changed the board's files (`Device.changes`), or the board says something
by itself: its program may write files, too. What the board says is seen while its line is read for listeners. While it
is not, and for a board whose program goes on beside requests, a listing stays true for `UNHEARD_SECONDS`.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from fastflight.device import Device, FileEntry
from fastflight.errors import BusyError, FastFlightError

# Time limit for waiting for busy devices, when the files of all devices are listed.
LEASE_SECONDS = 2.0
# Time limit for the whole listing, including opening lines: a large tree on a slow line takes a few seconds.
TOTAL_SECONDS = 10.0
# Devices that are listed at the same time, for all callers together; each takes a thread.
MAX_THREADS = 32
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


class BoardListings:
    """The files of boards. Any thread may call it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # A listing that ends at once calls `_ended` in `_listing`.
        self._lock = threading.RLock()
        self._kept: WeakKeyDictionary[Device, dict[Folder, _Kept]] = WeakKeyDictionary()
        # The boards that were not listed, why, and when.
        self._failed: WeakKeyDictionary[Device, tuple[FastFlightError, float]] = WeakKeyDictionary()
        # The listings that run now, and the pool that runs them while anybody waits.
        self._running: dict[Device, concurrent.futures.Future[Entries]] = {}
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._callers = 0

    def list(self, devices: Sequence[Device]) -> Iterator[tuple[Device, Entries, Mapping[str, Any] | None]]:
        """Yield the entries of each device that can be reached, in order, within `TOTAL_SECONDS`.

        For a device that is busy, or does not answer in time, these are those of its last listing, with the note
        `{"busy": why}`.
        """
        with self._lock:
            self._callers += 1
            listings = [self._listing(device) for device in devices]
        try:
            concurrent.futures.wait(listings, TOTAL_SECONDS)
        finally:
            with self._lock:
                self._callers -= 1
                if not self._callers and self._pool is not None:
                    self._pool.shutdown(wait=False, cancel_futures=True)
                    self._pool = None
        for device, listing in zip(devices, listings, strict=True):
            kept = self._kept.get(device, {}).get(ALL_FILES)
            last = () if kept is None else kept.entries
            try:
                if listing.cancelled() or not listing.done():
                    error = BusyError(f"it did not answer within {TOTAL_SECONDS:g} s")
                    self._failed[device] = error, self._clock()
                    raise error
                entries = listing.result()
            except BusyError as error:
                yield device, last, {"busy": error.what}
            except FastFlightError:
                continue
            else:
                yield device, entries, None

    def _listing(self, device: Device) -> concurrent.futures.Future[Entries]:
        """Return the listing that runs, or a new one. The caller holds the lock."""
        error, at = self._failed.get(device, (None, 0.0))
        is_free = isinstance(error, BusyError) and device.holder is None
        if error is not None and not is_free and self._clock() - at < UNHEARD_SECONDS:
            failed: concurrent.futures.Future[Entries] = concurrent.futures.Future()
            failed.set_exception(error)
            return failed
        listing = self._running.get(device)
        if listing is None:
            if self._pool is None:
                self._pool = concurrent.futures.ThreadPoolExecutor(MAX_THREADS, "listing")
            listing = self._running[device] = self._pool.submit(self._list, device)
            listing.add_done_callback(lambda _: self._ended(device, listing))
        return listing

    def _ended(self, device: Device, listing: concurrent.futures.Future[Entries]) -> None:
        with self._lock:
            if self._running.get(device) is listing:
                del self._running[device]

    def _list(self, device: Device) -> Entries:
        if (kept := self._true(device, ALL_FILES)) is not None and (device.is_heard or self._is_new(kept)):
            return kept.entries
        try:
            with device.lease("listing files", timeout=LEASE_SECONDS) as session:
                version = version_of(device)
                entries = session.list("/", recursive=True)
        except FastFlightError as error:
            self._failed[device] = error, self._clock()
            raise
        self.store(device, ALL_FILES, version, entries)
        return entries

    def find(self, device: Device, folder: Folder) -> Entries | None:
        """Return a listing that is still true, and not older than `UNHEARD_SECONDS`."""
        kept = self._true(device, folder)
        return kept.entries if kept is not None and self._is_new(kept) else None

    def store(self, device: Device, folder: Folder, version: Hashable, entries: Entries) -> None:
        """Keep a listing. `version` is `version_of` the device, from before the listing and while it was leased."""
        if len(entries) > MAX_KEPT_ENTRIES:
            return
        with self._lock:
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


def version_of(device: Device) -> Hashable:
    """Return a value that changes when the device's files may have changed, or it has a new line.

    Output during a listing changes it, so that the next caller lists again.
    """
    return device.changes, device.outages, device.tap.heard_ns
