"""The table of a server's actions, which every edge uses to run them.

`Actions.call` finds an action, decodes its body and checks the caller's rights. It returns a `Call`. The edge then
iterates over `Call.results()`, within admission unless the call is `at_once`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from fastflight.access.action import Action, Body, RawAction
from fastflight.access.authority import Authority, visible_part
from fastflight.access.identity import ANYBODY, NOBODY, Identity, unproven
from fastflight.errors import RequestError, nearest
from fastflight.service import wire
from fastflight.service.resolve import MAX_KEPT_REQUEST_BYTES, MAX_KEPT_REQUESTS


@dataclass(frozen=True, slots=True)
class Call:
    """An action with its decoded body. `results` runs it and yields each result as bytes: JSON, except for `RawAction`.

    `device` is the device that the body names, if any. An `at_once` call never waits and needs no admission.
    """

    results: Callable[[], Iterator[bytes]]
    at_once: bool
    device: str | None = None


class Actions:
    """A table of actions, which checks each call with `authority`. Raise `ValueError` if two have the same name."""

    def __init__(self, actions: Iterable[Action | RawAction], authority: Authority | None = None) -> None:
        self._actions: dict[str, Action | RawAction] = {}
        self._authority = authority or Authority()
        for action in actions:
            if action.name in self._actions:
                raise ValueError(f"two actions called {action.name}")
            self._actions[action.name] = action
        self._listed = [action.name for action in self._actions.values() if isinstance(action, Action) or action.listed]
        # Bodies are cached by their bytes; errors are not.
        self._cached = functools.lru_cache(MAX_KEPT_REQUESTS)(_decode)

    def __iter__(self) -> Iterator[Action | RawAction]:
        return iter(self._actions.values())

    def call(self, name: str, body: bytes, identity: Identity = ANYBODY) -> Call:
        """Return the call of the action `name` with `body`, without running it.

        Raise `RequestError` for an unknown action or a bad body, `AccessError` if `identity` may not run it. `NOBODY`
        gets `Unauthenticated` before its body is decoded, except for public actions.
        """
        action = self._actions.get(name)
        if identity is NOBODY and not (isinstance(action, Action) and action.public):
            raise unproven()
        if action is None:
            raise RequestError("no such action", where=wire.shortened(name), hint=nearest(name, self._listed))
        if isinstance(action, RawAction):
            run = action.run
            return Call(lambda: iter(run(body, identity)), action.at_once)
        decoded = self._cached(action, body) if len(body) <= MAX_KEPT_REQUEST_BYTES else _decode(action, body)
        self._authority.permit(identity, action, decoded)
        return Call(
            functools.partial(_results, action, decoded, identity), action.at_once, getattr(decoded, "device", None)
        )


def _results(action: Action, body: Body, identity: Identity) -> Iterator[bytes]:
    for result in action.run(body):
        visible = visible_part(action, identity, result)
        if visible is not None:
            yield json.dumps(visible, default=str).encode()


def _decode(action: Action, body: bytes) -> Body:
    return wire.validate(action.body, wire.parse(body or b"{}", action.name))
