"""What a server knows of its cluster: the servers that are alive, and the owner of each device. No I/O and no clock.

Each server has an entry with its `Profile`, and each owned device an entry with its owner. Both are leases
(`fastflight.cluster.lease`): whoever stops renewing them is gone. `saw` takes the entries of the bucket as they change.
All times are those of this process's monotonic clock.

The devices of a server are too many to be sent with each renewal. Its entry has their digest, and `Profile.lists` has
the devices, as keys that are written only when they change. `saw_list` takes those. A server whose lists have not been
seen is not a member.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

SERVER, DEVICE, LIST = "server", "device", "list"
# Of one list. A name has 64 characters at most, and a message of NATS 1 MB.
LIST_DEVICES = 5_000


def key_of(kind: str, name: str) -> str:
    """Return the key of a server or a device. Names may have dots, which keys of NATS divide into parts."""
    return f"{kind}.{base64.urlsafe_b64encode(name.encode()).decode().rstrip('=')}"


def digest_of(description: str) -> str:
    """Return a short digest by which servers compare what their fleet files say of a device."""
    return hashlib.blake2b(description.encode(), digest_size=6).hexdigest()


@dataclass(frozen=True)
class Profile:
    """A server as it describes itself. `boot` differs each time that it starts.

    `devices` are the devices of its fleet file, each with a digest of its settings; `unreachable` are those among them
    that it cannot own, because another server has the board, and `local` those whose board it has itself. `location`
    and `http` are addresses.
    """

    name: str
    boot: str
    location: str = ""
    http: str = ""
    devices: Mapping[str, str] = field(default_factory=dict)
    unreachable: frozenset[str] = frozenset()
    local: frozenset[str] = frozenset()

    def reaches(self, device: str, digest: str) -> bool:
        """Whether it can own a device with these settings."""
        return self.devices.get(device) == digest and device not in self.unreachable

    @cached_property
    def digest(self) -> str:
        """A digest of its devices."""
        return digest_of("".join(self._lists))

    def lists(self) -> dict[str, dict[str, Any]]:
        """Return the keys and the contents that have its devices."""
        whole = {"server": self.name, "digest": self.digest, "count": len(self._lists)}
        return {
            f"{key_of(LIST, self.name)}.{number}": {**whole, "number": number, **json.loads(each)}
            for number, each in enumerate(self._lists)
        }

    def as_json(self, digest: str) -> dict[str, Any]:
        """Return the content of its entry. `digest` is that of its lists as they are stored."""
        return {
            "server": self.name,
            "boot": self.boot,
            "location": self.location,
            "http": self.http,
            "digest": digest,
        }

    @cached_property
    def _lists(self) -> list[str]:
        names = sorted(self.devices)
        parts = [names[at : at + LIST_DEVICES] for at in range(0, len(names), LIST_DEVICES)] or [[]]
        return [
            json.dumps(
                {
                    "devices": {name: self.devices[name] for name in part},
                    "unreachable": [name for name in part if name in self.unreachable],
                    "local": [name for name in part if name in self.local],
                }
            )
            for part in parts
        ]


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as it was last seen. `value` is the last content, also of an entry that was `deleted`."""

    revision: int
    value: Mapping[str, Any]
    at: float
    since: float
    deleted: bool = False


