"""The actions of one server, by name, for whichever edge is asked to carry one out."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastflight.concurrency import Shards
from fastflight.errors import RequestError, nearest
from fastflight.service import process, wire
from fastflight.service.action import Action, Body, RawAction
from fastflight.service.authority import Authority, shown
from fastflight.service.figures import Figures, Sample
from fastflight.service.identity import ANYBODY, NOBODY, Identity, Verb, unproven
from fastflight.service.kept import MAX_KEPT_REQUEST_BYTES, MAX_KEPT_REQUESTS
from fastflight.service.ledger import Ledger


class Nothing(Body):
    """The body of an action that needs none: empty, or `{}`."""


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


def state_actions(ledger: Ledger, shards: Shards, figures: Figures | None = None) -> list[Action]:
    """What every server says of itself, whatever it serves. `figures` are those that it has; else its streams'."""
    given = figures or own_figures(ledger, shards)

    def health(_: Nothing) -> Iterator[Mapping[str, Any]]:
        yield {"status": ledger.state}

    def stats(_: Nothing) -> Iterator[Mapping[str, Any]]:
        yield {**ledger.stats(), "shards": shards.stats(), "figures": given.told()}

    return [
        Action(
            "health",
            "Whether the server takes requests: status is serving, draining or overloaded.",
            Nothing,
            health,
            at_once=True,
            verb=None,
            public=True,
            shown=_state_alone,
        ),
        Action(
            "stats",
            "Streams, rows and bytes since the start, in all and by source; event loops; all figures of /metrics.",
            Nothing,
            stats,
            at_once=True,
            verb=Verb.ADMIN,
        ),
        Action(
            "identity",
            "Who asks, as this server knows them: name and scopes.",
            Nothing,
            lambda _: [_described(ANYBODY)],
            at_once=True,
            verb=None,
            shown=lambda identity, _: _described(identity),
        ),
    ]


def own_figures(ledger: Ledger, shards: Shards) -> Figures:
    """What every server counts; more may be added."""
    figures = Figures()
    figures.add(ledger.figures)
    figures.add(lambda: _of_shards(shards))
    figures.add(process.figures)
    return figures


def _of_shards(shards: Shards) -> Iterator[Sample]:
    for told in shards.stats():
        of = {"shard": told["name"]}
        yield Sample("fastflight_shard_tasks", told["tasks"], of)
        yield Sample("fastflight_shard_streams", told["streams"], of)
        yield Sample("fastflight_shard_lag_seconds", told["lag_ms"] / 1000, of)
        yield Sample("fastflight_shard_longest_lag_seconds", told["longest_lag_ms"] / 1000, of)
        yield Sample("fastflight_shard_stuck_total", told["times_stuck"], of)


def _results(action: Action, given: Body, identity: Identity) -> Iterator[bytes]:
    for result in action.run(given):
        told = shown(action, identity, result)
        if told is not None:
            yield json.dumps(told, default=str).encode()


def _described(identity: Identity) -> Mapping[str, Any]:
    return {"name": identity.name, "scopes": [str(scope) for scope in identity.scopes]}


def _state_alone(identity: Identity, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Load balancers ask without a proof: what else a server says of itself names devices and processes."""
    return result if identity.may_admin() else {"status": result["status"]}


def _decoded(action: Action, body: bytes) -> Body:
    return wire.validate(action.body, wire.parse(body or b"{}", action.name))
