"""Whether who asks may: the one place where a request, or an action, meets an identity.

What is demanded is data, declared where a request type or an action is (`Request.demands`, `Action.verb`). A device of
which an identity has no scope is answered as one that is not there, in the same words: nobody learns names by trying.
`ANYBODY` passes at once: then each source says by itself what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from fastflight.access.action import Action, Body, Result
from fastflight.access.identity import ANYBODY, NOBODY, Identity, unproven
from fastflight.errors import AccessError, RequestError, UnknownName, nearest
from fastflight.service.requests import Doing, FleetFile, Recording, Request, Verb
from fastflight.service.wire import shortened

R = TypeVar("R", bound=Request)
Names = Callable[[], Collection[str]]

# As the refusals of `service.dispatch`.
DONE: dict[Doing, str] = {"read": "read", "write": "written", "exchange": "exchanged", "describe": "described"}


class Authority:
    """Decides for one server. `devices` and `recordings` give the names that there are; None where they are not known.

    Where they are not, nothing is said of names: whoever does know them refuses those that are not there.
    """

    def __init__(self, devices: Names | None = None, recordings: Names | None = None) -> None:
        self._devices = devices
        self._recordings = recordings

    def authorize(self, identity: Identity, request: R, doing: Doing) -> R:
        """The request as `identity` may have it: itself, or one that leaves out what does not exist for them.

        Raises `Forbidden`; `UnknownName` for a device that is not there, or not for them; `Unauthenticated` for
        `NOBODY`.
        """
        if identity is ANYBODY:
            return request
        if identity is NOBODY:
            raise unproven()
        asked: Doing = "read" if doing == "describe" else doing
        if asked not in request.demands:
            raise RequestError(f"{request.type} cannot be {DONE[doing]}", where="type")
        verb = request.demands[asked]
        interrupts = bool(getattr(request, "interrupt", False))
        if isinstance(request, FleetFile):
            return request.narrowed(lambda name: _takes(identity, name, interrupts))
        if verb is not None:
            names = self._recordings if isinstance(request, Recording) else self._devices
            what = "recording" if isinstance(request, Recording) else "device"
            _require(identity, verb, request.concerns, names, what)
        if interrupts:
            _require(identity, Verb.EXEC, request.concerns, self._devices)
        return request

    def permit(self, identity: Identity, action: Action, body: Body) -> None:
        """Raise, as `authorize` does, unless `identity` may have `action` carried out."""
        if identity is ANYBODY or action.public:
            return
        if identity is NOBODY:
            raise unproven()
        device = getattr(body, "device", None)
        if action.verb is not None:
            _require(identity, action.verb, device, self._devices)
        if getattr(body, "interrupt", False):
            _require(identity, Verb.EXEC, device, self._devices)


class Listing:
    """What of a listing exists for `identity`: the requests that they may read."""

    def __init__(self, authority: Authority, identity: Identity) -> None:
        self._authority = authority
        self._identity = identity

    def takes(self, kind: type[Request], name: str) -> bool:
        """Whether the device or recording of a name is to be asked what it has of a `kind` of requests.

        A file of the fleet is one of those that several devices have of which this is so.
        """
        if self._identity is ANYBODY:
            return True
        verb = kind.demands.get("read")
        return verb is not None and self._identity.may(verb, name)

    def has(self, request: Request) -> bool:
        """Whether `request` is to be listed."""
        if self._identity is ANYBODY:
            return True
        try:
            self._authority.authorize(self._identity, request, "read")
        except (RequestError, AccessError):
            return False
        return True


def shown(action: Action, identity: Identity, result: Result) -> Result | None:
    """What `identity` gets of a result of `action`: None for nothing."""
    return result if identity is ANYBODY or action.shown is None else action.shown(identity, result)


def _takes(identity: Identity, device: str, interrupts: bool) -> bool:
    """Whether a fleet has the device for `identity`. `Forbidden` where it does, and they may not interrupt it."""
    if not identity.may(Verb.READ, device):
        return False
    if interrupts:
        identity.require(Verb.EXEC, device)
    return True


def _require(identity: Identity, verb: Verb, device: str | None, names: Names | None, what: str = "device") -> None:
    if device is None:
        identity.require_admin()
        return
    known = None if names is None else names()
    exists = identity.sees(device) or identity.may(verb, device)
    if not exists or (known is not None and device not in known):
        seen = () if known is None else [name for name in known if identity.sees(name)]
        raise UnknownName(
            f"no such {what}", where=shortened(device), hint="" if known is None else nearest(device, seen)
        )
    identity.require(verb, device)
