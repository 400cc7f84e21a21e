"""Authorization: decides whether an identity may make a request or run an action. No other module does.

Request types and actions declare the verbs that they require (`Request.demands`, `Action.verb`). Devices on which an
identity has no scope are hidden from it: it gets the same error as for a device that does not exist, so that nobody
learns names by trying. `ANYBODY` passes all checks; the sources themselves refuse devices that do not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from fastflight.access.action import Action, Body, Result
from fastflight.access.identity import ANYBODY, NOBODY, Identity, unproven
from fastflight.errors import AccessError, RequestError, UnknownName, nearest
from fastflight.service.requests import Conditional, Doing, FleetFile, Recording, Request, SourceRequest, Sql, Verb
from fastflight.service.wire import shortened

R = TypeVar("R", bound=Request)
Names = Callable[[], Collection[str]]

# The participles for error messages, as in `service.source`.
DONE: dict[Doing, str] = {"read": "read", "write": "written", "exchange": "exchanged", "describe": "described"}


class Authority:
    """Decides for one server. `devices` and `recordings` return the names that exist, or are None if that is not known.

    Without the names, existence is not checked here: the source refuses names that do not exist.
    """

    def __init__(self, devices: Names | None = None, recordings: Names | None = None) -> None:
        self._devices = devices
        self._recordings = recordings

    def authorize(self, identity: Identity, request: R, doing: Doing) -> R:
        """Return the request that `identity` may make: `request` itself, or one without the devices hidden from it.

        `doing` is the operation: to read, write, exchange or describe. Raise `Forbidden` if the identity lacks the
        right, `UnknownName` for a device that does not exist or is hidden, `Unauthenticated` for `NOBODY`, and
        `RequestError` if this type of request does not have the operation.
        """
        if identity is ANYBODY:
            return request
        if identity is NOBODY:
            raise unproven()
        operation: Doing = "read" if doing == "describe" else doing
        if operation not in request.demands:
            raise RequestError(f"{request.type} cannot be {DONE[doing]}", where="type")
        verb = request.demands[operation]
        interrupts = bool(getattr(request, "interrupt", False))
        if isinstance(request, FleetFile):
            return request.narrowed(lambda name: _takes(identity, name, interrupts))
        if isinstance(request, Sql):
            return request.asked_by(identity)
        if verb is not None:
            _require(identity, verb, request.concerns, *self._names(request))
        if interrupts:
            _require(identity, Verb.EXEC, request.concerns, self._devices)
        if _compares(request):
            _require(identity, Verb.READ, request.concerns, self._devices)
        return request

    def _names(self, request: Request) -> tuple[Names | None, str]:
        """Return the names among which the request's is, and what has these names."""
        if isinstance(request, Recording):
            return self._recordings, "recording"
        return (None, "source") if isinstance(request, SourceRequest) else (self._devices, "device")

    def permit(self, identity: Identity, action: Action, body: Body) -> None:
        """Return if `identity` may run `action` with `body`. Otherwise raise an error, as `authorize` does."""
        if identity is ANYBODY or action.public:
            return
        if identity is NOBODY:
            raise unproven()
        device = getattr(body, "device", None)
        if action.verb is not None:
            _require(identity, action.verb, device, self._devices)
        if getattr(body, "interrupt", False):
            _require(identity, Verb.EXEC, device, self._devices)
        if _compares(body):
            _require(identity, Verb.READ, device, self._devices)


class Listing:
    """Filters a listing for `identity`, which sees only the requests that it may read."""

    def __init__(self, authority: Authority, identity: Identity) -> None:
        self._authority = authority
        self._identity = identity

    def takes(self, kind: type[Request], name: str) -> bool:
        """Whether a listing of requests of type `kind` includes the device or recording `name`.

        For `FleetFile`, the listing has the files of those devices for which this returns True.
        """
        if self._identity is ANYBODY:
            return True
        verb = kind.demands.get("read")
        return verb is not None and self._identity.may(verb, name)

    def has(self, request: Request) -> bool:
        """Whether to list `request`."""
        if self._identity is ANYBODY:
            return True
        try:
            self._authority.authorize(self._identity, request, "read")
        except (RequestError, AccessError):
            return False
        return True


def visible_part(action: Action, identity: Identity, result: Result) -> Result | None:
    """Return the part of a result of `action` that `identity` may see; None if it may see nothing."""
    return result if identity is ANYBODY or action.shown is None else action.shown(identity, result)


def _takes(identity: Identity, device: str, interrupts: bool) -> bool:
    """Whether `identity` may read the device in a fleet. Raise `Forbidden` if it may, but may not interrupt it."""
    if not identity.may(Verb.READ, device):
        return False
    if interrupts:
        identity.require(Verb.EXEC, device)
    return True


def _compares(asked: Request | Body) -> bool:
    """Whether the result tells if the present content of a file is what the caller thinks it is."""
    return isinstance(asked, Conditional) and asked.conditional


def _require(identity: Identity, verb: Verb, device: str | None, names: Names | None, what: str = "device") -> None:
    if device is None:
        identity.require_admin()
        return
    known = None if names is None else names()
    exists = identity.sees(device) or identity.may(verb, device)
    if not exists or (known is not None and device not in known):
        visible = () if known is None else [name for name in known if identity.sees(name)]
        raise UnknownName(
            f"no such {what}", where=shortened(device), hint="" if known is None else nearest(device, visible)
        )
    identity.require(verb, device)
