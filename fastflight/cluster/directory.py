"""What a server knows of its cluster: the servers that are alive, and the owner of each device. No I/O and no clock.

`saw` takes the entries of the bucket as they change (`fastflight.cluster.entries`), and `begin` and `loaded` the
connections over which they come. All times are those of this process's monotonic clock.

The bucket keeps only the last content of each entry, so changes of several entries may be seen in another order than
they were made. Terms are revisions, which are ordered: an entry of a device is out of date only if the lease of its
owner was seen to end, or to begin anew, at a revision after the entry's term.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from fastflight.cluster.entries import (
    DEVICE,
    LIST,
    SERVER,
    DeviceEntry,
    ServerEntry,
    device_entry,
    name_of,
    server_entry,
)
from fastflight.cluster.profile import Lists, Profile


class Directory:
    """The entries of the bucket. `ttl`: how long a lease lives without a renewal, if its server does not say so."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._clear()
        # Which bucket it is, and since when all of its entries are known over the present connection.
        self._bucket = 0
        self._loaded_at = math.inf
        # Since when this bucket is known, over all connections.
        self._known_since = math.inf
        # Counts changes of servers, of which the placement of devices depends.
        self.generation = 0
        # When the entry of a device was last seen to change.
        self.owners_changed_at = -math.inf
        # In the order in which they changed.
        self._changed: dict[str, None] = {}

    @property
    def epoch(self) -> int:
        """A number for the bucket: the larger, the later it was created. So revisions of two buckets have an order."""
        return self._bucket

    def begin(self, bucket: int) -> None:
        """Entries begin to come over a new connection. If the bucket is another one, the known entries are void."""
        if bucket != self._bucket:
            self._clear()
            self._known_since = math.inf
            self._bucket = bucket
        self._loaded_at = math.inf
        self.generation += 1

    def loaded(self, now: float) -> None:
        """All entries were seen that were there when the connection began."""
        self._loaded_at = now
        self._known_since = min(self._known_since, now)
        self.generation += 1

    def saw(self, key: str, revision: int, value: Mapping[str, Any] | None, now: float) -> None:
        """The bucket has this content; None if somebody deleted the entry. It may come late, twice or reordered."""
        kind, name = name_of(key)
        if kind == SERVER:
            known = self._servers.get(name)
            if known is None or revision > known.revision:
                seen = self._servers[name] = server_entry(known, revision, value, now, self._ttl)
                before = None if known is None else (known.term, known.ended, known.value.get("digest"))
                self.generation += before != (seen.term, seen.ended, seen.value.get("digest"))
        elif kind == DEVICE:
            owner = self._devices.get(name)
            if owner is None or revision > owner.revision:
                self._devices[name] = device_entry(owner, revision, value, now)
                self._changed[name] = None
                self.owners_changed_at = now
        elif kind == LIST:
            self._lists.saw(value or {})
            self.generation += 1

    def changed(self) -> Iterable[str]:
        """Return the devices whose entries have changed since the last call."""
        changed, self._changed = self._changed, {}
        return changed

    def server(self, name: str) -> ServerEntry | None:
        """Return what was last seen of the lease of a server."""
        return self._servers.get(name)

    def device(self, name: str) -> DeviceEntry | None:
        """Return what was last seen of the entry of a device."""
        return self._devices.get(name)

    def listed(self, server: str) -> str:
        """Return the digest of a server's newest whole lists; empty if there are none."""
        return self._lists.digest(server)

    def vacancy(self, server: str, boot: str, now: float) -> int | None:
        """Return the revision to replace to begin the lease of a server; 0 if there is none. None if it must wait.

        It waits until this bucket was known for as long as a lease lives: if it was made anew, because NATS has lost
        its files, other servers may still rely on the old one. And a lease that is not of this `boot` must end first.
        """
        known = self._servers.get(server)
        if not now - self._known_since >= self._ttl or self._loaded_at > now:
            return None
        if known is None:
            return 0
        if known.ended or known.boot == boot or self._is_silent(known, now):
            return known.revision
        return None

    def silent(self, now: float) -> list[tuple[str, int]]:
        """Return the servers whose leases were not renewed for as long as they live, each with the revision seen."""
        found = self._servers.items()
        return [(name, each.revision) for name, each in found if not each.ended and self._is_silent(each, now)]

    def free_since(self, device: str, now: float) -> float | None:
        """Return since when no server can own a device, so that its entry may be replaced. None if one may own it."""
        if self._loaded_at > now:
            return None
        entry = self._devices.get(device)
        if entry is None or entry.deleted:
            seen = self._known_since if entry is None else max(entry.at, self._known_since)
            return seen + self._ttl if now >= seen + self._ttl else None
        if not entry.server:
            return entry.at
        lease = self._servers.get(entry.server)
        if lease is None or not self._is_over(lease, entry.term):
            return None
        return max(entry.at, lease.since)

    def owner(self, device: str, now: float) -> Profile | None:
        """Return the server that owns a device. None if none does, or if that server is gone."""
        entry = self._devices.get(device)
        lease = None if entry is None else self._servers.get(entry.server)
        if entry is None or lease is None or lease.term != entry.term or not self._is_alive(lease, now):
            return None
        return self._lists.profile(lease.value)

    def members(self, now: float | None = None) -> dict[str, tuple[Profile, float]]:
        """Return the servers whose leases have not ended by name, each with the time since which it is there.

        With `now`: only those whose leases were also renewed in time, as far as this server knows. Without, all servers
        with the same entries find the same.
        """
        alive = {
            profile.name: (profile, entry.since)
            for entry in list(self._servers.values())
            if (not entry.ended if now is None else self._is_alive(entry, now))
            for profile in [self._lists.profile(entry.value)]
            if profile is not None
        }
        return dict(sorted(alive.items()))

    def _clear(self) -> None:
        # A change replaces an entry, so other threads may read.
        self._servers: dict[str, ServerEntry] = {}
        self._devices: dict[str, DeviceEntry] = {}
        self._lists = Lists()

    def _is_alive(self, entry: ServerEntry, now: float) -> bool:
        return not entry.ended and now - entry.at < entry.ttl

    def _is_silent(self, entry: ServerEntry, now: float) -> bool:
        return now - max(entry.at, self._loaded_at) >= entry.ttl

    def _is_over(self, lease: ServerEntry, term: int) -> bool:
        """Whether the lease that began with `term` is over for certain: `lease` was seen later, and is not that one."""
        return lease.revision > term and (lease.ended or lease.term > term)
