"""The actions with which a server tells about itself: `health`, `stats`, `identity`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastflight.access.action import Action, EmptyBody
from fastflight.access.identity import ANYBODY, Identity
from fastflight.concurrency import Shards
from fastflight.runtime import process
from fastflight.runtime.metrics import Figures, Sample
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.service.requests import Verb


def state_actions(registry: StreamRegistry, shards: Shards, figures: Figures | None = None) -> list[Action]:
    """What every server says of itself, whatever it serves. `figures` are those that it has; else its streams'."""
    given = figures or own_figures(registry, shards)

    def health(_: EmptyBody) -> Iterator[Mapping[str, Any]]:
        yield {"status": registry.state}

    def stats(_: EmptyBody) -> Iterator[Mapping[str, Any]]:
        yield {**registry.stats(), "shards": shards.stats(), "figures": given.told()}

    return [
        Action(
            "health",
            "Whether the server takes requests: status is serving, draining or overloaded.",
            EmptyBody,
            health,
            at_once=True,
            verb=None,
            public=True,
            shown=_state_alone,
        ),
        Action(
            "stats",
            "Streams, rows and bytes since the start, in all and by source; event loops; all figures of /metrics.",
            EmptyBody,
            stats,
            at_once=True,
            verb=Verb.ADMIN,
        ),
        Action(
            "identity",
            "Who asks, as this server knows them: name and scopes.",
            EmptyBody,
            lambda _: [_described(ANYBODY)],
            at_once=True,
            verb=None,
            shown=lambda identity, _: _described(identity),
        ),
    ]


def own_figures(registry: StreamRegistry, shards: Shards) -> Figures:
    """What every server counts; more may be added."""
    figures = Figures()
    figures.add(registry.figures)
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


def _described(identity: Identity) -> Mapping[str, Any]:
    return {"name": identity.name, "scopes": [str(scope) for scope in identity.scopes]}


def _state_alone(identity: Identity, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Load balancers ask without a proof: what else a server says of itself names devices and processes."""
    return result if identity.may_admin() else {"status": result["status"]}
