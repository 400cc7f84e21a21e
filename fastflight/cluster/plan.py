"""Which server should own each device, of those that are in the cluster. No I/O and no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastflight.cluster.directory import Directory
from fastflight.cluster.placement import rankings
from fastflight.cluster.profile import Profile, differences


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
