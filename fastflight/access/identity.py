"""Who asks, and what they may do.

An `Identity` is a name that was proven (by a token, a certificate) and its scopes; `ANYBODY` asks where a server wants
no proof, and may do everything. A scope is verbs on devices: `read,write:weather-*`, `exec:bench`, `admin:*`.

Someone with no scope at all on a device is told that there is no such device, as if that were so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from fastflight.errors import Forbidden, RequestError, Unauthenticated, UnknownName, nearest
from fastflight.service.requests import Verb

# As a device's name, and the characters of a glob.
GLOB = re.compile(r"[A-Za-z0-9_.*?\[\]!-]{1,255}")
# Of one identity: each is looked at for each request.
MAX_SCOPES = 64
# What stands for all devices, also those that are not there yet.
EVERY = "*"


@dataclass(frozen=True, slots=True)
class Scope:
    """Verbs on the devices whose names match a glob (case matters)."""

    verbs: frozenset[Verb]
    devices: str

    def __str__(self) -> str:
        return f"{','.join(verb for verb in Verb if verb in self.verbs)}:{self.devices}"


@dataclass(frozen=True, slots=True)
class Identity:
    """A name and what it may do. `credential`: what proved it; no secret, and empty where there was no proof."""

    name: str
    scopes: tuple[Scope, ...]
    credential: str = field(default="", repr=False)

    def may(self, verb: Verb, device: str) -> bool:
        """Whether `verb` is granted on `device`."""
        return any(verb in scope.verbs and fnmatchcase(device, scope.devices) for scope in self.scopes)

    def sees(self, device: str) -> bool:
        """Whether anything is granted on `device`: to others it does not exist."""
        return any(fnmatchcase(device, scope.devices) for scope in self.scopes if scope.verbs != {Verb.ADMIN})

    def may_admin(self) -> bool:
        """Whether the server itself is this one's to look into and to steer."""
        return any(Verb.ADMIN in scope.verbs and scope.devices == EVERY for scope in self.scopes)

    def require(self, verb: Verb, device: str) -> None:
        """Raise `Forbidden` unless `verb` is granted on `device`, `UnknownName` if nothing is."""
        if self.may(verb, device):
            return
        if not self.sees(device):
            raise UnknownName("no such device", where=device)
        granted = ", ".join(each for each in Verb if self.may(each, device))
        raise Forbidden(
            f"{self.name} may not {verb} here", where=device, hint=f"Granted: {granted}. Ask whoever runs the server"
        )

    def require_admin(self) -> None:
        """Raise `Forbidden` unless the server itself is this one's to steer."""
        if not self.may_admin():
            raise Forbidden(f"{self.name} may not administer this server", hint="It takes the scope admin:*")


def scope(text: str) -> Scope:
    """The scope that `text` means; `RequestError` says what is wrong with it."""
    verbs, colon, devices = text.partition(":")
    if not colon or not GLOB.fullmatch(devices):
        raise RequestError("not VERBS:DEVICES", where=text[:100], hint="As in read,write:weather-* or admin:*")
    given: set[Verb] = set()
    for verb in verbs.split(","):
        if verb not in set(Verb):
            raise RequestError(
                "no such verb", where=verb[:100], hint=nearest(verb[:100], [each.value for each in Verb])
            )
        given.add(Verb(verb))
    return Scope(frozenset(given), devices)


def scopes(texts: Iterable[str]) -> tuple[Scope, ...]:
    """The scopes of one identity."""
    found = tuple(scope(text) for text in texts)
    if len(found) > MAX_SCOPES:
        raise RequestError(f"{len(found)} scopes are too many: {MAX_SCOPES} are allowed", hint="Use globs")
    return found


# Where no proof is wanted: whoever reaches the port. Only loopback is served so.
ANYBODY = Identity("anybody", (Scope(frozenset(Verb), EVERY),))
# Who gave no proof where it is wanted: may ask how the server is, and nothing else.
NOBODY = Identity("nobody", ())


def unproven() -> Unauthenticated:
    """What whoever gives no good proof is told, whatever they asked and whatever was wrong with it."""
    return Unauthenticated(
        "this server wants to know who asks, and was shown nothing that it knows",
        hint="Send a token of its own, as in Authorization: Bearer ff_...; fastflight's commands take --token-file",
    )
