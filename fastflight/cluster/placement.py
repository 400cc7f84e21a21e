"""Placement: which of several servers owns a device, by rendezvous hashing.

Each pair of a device and a server has a score, which depends on their names alone. The owner of a device is the server
with the highest score among those that can reach it. So all servers compute the same owner without asking each other.
When a server leaves, only its own devices move; when one joins, only those move that it gets. A device that a single
server can reach, such as a board on a USB port, has that server as its only possible owner. No I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from fastflight.cluster.directory import Directory
from fastflight.cluster.profile import Profile, differences

# Of splitmix64: every bit of the input changes about half of the bits of the output.
_STEPS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = np.uint64(31)

# Arrays of uint64.
Hashes = Any


def hashes(names: Sequence[str]) -> Hashes:
    """Return a hash for each name."""
    digests = b"".join(blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def scores(devices: Hashes, server: np.uint64) -> Hashes:
    """Return the score of `server` for each device. Arguments are `hashes` of the names."""
    mixed = devices ^ server
    for shift, factor in _STEPS:
        mixed = (mixed ^ (mixed >> shift)) * factor
    return mixed ^ (mixed >> _LAST_SHIFT)


def ranked(device: str, servers: Collection[str]) -> list[str]:
    """Return `servers`, all of which can reach `device`: the owner first, then those that would take its place."""
    return rankings([device], servers)[device]


def rankings(devices: Sequence[str], servers: Collection[str]) -> dict[str, list[str]]:
    """Return `ranked` for each of many devices."""
    names = sorted(servers)
    if not names or not devices:
        return {device: [] for device in devices}
    of_devices = hashes(devices)
    table = np.stack([scores(of_devices, server) for server in hashes(names)], axis=1)
    orders = np.argsort(table, axis=1)[:, ::-1].tolist()
    return {device: [names[at] for at in order] for device, order in zip(devices, orders, strict=True)}


class Plan:
    """The servers that should own the devices of a server. It is computed again when servers have changed."""

    def __init__(self) -> None:
        # Grows with each change.
        self.version = 0
        # The other servers whose fleet files differ from this one's, each with what differs.
        self.differing: dict[str, list[str]] = {}
        self._generation = -1
        self._members: Mapping[str, tuple[Profile, float]] = {}
        self._profiles: dict[str, Profile] = {}
        self._wanted: dict[str, list[str]] = {}

    def update(self, profile: Profile, directory: Directory) -> bool:
        """Compute the owners again if that is needed. Return whether it was. `profile` is that of this server."""
        if directory.generation == self._generation and self._profiles.get(profile.name) is profile:
            return False
        self._generation = directory.generation
        self._members = directory.members()
        profiles = {name: member for name, (member, _) in self._members.items()} | {profile.name: profile}
        if profiles == self._profiles:
            self._profiles = profiles
            return False
        self._profiles = profiles
        self.differing = {
            name: found
            for name, other in profiles.items()
            if name != profile.name and (found := differences(profile, other))
        }
        self._wanted = {
            device: [name for name in order if profiles[name].reaches(device, profile.devices[device])]
            for device, order in rankings([*profile.devices], profiles).items()
        }
        self.version += 1
        return True

    def wanted(self, device: str) -> Sequence[str]:
        """Return the servers that can own a device, the one that should be its owner first."""
        return self._wanted.get(device, ())

    def since(self, server: str) -> float:
        """Return since when a server is in the cluster."""
        return self._members[server][1]
