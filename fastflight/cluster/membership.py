"""This server's place in its cluster: the lease of its name, and the end of the leases of servers that are gone.

A state machine without I/O and without a clock. `look` returns what is to be stored in the bucket; report each result
by `stored`, `refused` or `unanswered`, and what was seen in the bucket by `saw`.

A server renews one lease, and its devices count as long as that. When the lease of another server was not renewed for
as long as it lives, this server ends it: it replaces the revision that it has seen last by a mark. After that no
renewal can be stored, however long it was on its way. Only then are the devices of that server free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastflight.cluster.directory import Directory
from fastflight.cluster.entries import SERVER, Put, ended_lease, key_of, number
from fastflight.cluster.lease import Create, Lease
from fastflight.cluster.profile import Profile

# Before something is stored again of which no result was seen.
RETRY_SECONDS = 1.0


class Membership:
    """The lease of the server that `profile` describes. `ttl`: how long it lives without a renewal."""

    def __init__(self, profile: Profile, directory: Directory, ttl: float) -> None:
        self.profile = profile
        self.lease = Lease(ttl, ttl / 8, ttl / 4)
        self._directory = directory
        self._ttl = ttl
        self._key = key_of(SERVER, profile.name)
        self._list_due = 0.0
        # When the lease of each silent server may be ended again.
        self._end_due: dict[str, float] = {}

    def describe(self, profile: Profile) -> None:
        """Change what this server says of itself, except for its name."""
        self.profile = replace(profile, name=self.profile.name, boot=self.profile.boot)
        self._list_due = 0.0

    def look(self, now: float) -> list[Put]:
        """Return what is to be stored now."""
        puts = self._list(now)
        listed = self._directory.listed(self.profile.name)
        begins_at = None
        if self.lease.is_held(now):
            puts += self._ends(now)
        else:
            begins_at = self._directory.vacancy(self.profile.name, self.profile.boot, now)
            if begins_at is None or listed != self.profile.digest:
                return puts
        request = self.lease.next(now)
        if request is not None:
            term, last = (0, begins_at) if isinstance(request, Create) else (self.lease.term, request.revision)
            said = {"ttl": self._ttl, "term": term, "n": request.number}
            puts.append(Put(self._key, {**self.profile.as_json(listed), **said}, last))
        return puts

    def release(self) -> Put | None:
        """Give up the lease, so that others may take its devices at once. None if it is not held."""
        request = self.lease.release()
        return None if request is None else ended_lease(self.profile.name, self.profile.name, request.revision)

    def stored(self, put: Put, revision: int, now: float) -> None:
        """What `look` returned is in the bucket, with this revision."""
        self.saw(put.key, revision, put.content, now)

    def saw(self, key: str, revision: int, value: Mapping[str, Any] | None, now: float) -> None:
        """The bucket has this content. It may be an own request whose acknowledgement was lost."""
        self._directory.saw(key, revision, value, now)
        if key == self._key and value is not None and value.get("boot") == self.profile.boot:
            self.lease.stored(number(value.get("n")), revision)

    def refused(self, put: Put) -> None:
        """The entry has another revision than the one that was to be replaced."""
        if put.key == self._key:
            self.lease.refused(number(put.content.get("n")))

    def unanswered(self, put: Put) -> None:
        """There was no answer in time. It may be stored, or not."""
        if put.key == self._key:
            self.lease.unanswered(number(put.content.get("n")))

    def twin(self, now: float) -> str | None:
        """Return the address of another server that has this one's name; None if none was seen."""
        other = self._directory.server(self.profile.name)
        if other is None or other.ended or other.boot == self.profile.boot or now - other.at >= other.ttl:
            return None
        # It was renewed meanwhile, so it is no remainder of this server's last run.
        return str(other.value.get("location")) if other.at > other.since else None

    def _list(self, now: float) -> list[Put]:
        """Return the list of this server's devices, if it is not in the bucket."""
        if self._directory.listed(self.profile.name) == self.profile.digest or now < self._list_due:
            return []
        self._list_due = now + RETRY_SECONDS
        return [self.profile.listed()]

    def _ends(self, now: float) -> list[Put]:
        """Return what ends the leases of servers that are silent."""
        puts = []
        for name, revision in self._directory.silent(now):
            if name != self.profile.name and now >= self._end_due.get(name, 0.0):
                self._end_due[name] = now + RETRY_SECONDS
                puts.append(ended_lease(name, self.profile.name, revision))
        return puts
