"""Placement: which of several servers owns a device, by rendezvous hashing.

Each pair of a device and a server has a score, which depends on their names alone. The owner of a device is the server
with the highest score among those that can reach it. So all servers compute the same owner without asking each other.
When a server leaves, only its own devices move; when one joins, only those move that it gets. A device that a single
server can reach, such as a board on a USB port, has that server as its only possible owner.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

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
