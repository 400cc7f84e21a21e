"""Identities of callers, and their rights.

An `Identity` is a name that was proven (by a token or a certificate) and its scopes. A scope grants verbs on devices:
`read,write:weather-*`, `exec:bench`, `admin:*`. On a server without authentication every caller is `ANYBODY`, who may
do everything.

A device on which an identity has no scope is hidden from it: the error is the same as for a device that does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from fastflight.errors import Forbidden, RequestError, Unauthenticated, UnknownName, nearest
from fastflight.service.requests import Verb

# The characters of device names and of globs.
GLOB = re.compile(r"[A-Za-z0-9_.*?\[\]!-]{1,255}")
# Scopes of one identity: all of them are checked for each request.
MAX_SCOPES = 64
# The glob for all devices, including devices that are added later.
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
    """A name and its scopes. `credential` says what proved the name (not a secret); empty if nothing did."""

    name: str
    scopes: tuple[Scope, ...]
    credential: str = field(default="", repr=False)

    @property
    def own_name(self) -> str | None:
        """The name, if it is the caller's own; None without authentication, where all callers are one."""
        return None if self is ANYBODY else self.name

    def may(self, verb: Verb, device: str) -> bool:
        """Whether `verb` is granted on `device`."""
        return any(verb in scope.verbs and fnmatchcase(device, scope.devices) for scope in self.scopes)

    def sees(self, device: str) -> bool:
        """Whether any verb except `admin` is granted on `device`. If not, the device is hidden from this identity."""
        return any(fnmatchcase(device, scope.devices) for scope in self.scopes if scope.verbs != {Verb.ADMIN})

    def may_admin(self) -> bool:
        """Whether this identity may administer the server itself."""
        return any(Verb.ADMIN in scope.verbs and scope.devices == EVERY for scope in self.scopes)

    def require(self, verb: Verb, device: str) -> None:
        """Raise `Forbidden` unless `verb` is granted on `device`; raise `UnknownName` if no verb is."""
        if self.may(verb, device):
            return
        if not self.sees(device):
            raise UnknownName("no such device", where=device)
        granted = ", ".join(each for each in Verb if self.may(each, device))
        raise Forbidden(
            f"{self.name} may not {verb} here", where=device, hint=f"Granted: {granted}. Ask whoever runs the server"
        )

    def require_admin(self) -> None:
        """Raise `Forbidden` unless this identity may administer the server itself."""
        if not self.may_admin():
            raise Forbidden(f"{self.name} may not administer this server", hint="It takes the scope admin:*")


def scope(text: str) -> Scope:
    """Parse the text of a scope, such as `read,write:weather-*`. Raise `RequestError` if it is malformed."""
    verbs, colon, devices = text.partition(":")
    if not colon or not GLOB.fullmatch(devices):
        raise RequestError("not VERBS:DEVICES", where=text[:100], hint="As in read,write:weather-* or admin:*")
    granted: set[Verb] = set()
    for verb in verbs.split(","):
        if verb not in set(Verb):
            raise RequestError(
                "no such verb", where=verb[:100], hint=nearest(verb[:100], [each.value for each in Verb])
            )
        granted.add(Verb(verb))
    return Scope(frozenset(granted), devices)


def scopes(texts: Iterable[str]) -> tuple[Scope, ...]:
    """Parse the scopes of one identity, each as `scope` does. Raise `RequestError` also for more than `MAX_SCOPES`."""
    found = tuple(scope(text) for text in texts)
    if len(found) > MAX_SCOPES:
        raise RequestError(f"{len(found)} scopes are too many: {MAX_SCOPES} are allowed", hint="Use globs")
    return found


# The caller on a server without authentication: everybody who reaches the port.
ANYBODY = Identity("anybody", (Scope(frozenset(Verb), EVERY),))
# A caller without a proof on a server with authentication: may run public actions, such as `health`, and nothing else.
NOBODY = Identity("nobody", ())


def unproven() -> Unauthenticated:
    """Return the error for every caller without a valid proof, whatever the request and whatever is wrong."""
    return Unauthenticated(
        "this server requires authentication, and the request has no valid token or certificate",
        hint="Send a token of this server as Authorization: Bearer ff_...; fastflight's commands take --token-file",
    )
