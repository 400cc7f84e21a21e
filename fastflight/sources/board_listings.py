"""Lists all files of boards, for list_flights: each board once, however many callers ask at the same time.

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
# Long enough for a page whose panels ask at the same time.
UNHEARD_SECONDS = 1.0

Entries = Sequence[FileEntry]


@dataclass(frozen=True, slots=True)
class _Kept:
    entries: Entries
    version: Hashable
    at: float


class BoardListings:
    """The files of boards. Any thread may call `list`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # A listing that ends at once calls `_ended` in `_listing`.
        self._lock = threading.RLock()
        self._kept: WeakKeyDictionary[Device, _Kept] = WeakKeyDictionary()
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
            kept = self._kept.get(device)
            last = () if kept is None else kept.entries
            if listing.cancelled() or not listing.done():
                yield device, last, {"busy": f"it did not answer within {TOTAL_SECONDS:g} s"}
                continue
            try:
                entries = listing.result()
            except BusyError as error:
                yield device, last, {"busy": error.what}
            except FastFlightError:
                continue
            else:
                yield device, entries, None

    def _listing(self, device: Device) -> concurrent.futures.Future[Entries]:
        """Return the listing that runs, or a new one. The caller holds the lock."""
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
        if (kept := self._fresh(device)) is not None:
            return kept.entries
        with device.lease("listing files", timeout=LEASE_SECONDS) as session:
            # Output during the listing makes the version differ, so that the next caller lists again.
            version = _version(device)
            entries = session.list("/", recursive=True)
        if len(entries) <= MAX_KEPT_ENTRIES:
            self._kept[device] = _Kept(entries, version, self._clock())
        return entries

    def _fresh(self, device: Device) -> _Kept | None:
        """Return the last listing of the device, if it is still true. An owner may change the files at any moment."""
        kept = self._kept.get(device)
        if kept is None or device.holder is not None or kept.version != _version(device):
            return None
        return kept if device.is_heard or self._clock() - kept.at < UNHEARD_SECONDS else None


def _version(device: Device) -> Hashable:
    """Return a value that changes when the device's files may have changed, or it has a new line."""
    return device.changes, device.outages, device.tap.heard_ns
