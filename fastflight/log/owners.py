"""Leases of devices, in a folder that the processes of one computer share.

One file per device has the newest lease. It is read and replaced under a lock of the operating system, and remains when
the process that wrote it ends. The token in it only grows, even after the lease is released or expires.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fastflight.errors import BusyError, StorageError
from fastflight.log.batch_log import Lease
from fastflight.log.content import stream_of
from fastflight.log.disk import Disk, LocalDisk, failure, make_private, read_whole, write_new
from fastflight.log.lock import locked

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,60}")


class FolderOwners:
    """Leases in `folder`. Any number of processes may use it at once."""

    def __init__(self, folder: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = Path(folder)
        self._disk: Disk = LocalDisk(self._folder)
        self._clock = clock
        try:
            make_private(self._folder)
        except OSError as error:
            raise failure(error, "opening the leases") from error

    def acquire(self, device: str, owner: str, seconds: float) -> Lease:
        """Become the owner for `seconds`. Raises `BusyError`, which names the present owner."""
        with locked(self._folder / "owners.lock"):
            newest = self._newest(device)
            if newest is not None and newest.until > self._clock():
                raise _busy_error(newest, self._clock())
            token = newest.token + 1 if newest is not None else 1
            return self._write(Lease(device, owner, token, self._clock() + seconds))

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Extend the lease, even if it has expired. Raises `BusyError` if the device has a newer lease."""
        with locked(self._folder / "owners.lock"):
            newest = self._newest(lease.device)
            if newest is None or newest.token != lease.token or newest.owner != lease.owner:
                raise _busy_error(newest or lease, self._clock())
            return self._write(replace(lease, until=self._clock() + seconds))

    def release(self, lease: Lease) -> None:
        """Give up the device. Does nothing if the device has a newer lease."""
        with locked(self._folder / "owners.lock"):
            newest = self._newest(lease.device)
            if newest is not None and newest.token == lease.token:
                self._write(replace(newest, until=0.0))

    def holder(self, device: str) -> Lease | None:
        """Return the lease in force; None while the device is free."""
        newest = self._newest(device)
        return newest if newest is not None and newest.until > self._clock() else None

    def _newest(self, device: str) -> Lease | None:
        try:
            return _parse_lease(json.loads(read_whole(self._disk, _file_of(device))))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failure(error, "reading the lease", device) from error
        except (ValueError, TypeError, OverflowError, RecursionError):
            # A new lease without the old token could give two owners the same token.
            raise StorageError(
                "the lease can not be read",
                where=device,
                hint="Make sure that nobody has the device, then remove its lease",
            ) from None

    def _write(self, lease: Lease) -> Lease:
        try:
            write_new(self._disk, _file_of(lease.device), [json.dumps(asdict(lease)).encode()])
        except OSError as error:
            raise failure(error, "keeping the lease", lease.device) from error
        return lease


def _parse_lease(content: Any) -> Lease:
    """Return the lease in the content of a file. Raises `TypeError` if it is not one."""
    lease = Lease(**content)
    kinds = (("device", str), ("owner", str), ("token", int), ("until", int | float))
    if not all(isinstance(getattr(lease, name), kind) for name, kind in kinds) or not math.isfinite(lease.until):
        raise TypeError("not a lease")
    return lease


def _file_of(device: str) -> str:
    name = device if _PLAIN.fullmatch(device) else f"{stream_of(device):016x}"
    return f"{name}.lease"


def _busy_error(lease: Lease, now: float) -> BusyError:
    seconds = max(lease.until - now, 0)
    return BusyError(
        f"{lease.owner} has it for another {seconds:.0f} s",
        holder=lease.owner,
        where=lease.device,
        hint="Wait until it is released, or until the lease ends",
    )
