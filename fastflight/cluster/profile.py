"""A server as it describes itself to the others: its addresses and its devices. No I/O and no clock.

The devices of a server are too many to be sent with each renewal of its lease. Its entry has their digest, and
`Profile.listed` has the devices, as an entry of its own that is written only when it changes. `Lists` has those entries
of all servers.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from fastflight.cluster.entries import LIST, Put, key_of

# A list is compressed, since a message of NATS has at most 1 MB. The fleet file, which has the same devices, has 1 MiB.
MAX_LIST_BYTES = 16 * 1024 * 1024


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
        return digest_of(self._list)

    def listed(self) -> Put:
        """Return what stores its devices."""
        devices = base64.b64encode(zlib.compress(self._list.encode())).decode()
        return Put(key_of(LIST, self.name), {"server": self.name, "digest": self.digest, "devices": devices})

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
    def _list(self) -> str:
        names = self.devices.keys()
        return json.dumps(
            {
                "devices": self.devices,
                "unreachable": sorted(names & self.unreachable),
                "local": sorted(names & self.local),
            },
            sort_keys=True,
        )


class Lists:
    """The devices of all servers, from the lists that were seen."""

    def __init__(self) -> None:
        # The newest two lists of each server by their digest, as profiles without addresses.
        self._lists: dict[str, dict[str, Profile]] = {}
        # The last profile of each server: equal ones are the same object.
        self._profiles: dict[str, Profile] = {}

    def saw(self, value: Mapping[str, Any]) -> None:
        """A list has this content. What fastflight did not write is ignored."""
        try:
            server, digest = str(value["server"]), str(value["digest"])
            packed = base64.b64decode(value["devices"])
            text = zlib.decompressobj().decompress(packed, MAX_LIST_BYTES).decode()
            if digest_of(text) != digest:
                return
            found = json.loads(text)
            devices = {str(name): str(each) for name, each in found["devices"].items()}
            unreachable, local = (frozenset(map(str, found[key])) for key in ("unreachable", "local"))
        except (zlib.error, KeyError, TypeError, ValueError, AttributeError, RecursionError):
            return
        listed = Profile(server, "", devices=devices, unreachable=unreachable, local=local)
        others = {each: known for each, known in self._lists.get(server, {}).items() if each != digest}
        self._lists[server] = {**dict([*others.items()][-1:]), digest: listed}

    def digest(self, server: str) -> str:
        """Return the digest of a server's newest list; empty if there is none."""
        return next(reversed(self._lists.get(server, {"": None})))

    def profile(self, value: Mapping[str, Any]) -> Profile | None:
        """Return the profile of a server, whose entry has this content. None if its lists were not seen."""
        try:
            name, boot, location, http, digest = (
                str(value[key]) for key in ("server", "boot", "location", "http", "digest")
            )
        except KeyError:
            return None
        listed = self._lists.get(name, {}).get(digest)
        if listed is None:
            return None
        known = self._profiles.get(name)
        same_list = known is not None and known.devices is listed.devices
        if known is None or not same_list or (known.boot, known.location, known.http) != (boot, location, http):
            known = self._profiles[name] = replace(listed, boot=boot, location=location, http=http)
        return known


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
