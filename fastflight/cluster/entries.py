"""The entries of the bucket of a fleet: their keys, and what they hold. No I/O and no clock.

The bucket has three kinds of entries: the lease of each server, which it renews; the owner of each device, which is
written when it changes; and the list of the devices of each server (`fastflight.cluster.profile`). None of them has a
time to live. Each change of an entry gives it a *revision*, a number that grows over the whole bucket.

The *term* of a lease is the revision with which it began. The entry of a device names its owner and the owner's term.
It counts as long as that lease.
"""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SERVER, DEVICE, LIST = "server", "device", "list"
# Keys that are computed once: those of all devices, as far as a cluster is made for.
KNOWN_KEYS = 1 << 17
# A server may say how long its lease lives, within these seconds.
MIN_TTL, MAX_TTL = 0.1, 600.0


@functools.lru_cache(KNOWN_KEYS)
def key_of(kind: str, name: str) -> str:
    """Return the key of a server or a device. Names may have dots, which keys of NATS divide into parts."""
    return f"{kind}.{base64.urlsafe_b64encode(name.encode()).decode().rstrip('=')}"


@functools.lru_cache(KNOWN_KEYS)
def name_of(key: str) -> tuple[str, str]:
    """Return the kind and the name of which this is the key; empty if there are none."""
    kind, _, encoded = key.partition(".")
    encoded = encoded.partition(".")[0]
    try:
        return kind, base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except (binascii.Error, ValueError):
        return "", ""


@dataclass(frozen=True, slots=True)
class Put:
    """Replace the content of an entry. NATS refuses it if the revision of the entry is not `last`; 0: there is none.

    `last` is None if the content is to be replaced whatever it is.
    """

    key: str
    content: Mapping[str, Any]
    last: int | None = None


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """The lease of a server as it was last seen, at the time `at`, and first seen in this term at `since`.

    `ended`: the server gave it up, or another one ended it. An entry that no server wrote has no `boot` and no term.
    """

    revision: int
    at: float
    since: float
    boot: str = ""
    term: int = 0
    ttl: float = 0.0
    ended: bool = False
    value: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceEntry:
    """The owner of a device as it was last seen, at the time `at`. No `server`: it was given up.

    Numbers of the owner's traffic begin at `first`, and are below `limit`. `deleted`: somebody deleted the entry.
    """

    revision: int
    at: float
    server: str = ""
    term: int = 0
    first: int = 0
    limit: int = 0
    deleted: bool = False

    def put(self, device: str, last: int) -> Put:
        """Return what stores this as the entry of a device."""
        content = {
            "device": device,
            "server": self.server,
            "term": self.term,
            "first": self.first,
            "limit": self.limit,
        }
        return Put(key_of(DEVICE, device), content, last)


def ended_lease(server: str, by: str, last: int) -> Put:
    """Return what ends the lease of a server: no renewal of it is stored after that."""
    return Put(key_of(SERVER, server), {"server": server, "ended": True, "by": by}, last)


def server_entry(
    known: ServerEntry | None, revision: int, value: Mapping[str, Any] | None, now: float, ttl: float
) -> ServerEntry:
    """Return the lease of a server whose entry was seen at `now`. `ttl` is for one that does not say its own."""
    value = value or {}
    if value.get("ended") is True:
        return ServerEntry(revision, now, now, ended=True, ttl=ttl, value=value)
    said = value.get("ttl")
    if isinstance(said, int | float) and MIN_TTL <= said <= MAX_TTL:
        ttl = float(said)
    if not isinstance(boot := value.get("boot"), str) or not boot:
        return ServerEntry(revision, now, now, ttl=ttl)
    term = number(value.get("term")) or revision
    same = known is not None and known.term == term
    return ServerEntry(revision, now, known.since if known and same else now, boot, term, ttl, value=value)


def device_entry(known: DeviceEntry | None, revision: int, value: Mapping[str, Any] | None, now: float) -> DeviceEntry:
    """Return the owner of a device whose entry was seen at `now`. The numbers of an entry that is gone stay used."""
    if value is None or not isinstance(server := value.get("server"), str):
        used = (known.first, known.limit) if known else (0, 0)
        return DeviceEntry(revision, now, "", 0, *used, deleted=True)
    first, limit = number(value.get("first")), number(value.get("limit"))
    return DeviceEntry(revision, now, server, number(value.get("term")), first, max(first, limit))


def number(value: object) -> int:
    """Return a number of an entry; 0 if it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