class Directory:
    """The entries of the bucket, which live for `ttl` seconds unless they are renewed."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        # A change replaces the dict or an entry, so other threads may read.
        self._entries: dict[str, Entry] = {}
        self._connected_at = math.inf
        # The lists of each server by number, as they were last seen, and its newest two whole ones by their digest.
        self._lists: dict[str, dict[int, Mapping[str, Any]]] = {}
        self._described: dict[str, dict[str, _Devices]] = {}
        # The profile of each server's entry: equal ones are the same object.
        self._profiles: dict[str, Profile] = {}

    def begin(self, now: float) -> None:
        """A connection to NATS was made. Renewals may have been missed before it."""
        self._connected_at = now

    def saw(self, key: str, revision: int, value: Mapping[str, Any] | None, now: float) -> None:
        """The bucket has this content; None if the entry was deleted."""
        known = self._entries.get(key)
        if known is not None and revision <= known.revision:
            return
        if value is None:
            self._entries[key] = Entry(revision, known.value if known else {}, now, now, deleted=True)
            return
        same = known is not None and not known.deleted and known.value.get("boot") == value.get("boot")
        since = known.since if known is not None and same and self._is_alive(known, now) else now
        self._entries[key] = Entry(revision, value, now, since)

    def saw_list(self, value: Mapping[str, Any]) -> None:
        """A list of a server's devices has this content. What fastflight did not write is ignored."""
        try:
            server, digest, number, count = (value[key] for key in ("server", "digest", "number", "count"))
            lists = self._lists.setdefault(str(server), {})
            lists[int(number)] = value
            whole = [lists[each] for each in range(int(count)) if each in lists and lists[each]["digest"] == digest]
            if len(whole) == count:
                before = self._described.get(server, {})
                newest = list(before.items())[-1:]
                self._described[server] = {**dict(newest), digest: _Devices.of_lists(whole)}
        except (KeyError, TypeError, ValueError, AttributeError):
            return

    def listed(self, server: str) -> str:
        """Return the digest of a server's newest whole lists; empty if there are none."""
        return next(reversed(self._described.get(server, {"": None})))

    def entry(self, key: str) -> Entry | None:
        """Return what was last seen of an entry, whether it is still there or not."""
        return self._entries.get(key)

    def vacancy(self, key: str, now: float) -> int | None:
        """Return the revision to replace if nobody holds this lease; 0 if there is none. None if somebody may hold it.

        Nobody does if the entry was deleted, or if this server has watched it for its time to live without seeing a
        renewal. That depends on no clock but this one: an entry that is missing may have been dropped too early.
        """
        known = self._entries.get(key)
        if known is not None and known.deleted:
            return known.revision
        seen = self._connected_at if known is None else max(known.at, self._connected_at)
        if now - seen < self._ttl:
            return None
        return known.revision if known is not None else 0

    def vacant_since(self, key: str) -> float:
        """Return when a vacancy began."""
        known = self._entries.get(key)
        if known is not None and known.deleted:
            return known.at
        return (self._connected_at if known is None else max(known.at, self._connected_at)) + self._ttl

    def holder(self, key: str, now: float) -> Entry | None:
        """Return the entry if its lease is held, as far as this server knows."""
        known = self._entries.get(key)
        return known if known is not None and self._is_alive(known, now) else None

    def owner(self, device: str, now: float) -> Profile | None:
        """Return the server that owns a device. None if none does, or if that server is gone."""
        held = self.holder(key_of(DEVICE, device), now)
        server = None if held is None else self.holder(key_of(SERVER, str(held.value.get("server"))), now)
        return None if server is None else self._profile(server)

    def members(self, now: float) -> dict[str, tuple[Profile, float]]:
        """Return the servers that are alive by name, each with the time since which it is."""
        alive = {
            profile.name: (profile, entry.since)
            for key, entry in list(self._entries.items())
            if key.startswith(f"{SERVER}.") and self._is_alive(entry, now)
            for profile in [self._profile(entry)]
            if profile is not None
        }
        return dict(sorted(alive.items()))

    def _is_alive(self, entry: Entry, now: float) -> bool:
        return not entry.deleted and now - entry.at < self._ttl

    def _profile(self, entry: Entry) -> Profile | None:
        try:
            name, boot, location, http, digest = (
                str(entry.value[key]) for key in ("server", "boot", "location", "http", "digest")
            )
        except KeyError:
            return None
        devices = self._described.get(name, {}).get(digest)
        if devices is None:
            return None
        profile = Profile(name, boot, location, http, devices.devices, devices.unreachable, devices.local)
        known = self._profiles.get(name)
        if known is not None and known.devices is devices.devices and known == profile:
            return known
        self._profiles[name] = profile
        return profile


@dataclass(frozen=True, slots=True)
class _Devices:
    """The devices of a server: those fields of its `Profile`."""

    devices: Mapping[str, str]
    unreachable: frozenset[str]
    local: frozenset[str]

    @classmethod
    def of_lists(cls, lists: Iterable[Mapping[str, Any]]) -> Self:
        """Return what lists have together. `KeyError`, `TypeError` or `ValueError` if they are none."""
        devices = {str(name): str(digest) for each in lists for name, digest in dict(each["devices"]).items()}
        unreachable, local = (
            frozenset(str(name) for each in lists for name in each[key]) for key in ("unreachable", "local")
        )
        return cls(devices, unreachable, local)


def differences(mine: Profile, other: Profile) -> list[str]:
    """Return the devices about which the fleet files of two servers differ, each with what differs.

    A board on a server's own computer may be missing from the other's file.
    """
    both = mine.devices.keys() & other.devices.keys()
    found = [f"{name}: other settings" for name in both if mine.devices[name] != other.devices[name]]
    for here, there in ((mine, other), (other, mine)):
        only = here.devices.keys() - there.devices.keys() - here.local
        found += [f"{name}: only at {here.name}" for name in only]
    return sorted(found)
