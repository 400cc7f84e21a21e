"""The actions of one server, by name, for whichever edge is asked to carry one out."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from fastflight.access.action import Action, Body, RawAction
from fastflight.access.authority import Authority, shown
from fastflight.access.identity import ANYBODY, NOBODY, Identity, unproven
from fastflight.errors import RequestError, nearest
from fastflight.service import wire
from fastflight.service.resolve import MAX_KEPT_REQUEST_BYTES, MAX_KEPT_REQUESTS


@dataclass(frozen=True, slots=True)
class Call:
    """An action with its decoded body: `results` carries it out. `device`: the one that it is about."""

    results: Callable[[], Iterator[bytes]]
    at_once: bool
    device: str | None = None


class Actions:
    """A table of actions, carried out for whom `authority` lets. Each name is there once."""

    def __init__(self, actions: Iterable[Action | RawAction], authority: Authority | None = None) -> None:
        self._actions: dict[str, Action | RawAction] = {}
        self._authority = authority or Authority()
        for action in actions:
            if action.name in self._actions:
                raise ValueError(f"two actions called {action.name}")
            self._actions[action.name] = action
        # The same bytes are decoded once; what is refused is looked at each time.
        self._kept = functools.lru_cache(MAX_KEPT_REQUESTS)(_decoded)

    def __iter__(self) -> Iterator[Action | RawAction]:
        return iter(self._actions.values())

    def call(self, name: str, body: bytes, identity: Identity = ANYBODY) -> Call:
        """What `name` with `body` asks for, or `RequestError`, or `AccessError`. Nothing is begun.

        Who is `NOBODY` is told so before their body is looked at, save where the action is public.
        """
        found = self._actions.get(name)
        if identity is NOBODY and not (isinstance(found, Action) and found.public):
            raise unproven()
        if name not in self._actions:
            raise RequestError("no such action", where=wire.shortened(name), hint=nearest(name, self._actions))
        action = self._actions[name]
        if isinstance(action, RawAction):
            run = action.run
            return Call(lambda: iter(run(body, identity)), at_once=True)
        given = self._kept(action, body) if len(body) <= MAX_KEPT_REQUEST_BYTES else _decoded(action, body)
        self._authority.permit(identity, action, given)
        return Call(
            functools.partial(_results, action, given, identity), action.at_once, getattr(given, "device", None)
        )


def _results(action: Action, given: Body, identity: Identity) -> Iterator[bytes]:
    for result in action.run(given):
        told = shown(action, identity, result)
        if told is not None:
            yield json.dumps(told, default=str).encode()


def _decoded(action: Action, body: bytes) -> Body:
    return wire.validate(action.body, wire.parse(body or b"{}", action.name))
