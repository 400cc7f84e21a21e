"""A server as it describes itself to the others: its addresses and its devices. No I/O and no clock.

The devices of a server are too many to be sent with each renewal of its lease. Its entry has their digest, and
`Profile.lists` has the devices, as entries of their own that are written only when they change. `Lists` puts the lists
of other servers together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from fastflight.cluster.entries import LIST, key_of

# Of one list. A name has 64 characters at most, and a message of NATS 1 MB.
LIST_DEVICES = 5_000


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


class Lists:
    """The devices of all servers, from the lists that were seen."""

    def __init__(self) -> None:
        # The lists of each server by number, as they were last seen, and its newest two whole ones by their digest.
        self._parts: dict[str, dict[int, Mapping[str, Any]]] = {}
        self._whole: dict[str, dict[str, _Devices]] = {}
        # The last profile of each server: equal ones are the same object.
        self._profiles: dict[str, Profile] = {}

    def saw(self, value: Mapping[str, Any]) -> None:
        """A list has this content. What fastflight did not write is ignored."""
        try:
            server, digest, number, count = (value[key] for key in ("server", "digest", "number", "count"))
            parts = self._parts.setdefault(str(server), {})
            parts[int(number)] = value
            whole = [parts[each] for each in range(int(count)) if each in parts and parts[each]["digest"] == digest]
            if len(whole) == count:
                newest = list(self._whole.get(server, {}).items())[-1:]
                self._whole[server] = {**dict(newest), digest: _Devices.of_lists(whole)}
        except (KeyError, TypeError, ValueError, AttributeError):
            return

    def digest(self, server: str) -> str:
        """Return the digest of a server's newest whole lists; empty if there are none."""
        return next(reversed(self._whole.get(server, {"": None})))

    def profile(self, value: Mapping[str, Any]) -> Profile | None:
        """Return the profile of a server, whose entry has this content. None if its lists were not seen."""
        try:
            name, boot, location, http, digest = (
                str(value[key]) for key in ("server", "boot", "location", "http", "digest")
            )
        except KeyError:
            return None
        devices = self._whole.get(name, {}).get(digest)
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
